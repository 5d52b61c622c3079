"""The contract of an engine: small questions about data. Decisions are made elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from fsspeckit.display import report_nothing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from fsspeckit.core.conditions import Condition
    from fsspeckit.core.keys import KeyColumn, SourceKeys
    from fsspeckit.core.matching import DuplicateRules
    from fsspeckit.core.planning import ConditionVerdict, FileFooter, MergePlan, Target
    from fsspeckit.core.rewrite import NewFile, NewFiles, Rewritten, RowRules
    from fsspeckit.datasets.pipeline import MergeOptions, Progress
    from fsspeckit.storage import DataFile, Root, Stage, StagedFile

__all__ = [
    "Engine",
    "FileMatch",
    "KeysT",
    "Matches",
    "OpenStage",
    "PositionsT",
    "Source",
    "SourceT",
]

OpenStage = Callable[[], "Stage"]
"""Gives the staging directory, which is created when it is first needed."""


class Source(Protocol):
    """A source that an engine has taken: materialised, so that reading it twice is the same."""

    schema: pa.Schema
    num_rows: int

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows."""
        ...


SourceT = TypeVar("SourceT", bound=Source)
"""What an engine makes of the data that it takes."""

KeysT = TypeVar("KeysT", bound="SourceKeys")
"""What an engine knows of the keys of its source."""

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

PositionsT = TypeVar("PositionsT")
"""How an engine says which target rows match which source rows."""


@dataclass(frozen=True)
class FileMatch:
    """What the key scan found in one file."""

    rows: int
    """Target rows that have a source key."""

    row_groups: tuple[int, ...]
    """The row groups they are in."""


@dataclass(frozen=True)
class Matches(Generic[PositionsT]):
    """What the key scan found, as far as decisions need it."""

    files: Mapping[str, FileMatch]
    """By canonical path, each file that was scanned."""

    unmatched: int
    """Source rows whose key the target does not have."""

    moved: int
    """Source keys that the target has in another partition."""

    moved_samples: Sequence[tuple[Any, ...]]
    positions: PositionsT = field(repr=False)
    """Which target rows match which source rows; only the engine itself reads it."""

    metrics: Mapping[str, Any] = field(default_factory=dict)
    """What the engine adds to the metrics of the merge."""


class Engine(Protocol[SourceT, KeysT, PositionsT]):
    """What differs between engines; each has its own kinds of source, keys and positions.

    ``progress`` is called in the caller's thread while a phase runs, with files or tasks of which
    there are several: ``match`` and ``rewrite`` on every engine, and whatever Spark runs as jobs
    except reading footers.
    """

    name: str
    """As in the registry, the module and the command line."""

    def take(
        self,
        data: Any,
        stage: OpenStage,
        schema: pa.Schema | None,
        *,
        keep: bool = False,
        progress: Progress = report_nothing,
    ) -> SourceT:
        """Take what the caller passed as data, in the schema that it asks for; evaluate it once.

        If ``keep``, the source must stay what it is now: the caller gets control back, and may
        change the memory of the data, before it is used.

        Raises:
            InvalidArgumentError: If it is of a kind that the engine does not know.
            SchemaMismatchError: If it does not fit the schema that the caller gave.
        """
        ...

    def transform(
        self,
        source: SourceT,
        task: Callable[[pa.Table], pa.Table],
        stage: OpenStage,
        progress: Progress = report_nothing,
    ) -> SourceT:
        """Return what a function makes of the rows of a source, as a source.

        It is called for pieces of any size, in any process, and for a table without rows.
        """
        ...

    def combine(
        self,
        left: SourceT,
        right: SourceT,
        task: Callable[[pa.Table, pa.Table], pa.Table],
        keys: Sequence[KeyColumn],
        stage: OpenStage,
        progress: Progress = report_nothing,
    ) -> SourceT:
        """Return what a function makes of the rows of two sources, as a source.

        It is called for all rows with some keys of both, in any process, and for tables without
        rows.
        """
        ...

    def matched_rows(
        self,
        source: SourceT,
        target: Target,
        matches: Matches[PositionsT],
        schema: pa.Schema,
        stage: OpenStage,
        progress: Progress = report_nothing,
    ) -> SourceT:
        """Return the target rows that match, as a source with the columns of the schema."""
        ...

    def target_rows(self, target: Target, schema: pa.Schema, stage: OpenStage) -> SourceT:
        """Return all rows of a target as a source with the columns of a schema.

        They stay in the files until they are read; no copy is made.
        """
        ...

    def map_items(
        self,
        phase: str,
        task: Callable[[ItemT], ResultT],
        items: Sequence[tuple[ItemT, int]],
        stage: OpenStage,
        progress: Progress = report_nothing,
    ) -> list[ResultT]:
        """Return what a function makes of each item, in their order.

        Items are given with the bytes of data that the function reads. Function, items and results
        are pickled, and an item may be processed twice: a function writes only files with new
        names in the staging directory, and returns these names.
        """
        ...

    def footers(
        self,
        root: Root,
        files: Sequence[DataFile],
        columns: Iterable[str] | None,
        *,
        stage: OpenStage,
    ) -> list[FileFooter]:
        """Read the footers of the target's files, in their order.

        The same as :func:`~fsspeckit.core.planning.footers.read_footers`; an engine may have
        other processes do it.
        """
        ...

    def keys(
        self,
        source: SourceT,
        target: Target,
        options: MergeOptions,
        progress: Progress = report_nothing,
    ) -> KeysT:
        """Return the canonical keys of the source, after the NULL and duplicate policies.

        Raises:
            NullKeyError: If a key is NULL and may not be.
            DuplicateKeyError: If a key occurs twice and nothing says which row wins.
        """
        ...

    def match(
        self, source: SourceT, keys: KeysT, target: Target, plan: MergePlan, progress: Progress
    ) -> Matches[PositionsT]:
        """Scan the row groups that the plan leaves, key columns only, for source keys."""
        ...

    def select(
        self,
        source: SourceT,
        target: Target,
        condition: Condition,
        verdicts: Sequence[ConditionVerdict],
        progress: Progress,
    ) -> Matches[PositionsT]:
        """Find the rows that a condition selects, in the row groups that the verdicts leave.

        The source has no rows; it is where an engine that needs one has its staging directory.
        """
        ...

    def duplicates(
        self, source: SourceT, target: Target, rules: DuplicateRules, progress: Progress
    ) -> Matches[PositionsT]:
        """Find the rows of the target that go because another row with their key stays.

        The source has no rows; it is where an engine that needs one has its staging directory.

        Raises:
            DuplicateRowsError: If such rows must be equal in every column, and are not.
        """
        ...

    def rewrite(
        self,
        source: SourceT,
        target: Target,
        matches: Matches[PositionsT],
        files: Mapping[str, StagedFile],
        rules: RowRules,
        progress: Progress,
        finish: Callable[[StagedFile], None],
    ) -> dict[str, Rewritten]:
        """Rewrite the given files with the matching rows replaced or deleted, where that changes.

        ``files`` says by canonical path where each new file goes, ``rules`` what happens to rows.
        ``finish`` may be called in any thread for a file that is written: it waits for the disk
        while other files are being encoded. Files that it is not called for are finished later.
        """
        ...

    def insert(
        self,
        source: SourceT,
        matches: Matches[PositionsT] | None,
        new_files: NewFiles,
        progress: Progress = report_nothing,
        *,
        rewritten: Collection[Rewritten] = (),
        inserts: bool = True,
    ) -> list[NewFile]:
        """Write source rows into new files: all of them, if there are no matches.

        Otherwise those without a match if it ``inserts``, and those that rows of ``rewritten``
        files moved for, one for each such row.
        """
        ...
