"""What a caller asks for, checked once and for every engine the same way.

What a plan keeps, so that it can be executed: the source as it was read, and the options.

A source is read once, when the plan is made. What was read stays with the plan: in memory, or in
the staging directory of the plan, which goes when the plan is executed or nobody has it any more.
"""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa

from fsspeckit.core.keys import as_names, check_names
from fsspeckit.core.merge import MergeStrategy, validate_rewrite_mode_compatibility
from fsspeckit.core.rewrite import FileLimits, basename_of
from fsspeckit.display import Progress
from fsspeckit.errors import InvalidArgumentError, RewriteLimitError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fsspeckit.core.keys import DuplicatePolicy, NullPolicy
    from fsspeckit.core.planning import MergePlan
    from fsspeckit.datasets.engine import OpenStage, Source
    from fsspeckit.storage import Storage

__all__ = [
    "NO_LIMIT",
    "ROW_GROUP_SIZE",
    "FileOptions",
    "MergeRequest",
    "PlannedMerge",
    "Progress",
    "RewriteLimits",
    "WriteMode",
    "WriteRequest",
    "check_write_or_merge",
    "codec_named",
    "one_spelling",
    "planned_merge",
]


# --- What a caller asks for, checked once and for every engine the same way ---

WriteMode = Literal["append", "overwrite"]
_WRITE_MODES = ("append", "overwrite")
_NULL_POLICIES = ("error", "match")
_CODECS = ("snappy", "zstd", "gzip", "lz4", "brotli", "none")
_SPELLED = {"uncompressed": "none"}
_DUPLICATE_POLICIES = ("error", "first", "last")

ROW_GROUP_SIZE = 500_000
"""The most rows of a row group, if the caller does not say: it has to fit into memory."""

NO_LIMIT = 2**62
"""More rows than any file has."""


def codec_named(name: Any) -> Any:
    """A codec as pyarrow spells it; None compresses nothing, what is no text stays as it is."""
    if name is None:
        return "none"
    return _SPELLED.get(name.lower(), name.lower()) if isinstance(name, str) else name


@dataclass(frozen=True)
class FileOptions:
    """How new files are written."""

    compression: str = "snappy"
    max_rows_per_file: int = 5_000_000
    row_group_size: int = ROW_GROUP_SIZE
    bloom_columns: tuple[str, ...] = ()
    basename_template: str | None = None

    def __post_init__(self) -> None:
        for name in ("max_rows_per_file", "row_group_size"):
            value = getattr(self, name)
            if not _is_count(value):
                raise InvalidArgumentError(
                    f"{name} must be > 0, a whole number, got {value!r}.", argument=name
                )
        if self.compression not in _CODECS:
            raise InvalidArgumentError.choice("compression", self.compression, _CODECS)
        basename_of(self.basename_template, 0)

    @property
    def limits(self) -> FileLimits:
        """How large files may get."""
        # Arrow counts in 64 bits; a file with as many rows does not exist.
        counts = (self.max_rows_per_file, self.row_group_size)
        return FileLimits(*(min(int(count), NO_LIMIT) for count in counts))


def _is_count(value: Any) -> bool:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return whole and bool(value > 0)


@dataclass(frozen=True)
class RewriteLimits:
    """How much of a target a merge may rewrite: a guard against keys that match too much."""

    max_rewrite_fraction: float | None = None
    """The share of the target's bytes, from 0 to 1."""

    max_rewrite_bytes: int | None = None
    """Bytes of files."""

    def __post_init__(self) -> None:
        fraction: Any = self.max_rewrite_fraction
        if fraction is not None and not (_is_number(fraction) and 0 <= fraction <= 1):
            raise InvalidArgumentError(
                f"max_rewrite_fraction must be a number from 0 to 1, got {fraction!r}.\n"
                "Hint: 0.25 lets a merge rewrite a quarter of the bytes.",
                argument="max_rewrite_fraction",
            )
        most: Any = self.max_rewrite_bytes
        whole = isinstance(most, Integral) and not isinstance(most, bool)
        if most is not None and not (whole and most >= 0):
            raise InvalidArgumentError(
                f"max_rewrite_bytes must be a whole number of bytes, 0 or more, got {most!r}.",
                argument="max_rewrite_bytes",
            )

    def check(self, plan: MergePlan) -> None:
        """Refuse a plan whose affected files are too many bytes.

        They are an upper bound: a file in which no value changes is not rewritten.

        Raises:
            RewriteLimitError: Naming the limit.
        """
        affected = plan.with_decision("affected")
        needed = sum(file.bytes for file in affected)
        most = self.max_rewrite_bytes
        if most is not None and needed > most:
            raise RewriteLimitError.exceeded(
                "max_rewrite_bytes", f"{most:,} bytes", f"{needed:,} bytes", len(affected)
            )
        share = needed / max(1, sum(file.bytes for file in plan.files))
        if self.max_rewrite_fraction is not None and share > self.max_rewrite_fraction:
            raise RewriteLimitError.exceeded(
                "max_rewrite_fraction",
                f"{self.max_rewrite_fraction:g} of it",
                f"{share:.3g} of the target's bytes",
                len(affected),
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


@dataclass(frozen=True)
class MergeRequest:
    """A merge, as the caller wants it."""

    strategy: MergeStrategy
    key_columns: tuple[str, ...]
    partition_columns: tuple[str, ...] | None = None
    files: FileOptions = field(default_factory=FileOptions)
    schema: pa.Schema | None = None
    null_keys: NullPolicy = "error"
    duplicate_keys: DuplicatePolicy = "error"
    order_by: tuple[str, ...] = ()
    trust_partitions: bool = False
    allow_empty: bool = False
    progress: Progress | bool | None = None
    rewrite_all: bool = False
    """Whether files with rows are written anew even if no value changes; not by ``insert``."""

    only_plans: bool = False
    """Whether nothing will be written, so that an engine need not prepare for it."""

    limits: RewriteLimits = RewriteLimits()
    """How much may be rewritten; a plan is never refused for it."""

    def __post_init__(self) -> None:
        check_names("key_columns", self.key_columns)
        _check_schema(self.schema)
        _check_progress(self.progress)
        for name in ("trust_partitions", "allow_empty"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidArgumentError(
                    f"{name} must be True or False, got {getattr(self, name)!r}."
                )
        if self.null_keys not in _NULL_POLICIES:
            raise InvalidArgumentError.choice("null_keys", self.null_keys, _NULL_POLICIES)
        if self.duplicate_keys not in _DUPLICATE_POLICIES:
            raise InvalidArgumentError.choice(
                "duplicate_keys", self.duplicate_keys, _DUPLICATE_POLICIES
            )

    @property
    def duplicates(self) -> DuplicatePolicy:
        """What happens to a source key that occurs twice: ``deduplicate`` keeps the last row."""
        if self.strategy is MergeStrategy.DEDUPLICATE and self.duplicate_keys == "error":
            return "last"
        return self.duplicate_keys

    @property
    def inserts(self) -> bool:
        """Whether unknown keys are appended."""
        return self.strategy is not MergeStrategy.UPDATE

    @property
    def updates(self) -> bool:
        """Whether rows of known keys are replaced."""
        return self.strategy is not MergeStrategy.INSERT

    @property
    def deletes(self) -> bool:
        """Whether rows whose key the source does not have are deleted."""
        return self.strategy is MergeStrategy.FULL_MERGE


@dataclass(frozen=True)
class WriteRequest:
    """A write, as the caller wants it."""

    mode: WriteMode
    partition_columns: tuple[str, ...] | None = None
    files: FileOptions = field(default_factory=FileOptions)
    schema: pa.Schema | None = None
    progress: Progress | bool | None = None

    def __post_init__(self) -> None:
        if self.mode not in _WRITE_MODES:
            raise InvalidArgumentError.choice("mode", self.mode, _WRITE_MODES)
        _check_schema(self.schema)
        _check_progress(self.progress)


def _check_schema(schema: object) -> None:
    if schema is not None and not isinstance(schema, pa.Schema):
        raise InvalidArgumentError(
            f"schema must be a pyarrow.Schema, got {schema!r}.\n"
            'Hint: pass pyarrow.schema([("id", pyarrow.int64()), ...]).'
        )


def _check_progress(progress: object) -> None:
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise InvalidArgumentError(
            f"progress must be True or a function of phase, done and total, got {progress!r}."
        )


def check_write_or_merge(
    mode: str,
    strategy: str | None,
    rewrite_mode: str,
    key_columns: str | Sequence[str] | None,
    order_by: str | Sequence[str] | None,
) -> None:
    """Check the arguments that say whether data is written or merged.

    Raises:
        InvalidArgumentError: If they contradict each other, before any look at columns.
    """
    if strategy is not None:
        validate_rewrite_mode_compatibility(strategy, rewrite_mode)
    if mode not in _WRITE_MODES:
        raise InvalidArgumentError.choice("mode", mode, _WRITE_MODES)
    if strategy is not None and mode != "append":
        raise InvalidArgumentError(
            f"mode={mode!r} replaces all data, but strategy={strategy!r} merges into it.\n"
            "Hint: leave out one of them."
        )
    only_merging = {"key_columns": key_columns, "order_by": order_by}
    given = [name for name, value in only_merging.items() if value is not None]
    given += ["rewrite_mode"] if rewrite_mode != "full" else []
    if strategy is None and given:
        raise InvalidArgumentError(
            f"without a strategy there is no use for {' and '.join(given)}.\n"
            'Hint: pass a strategy, for example "upsert", to merge; to write, leave out the rest.'
        )


def one_spelling(
    partition_columns: str | Sequence[str] | None, partition_by: str | Sequence[str] | None
) -> tuple[str, ...] | None:
    """The partition columns, which may be given under two names.

    Raises:
        InvalidArgumentError: If both are given and differ.
    """
    both = (partition_columns, partition_by)
    given = [as_names(names) for names in both if names is not None]
    if len(given) == 2 and list(given[0]) != list(given[1]):
        raise InvalidArgumentError(
            f"partition_columns is {list(given[0])!r} and partition_by is {list(given[1])!r}.\n"
            "Hint: they are two names for one thing; pass one of them."
        )
    return given[0] if given else None


# --- What a plan keeps ---

_of_others: list[Callable[[], None]] = []


class PlannedMerge:
    """A merge that was planned and can be executed once, by the same engine.

    Args:
        engine: The name of the engine that took the source.
        storage: The dataset.
        request: The options.
        source: The source, as the engine took it.
        stage: The staging directory that it may be in.
        release: Lets go of the staging directory; called at the latest when the plan is gone.
    """

    def __init__(
        self,
        engine: str,
        storage: Storage,
        request: MergeRequest,
        source: Source,
        stage: OpenStage,
        release: Callable[[], None],
    ) -> None:
        self.engine = engine
        self.storage = storage
        self.request = request
        self.source = source
        self.stage = stage
        self._release = weakref.finalize(self, _in_process, os.getpid(), release)

    @property
    def is_released(self) -> bool:
        """Whether the source is gone, because the plan was executed."""
        return not self._release.alive

    def release(self) -> None:
        """Let go of the source."""
        self._release()
        del self.source, self.stage

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # a copy of a plan executes the same merge

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        # A source may be a connection or files of this process: a plan travels without it.
        return _elsewhere, ()


def _in_process(process: int, release: Callable[[], None]) -> None:
    """Let go only where the plan was made: a forked child has no say about its source."""
    if os.getpid() == process:
        release()
    else:
        _of_others.append(release)  # if it were forgotten, it would clean up all the same


def _elsewhere() -> None:
    """What a plan keeps in another process: nothing."""


def planned_merge(plan: MergePlan, engine: str | None = None) -> PlannedMerge:
    """What a plan keeps.

    Args:
        plan: The plan.
        engine: The name of the engine that is to execute it; None for its own.

    Raises:
        InvalidArgumentError: If it cannot be executed: it was executed already, or comes from
            another process or another engine.
    """
    kept: PlannedMerge | None = getattr(plan, "origin", None)
    if kept is None:
        raise InvalidArgumentError(
            f"{type(plan).__name__} cannot be executed: it does not know its source.\n"
            "Hint: pass what plan_merge() returned, in the same process; a plan that was stored or "
            "sent travels without its source."
        )
    if kept.is_released:
        raise InvalidArgumentError(
            "the plan was executed already, and has let go of its source.\nHint: plan again."
        )
    if engine is not None and kept.engine != engine:
        raise InvalidArgumentError(
            f"the plan was made by the engine {kept.engine!r}, and {engine!r} cannot execute it.\n"
            "Hint: call execute() of the engine that made the plan, or fsspeckit.execute(plan)."
        )
    return kept
