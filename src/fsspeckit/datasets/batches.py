"""One batch of a feed as one commit, applied once: quality gates, quarantine, merge, log line.

Whatever runs a feed calls :func:`commit_batch` for each batch. A batch that is repeated, because
its caller died before it could note that the batch is done, leaves the same rows in the dataset and
in quarantine as one that is not.
"""

from __future__ import annotations

import logging
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from fsspeckit.core.conditions import Condition
from fsspeckit.core.expectations import (
    MAX_SAMPLES,
    QUARANTINE_COLUMNS,
    Expectation,
    Violations,
    check_columns_are_free,
    with_action,
)
from fsspeckit.core.merge import MergeResult
from fsspeckit.datasets.pipeline import MergeOptions, WriteOptions
from fsspeckit.display import Card, Displayed, counted, size
from fsspeckit.errors import (
    Argument,
    InvalidArgumentError,
    SchemaMismatchError,
    TransactionResetError,
)
from fsspeckit.storage import find_transaction, list_snapshot, without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from fsspeckit.datasets.base import DatasetIO
    from fsspeckit.datasets.pipeline import WriteDatasetResult
    from fsspeckit.display import Phases
    from fsspeckit.storage import Root, Skipped, Storage, Transaction

__all__ = [
    "BatchCall",
    "BatchResult",
    "BatchTarget",
    "CheckedBatch",
    "check_arrow",
    "commit_batch",
    "quarantine_values",
]

BatchCall = Literal["merge", "apply_changes", "append", "overwrite", "overwrite_partitions"]
_CALLS: tuple[str, ...] = get_args(BatchCall)

_FILE = re.compile("^file:/+")
_SET_APART = ("dropped", "quarantined")

logger = logging.getLogger("fsspeckit")


@dataclass(frozen=True)
class BatchTarget:
    """What a sink does with every batch; picklable, and checked when it is made."""

    path: str
    """The dataset."""

    call: BatchCall
    """How rows get into it."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Those of ``merge``, ``apply_changes`` or ``write_dataset``, without data, path, filesystem,
    transaction and progress."""

    expectations: tuple[Expectation, ...] = ()
    """What must be true of every row."""

    quarantine: str | None = None
    """The dataset of rows that are set apart."""

    def __post_init__(self) -> None:
        if self.call not in _CALLS:
            raise InvalidArgumentError.choice("call", self.call, _CALLS)
        self._check_paths()
        self.options()
        column: Any = self.arguments.get("apply_as_deletes")
        if type(column).__module__.startswith("pyspark."):
            raise InvalidArgumentError(
                f"apply_as_deletes of a sink must be SQL text, got {column!r}: a Column belongs "
                "to one session.\nHint: write the condition as SQL.",
                argument="apply_as_deletes",
            )

    def _check_paths(self) -> None:
        for name in ("path", "quarantine"):
            given: Any = getattr(self, name)
            if not (isinstance(given, str) and given) and (name == "path" or given is not None):
                raise InvalidArgumentError(
                    f"{name} must be the path or URL of a dataset, got {given!r}.", argument=name
                )
        is_needed = bool(with_action(self.expectations, "quarantine"))
        if is_needed and self.quarantine is None:
            raise InvalidArgumentError(
                'an expectation has the action "quarantine", but there is no dataset for such '
                "rows.\nHint: pass quarantine=, a path beside the dataset.",
                argument="quarantine",
            )
        if self.quarantine is None:
            return
        if not is_needed:
            raise InvalidArgumentError(
                f"quarantine {self.quarantine!r} has no use: no expectation has the action "
                '"quarantine".\nHint: pass expect= and on_violation="quarantine", or leave it out.',
                argument="quarantine",
                mentions=(Argument("on_violation", ("quarantine",)),),
            )
        one, other = (_FILE.sub("/", path) for path in (self.path, self.quarantine))
        if _overlap(one, other):
            raise self.not_apart()

    def not_apart(self) -> InvalidArgumentError:
        """Return the error for a quarantine that is not beside the dataset."""
        dataset, quarantine = map(without_credentials, (self.path, str(self.quarantine)))
        return InvalidArgumentError(
            f"quarantine {quarantine!r} and the dataset {dataset!r} must not contain "
            "each other.\nHint: pass a path beside the dataset.",
            argument="quarantine",
        )

    def options(
        self, transaction: Transaction | None = None, counts: Mapping[str, int] | None = None
    ) -> MergeOptions | WriteOptions:
        """Return the options of the call.

        Args:
            transaction: Which batch of which application it is.
            counts: Rows that were set apart before, for the commit record.
        """
        given: dict[str, Any] = {
            **self.arguments,
            "transaction": transaction,
            "extra_counts": dict(counts or {}),
        }
        if self.call == "merge":
            return MergeOptions.of(**given)
        if self.call == "apply_changes":
            return MergeOptions.of_changes(**given)
        return WriteOptions.of(mode=self.call, **given)


def _overlap(one: str, other: str) -> bool:
    """Whether two paths are equal, or one contains the other."""
    first, second = (path.rstrip("/") + "/" for path in (one, other))
    return first.startswith(second) or second.startswith(first)


@dataclass(frozen=True)
class CheckedBatch:
    """The rows of a batch after the gates."""

    rows: Any
    """Those that go into the dataset, in whatever form the engine takes."""

    quarantined: Any = None
    """Those that are set apart, with the columns of the quarantine; None if there are none."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """``dropped`` and ``quarantined``, each if an expectation has such an action."""

    violations: Mapping[str, int] = field(default_factory=dict)
    """By the name of the expectation: how many rows violate it."""

    @classmethod
    def of(
        cls,
        rows: Any,
        quarantined: Any,
        expectations: Sequence[Expectation],
        violations: Mapping[str, int],
        *,
        counts: tuple[int, int],
    ) -> Self:
        """Make it of what a gate found; ``counts`` are the dropped and the quarantined rows."""
        named = {"drop": ("dropped", counts[0]), "quarantine": ("quarantined", counts[1])}
        used = {
            name: count for action, (name, count) in named.items() if _has(expectations, action)
        }
        return cls(rows, quarantined if counts[1] else None, used, violations)


def _has(expectations: Sequence[Expectation], action: str) -> bool:
    return any(each.action == action for each in expectations)


@dataclass(frozen=True)
class BatchResult(Displayed):
    """What became of a batch; ``str()`` is its log line."""

    path: str
    """The dataset."""

    application: str | None
    """Whose batch it is: the query of a stream, or the name that was given."""

    batch: int | None
    """Its number."""

    result: MergeResult | WriteDatasetResult
    """What the merge or the write did."""

    counts: Mapping[str, int]
    """Rows that were ``dropped`` or ``quarantined``; empty if the batch was skipped."""

    violations: Mapping[str, int]
    """By the name of the expectation: how many rows violate it; empty if the batch was skipped."""

    seconds: float
    """How long all of it took."""

    @property
    def skipped(self) -> bool:
        """Whether the batch was committed already, so that nothing was done."""
        return bool(self.result.metrics.get("commit", {}).get("skipped"))

    def __str__(self) -> str:
        return f"{self._what()}: {self._outcome()}, {self.seconds:.1f} s"

    def _what(self) -> str:
        of_feed = (
            "rows" if self.application is None else f"batch {self.batch} of {self.application}"
        )
        return f"{of_feed} into {without_credentials(self.path)}"

    def _outcome(self) -> str:
        number = self.result.metrics.get("commit", {}).get("number")
        if self.skipped:
            return f"skipped: committed already; commit {number}"
        files = _written_files(self.result)
        rewritten = f"{counted(files[0], 'file')} rewritten, " if files[0] else ""
        written = f"{rewritten}{size(files[1])} written"
        return f"{self._row_counts()}; {written}; commit {number}"

    def _row_counts(self) -> str:
        done = self.result
        if isinstance(done, MergeResult):
            always = {"inserted": done.inserted, "updated": done.updated, "deleted": done.deleted}
            others = {"moved": done.moved, "late": done.late, "not found": done.not_found}
        else:
            always, others = {"inserted": done.total_rows}, {}
        violated = {f"violate {name!r}": count for name, count in self.violations.items()}
        others = {**others, **self.counts, **violated}
        named = {**always, **{name: count for name, count in others.items() if count}}
        return ", ".join(f"{count:,} {name}" for name, count in named.items())

    def _card(self) -> Card:
        return Card(str(self), notes=tuple(self.result.metrics.get("commit", {}).get("notes", ())))


def _written_files(result: MergeResult | WriteDatasetResult) -> tuple[int, int]:
    """Return how many files were rewritten, and the bytes of all new files."""
    if isinstance(result, MergeResult):
        new = [file for file in result.files if file.operation != "preserved"]
        return len(result.rewritten_files), sum(file.size_bytes or 0 for file in new)
    return 0, sum(file.size_bytes or 0 for file in result.files)


def commit_batch(
    io: DatasetIO,
    target: BatchTarget,
    rows: Any,
    check: Callable[[Any], CheckedBatch] | None,
    transaction: Transaction | None,
    *,
    count_rows: Callable[[], int] | None = None,
) -> BatchResult:
    """Apply one batch, once.

    A batch that is committed already is skipped; its rows are only counted. Rows in quarantine are
    committed first. If the caller dies between both commits, the batch is repeated, and what
    it sets apart then replaces what it set apart before.

    Args:
        io: The engine.
        target: What to do with the batch.
        rows: Its rows, in whatever form the engine takes.
        check: Applies the expectations of the target to the rows, if it has any, and returns them
            with the columns of the quarantine; raises ExpectationError to refuse the batch.
        transaction: Which batch of which application it is. If it has a run, as the batches of a
            stream, only the last batch can be repeated: an older one is an error. None for rows
            that are not a batch of anything, which are applied whenever this is called.
        count_rows: Counts the rows, for a warning if a batch that is skipped has not as many as the
            one that was committed under its number.

    Raises:
        ExpectationError: If a row must not be as it is; nothing was changed.
        TransactionResetError: If the numbers of the batches have started again, or have gone back.
        FsspeckitError: As the call that the target names.
    """
    started = time.monotonic()
    storage = io._storage(target.path, None)
    engine = io._engine.name
    with storage.observe("commit_batch", engine=engine, transaction=transaction) as phases:
        skipped = _find_committed(storage, transaction)
        checked = CheckedBatch(rows)
        if skipped is not None:
            _compare_rows(target, skipped, count_rows)
        else:
            checked = _set_apart(io, target, rows, check, transaction, phases)
        # A transaction that is committed is found again, and its result on record is returned.
        result = io._run(checked.rows, target.path, target.options(transaction, checked.counts))
        phases.facts.update({f"rows_{name}": count for name, count in checked.counts.items()})
        phases.facts["commit"] = result.metrics.get("commit", {}).get("number")
    done = BatchResult(
        target.path,
        None if transaction is None else transaction.application,
        None if transaction is None else transaction.version,
        result,
        checked.counts,
        checked.violations,
        time.monotonic() - started,
    )
    logger.info("%s", done, extra={"event": "batch", **phases.fields()})
    return done


def _set_apart(
    io: DatasetIO,
    target: BatchTarget,
    rows: Any,
    check: Callable[[Any], CheckedBatch] | None,
    transaction: Transaction | None,
    phases: Phases,
) -> CheckedBatch:
    """Apply the expectations to a batch, and commit what is quarantined."""
    checked = CheckedBatch(rows)
    if target.expectations and check is not None:
        with phases.timed("gate") as facts:
            checked = check(rows)
            facts.update({f"rows_{name}": count for name, count in checked.counts.items()})
    if target.quarantine is not None:
        with phases.timed("quarantine"):
            _quarantine(io, target, checked, transaction)
    return checked


def _find_committed(storage: Storage, transaction: Transaction | None) -> Skipped | None:
    """Return why a batch is to be skipped.

    A stream repeats its last batch only. An older one comes from an old copy of a checkpoint, whose
    next batches have other rows under numbers that are committed.
    """
    skipped = find_transaction(storage, transaction)
    if skipped is None or transaction is None or transaction.run is None:
        return skipped
    recorded = skipped.recorded
    if transaction.version < recorded.version:
        raise TransactionResetError.found(
            transaction.application,
            transaction.version,
            transaction.run,
            (recorded.version, recorded.commit, recorded.run),
        )
    return skipped


def _compare_rows(
    target: BatchTarget, skipped: Skipped, count_rows: Callable[[], int] | None
) -> None:
    """Warn if a batch that is skipped cannot be the one that is committed.

    It is not an error: a stream that joins a table, or samples, need not repeat a batch exactly.
    """
    facts = skipped.facts
    if count_rows is None or facts is None or facts.source_rows is None:
        return
    committed = facts.source_rows + sum(facts.counts.get(name, 0) for name in _SET_APART)
    if (now := count_rows()) != committed:
        logger.warning(
            "batch %s of %s into %s is skipped, because it is committed, but it was committed "
            "with %s and has %s now. If the checkpoint is an old copy, rows are missing: start "
            "with a new checkpoint.",
            skipped.transaction.version,
            skipped.transaction.application,
            without_credentials(target.path),
            counted(committed, "row"),
            counted(now, "row"),
            extra={
                "event": "batch differs",
                "dataset": without_credentials(target.path),
                "transaction": str(skipped.transaction),
                "rows_committed": committed,
                "rows": now,
            },
        )


# The quarantine


def _quarantine(
    io: DatasetIO, target: BatchTarget, checked: CheckedBatch, transaction: Transaction | None
) -> None:
    """Append the rows that are set apart to their dataset, instead of those of an earlier try."""
    assert target.quarantine is not None
    beside = io._with_own_control_dir()
    storage = beside._storage(target.quarantine, None)
    dataset = io._storage(target.path, None)
    _check_apart(target, dataset, storage.root)
    purpose = f"quarantine of {dataset.root.path}"
    if (skipped := _find_in_quarantine(storage, target, transaction)) is not None:
        if skipped.facts is not None and skipped.facts.strategy != purpose:
            raise InvalidArgumentError(
                f"the quarantine {without_credentials(target.quarantine)!r} has rows of batch "
                f"{skipped.transaction} already, by {skipped.facts.strategy!r}.\n"
                "Hint: give each dataset a quarantine of its own.",
                argument="quarantine",
            )
        # The rows that were set apart then need not be those of now: another predicate may be the
        # very reason why the batch is repeated.
        if list_snapshot(storage)[0].listing.files:
            beside.delete(None, target.quarantine, where=_rows_of(skipped.transaction))
        transaction = None
    if checked.quarantined is not None:
        options = WriteOptions.of(
            mode="append",
            transaction=transaction,
            purpose=purpose,
            schema_changes=target.arguments.get("schema_changes", "refuse"),
        )
        with _about_quarantine(target.quarantine):
            beside._run(checked.quarantined, target.quarantine, options)


def _check_apart(target: BatchTarget, dataset: Storage, quarantine: Root) -> None:
    """Refuse a quarantine that is the dataset under another name, as a link is.

    Its commit would have the transaction of the batch, whose rows would then be skipped.
    """
    if dataset.root.filesystem == quarantine.filesystem and any(
        _overlap(path, quarantine.path) for path in (dataset.root.path, dataset.control.path)
    ):
        raise target.not_apart()


@contextmanager
def _about_quarantine(path: str) -> Iterator[None]:
    """Say of an error that it is about the quarantine, and not about the dataset."""
    try:
        yield
    except (SchemaMismatchError, TransactionResetError) as error:
        error.add_note(f"This is about the quarantine {without_credentials(path)!r}.")
        raise


def _find_in_quarantine(
    storage: Storage, target: BatchTarget, transaction: Transaction | None
) -> Skipped | None:
    assert target.quarantine is not None
    with _about_quarantine(target.quarantine):
        return find_transaction(storage, transaction)


def _rows_of(transaction: Transaction) -> str:
    """Return the condition of the rows of a batch in quarantine."""
    application = transaction.application.replace("\\", "\\\\").replace("'", "\\'")
    return f"quarantine_batch = {transaction.version} AND quarantine_application = '{application}'"


def quarantine_values(transaction: Transaction | None) -> dict[str, Any]:
    """Return the values of the columns of the quarantine that all rows of a batch share."""
    values = {
        "quarantine_application": None if transaction is None else transaction.application,
        "quarantine_batch": None if transaction is None else transaction.version,
        "quarantine_time": datetime.now(UTC),
    }
    return {
        name: pa.scalar(value, QUARANTINE_COLUMNS.field(name).type)
        for name, value in values.items()
    }


# The gates of engines that work on Arrow


def check_arrow(
    data: pa.Table | ds.Dataset,
    expectations: Sequence[Expectation],
    transaction: Transaction | None = None,
) -> CheckedBatch:
    """Apply expectations to Arrow rows; predicates are :doc:`conditions </concepts/conditions>`.

    Args:
        data: A table, or a dataset whose rows are read twice and are never all in memory, except
            those that are set apart.
        expectations: What must be true of every row.
        transaction: Which batch of which application it is, for the rows in quarantine.

    Raises:
        ExpectationError: If a row violates an expectation whose action is ``fail``.
        InvalidArgumentError: If a predicate cannot be understood or does not fit the columns.
    """
    if not expectations:
        return CheckedBatch(data)
    gate = _ArrowGate.of(expectations, data.schema)
    values = quarantine_values(transaction)
    violations = dict.fromkeys(gate.names, 0)
    samples: list[dict[str, Any]] = []
    quarantined: list[pa.Table] = []
    dropped = 0
    for table in _tables(data):
        verdict = gate.judge(table)
        for name, count in zip(gate.names, verdict.violated.sum(axis=0).tolist(), strict=True):
            violations[name] += count
        failed = np.flatnonzero(verdict.fails)[: MAX_SAMPLES - len(samples)]
        samples += table.take(failed).to_pylist()
        dropped += int(verdict.is_dropped.sum())
        if verdict.is_quarantined.any():
            quarantined.append(gate.set_apart(table, verdict, values))
    Violations(violations).check(expectations, samples)
    apart = pa.concat_tables(quarantined) if quarantined else None
    counts = (dropped, 0 if apart is None else apart.num_rows)
    rows: Any = data if counts == (0, 0) else _kept_rows(data, gate)
    return CheckedBatch.of(rows, apart, expectations, violations, counts=counts)


@dataclass(frozen=True)
class _Verdict:
    """What expectations say about the rows of a table, as arrays with an element for each."""

    violated: NDArray[np.bool_]
    """By row and expectation."""

    fails: NDArray[np.bool_]
    is_quarantined: NDArray[np.bool_]
    is_dropped: NDArray[np.bool_]

    @property
    def is_kept(self) -> NDArray[np.bool_]:
        kept: NDArray[np.bool_] = ~(self.is_quarantined | self.is_dropped)
        return kept


@dataclass(frozen=True)
class _ArrowGate:
    """Expectations that are ready for rows of one schema."""

    expectations: tuple[Expectation, ...]
    conditions: tuple[Condition, ...]

    @classmethod
    def of(cls, expectations: Sequence[Expectation], schema: pa.Schema) -> Self:
        if with_action(expectations, "quarantine"):
            check_columns_are_free(schema.names)
        conditions = (
            Condition.of(each.predicate, schema, f"expect[{each.name!r}]") for each in expectations
        )
        return cls(tuple(expectations), tuple(conditions))

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.expectations]

    def judge(self, table: pa.Table) -> _Verdict:
        true = [
            condition.mask(table).to_numpy(zero_copy_only=False) for condition in self.conditions
        ]
        violated = ~np.column_stack(true)
        quarantined = self._any(violated, "quarantine")
        return _Verdict(
            violated,
            self._any(violated, "fail"),
            quarantined,
            self._any(violated, "drop") & ~quarantined,
        )

    def _any(self, violated: NDArray[np.bool_], action: str) -> NDArray[np.bool_]:
        """Return which rows violate an expectation that has an action."""
        wanted = [each.action == action for each in self.expectations]
        return np.asarray(violated[:, wanted].any(axis=1))

    def set_apart(
        self, table: pa.Table, verdict: _Verdict, values: Mapping[str, pa.Scalar]
    ) -> pa.Table:
        """Return the rows in quarantine, with the names of all expectations that they violate."""
        apart = table.filter(pa.array(verdict.is_quarantined))
        sets, which = np.unique(
            verdict.violated[verdict.is_quarantined], axis=0, return_inverse=True
        )
        named = [
            [name for name, is_violated in zip(self.names, one, strict=True) if is_violated]
            for one in sets
        ]
        first = QUARANTINE_COLUMNS.field("quarantine_reasons")
        reasons = pa.array(named, first.type).take(pa.array(which.ravel()))
        apart = apart.append_column(first, reasons)
        for name, value in values.items():
            column = pa.repeat(value, apart.num_rows)
            apart = apart.append_column(QUARANTINE_COLUMNS.field(name), column)
        return apart


def _tables(data: pa.Table | ds.Dataset) -> Iterator[pa.Table]:
    if isinstance(data, pa.Table):
        yield data
        return
    for batch in data.to_batches():
        yield pa.Table.from_batches([batch])


def _kept_rows(data: pa.Table | ds.Dataset, gate: _ArrowGate) -> Any:
    kept = (table.filter(pa.array(gate.judge(table).is_kept)) for table in _tables(data))
    if isinstance(data, pa.Table):
        return next(kept)
    batches = (batch for table in kept for batch in table.to_batches())
    return pa.RecordBatchReader.from_batches(data.schema, batches)
