"""Expectations on a data frame: Spark evaluates the predicates, on rows that it computes once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from pyspark.errors import PySparkException
from pyspark.sql.types import BooleanType

from fsspeckit.core.expectations import (
    MAX_SAMPLES,
    QUARANTINE_COLUMNS,
    Violations,
    check_columns_are_free,
    with_action,
)
from fsspeckit.datasets.batches import CheckedBatch, quarantine_values
from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame

    from fsspeckit.core.expectations import Action, Expectation
    from fsspeckit.datasets.spark.session import Jobs
    from fsspeckit.storage import Transaction

__all__ = ["FrameGate", "check_predicates", "violated"]

_VIOLATED = "__fsspeckit_violated"


@dataclass
class FrameGate:
    """Applies expectations to the data frame of a batch; a context manager that keeps its rows.

    The rows are computed once and kept by Spark until the batch is committed, because a stream
    computes them again for every job.
    """

    jobs: Jobs
    """Where jobs run."""

    expectations: Sequence[Expectation]
    transaction: Transaction | None
    _kept: DataFrame | None = field(default=None, init=False)

    @property
    def functions(self) -> Any:
        """Spark's functions on columns, for the kind of session."""
        return self.jobs.functions

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._kept is not None:
            self._kept.unpersist()

    def __call__(self, frame: DataFrame) -> CheckedBatch:
        """Return the rows of a batch after the gates.

        Raises:
            ExpectationError: If a row violates an expectation whose action is ``fail``.
            InvalidArgumentError: If a predicate does not fit the columns.
        """
        if with_action(self.expectations, "quarantine"):
            check_columns_are_free(frame.columns)
        try:
            marked = self._kept = self._mark(frame).persist()
            violations, counts = self._count(marked)
        except PySparkException:
            check_predicates(self.functions, frame, self.expectations)
            raise
        self._check(marked, violations)
        rows = marked
        if counts != (0, 0):
            rows = marked.where(~(self._violates("drop") | self._violates("quarantine")))
        apart = self._set_apart(marked) if counts[1] else None
        return CheckedBatch.of(
            rows.drop(_VIOLATED), apart, self.expectations, violations, counts=counts
        )

    def _mark(self, frame: DataFrame) -> DataFrame:
        """Return the rows with the names of all expectations that each violates."""
        sql = self.functions
        names = (
            sql.when(violated(sql, each.predicate), sql.lit(each.name))
            for each in self.expectations
        )
        return frame.withColumn(_VIOLATED, sql.array_compact(sql.array(*names)))

    def _count(self, marked: DataFrame) -> tuple[dict[str, int], tuple[int, int]]:
        """Return violations by expectation, and how many rows are dropped and quarantined."""
        sql = self.functions
        is_quarantined = self._violates("quarantine")
        each = (
            sql.array_contains(sql.col(_VIOLATED), sql.lit(one.name)) for one in self.expectations
        )
        rows = (*each, self._violates("drop") & ~is_quarantined, is_quarantined)
        counts_of = (sql.count_if(one).alias(f"count_{number}") for number, one in enumerate(rows))
        (found,) = self.jobs.collect_rows("count violations", marked.agg(*counts_of))
        *counts, dropped, quarantined = map(int, found)
        names = (one.name for one in self.expectations)
        return dict(zip(names, counts, strict=True)), (dropped, quarantined)

    def _check(self, marked: DataFrame, violations: dict[str, int]) -> None:
        failed = with_action(self.expectations, "fail")
        if any(violations[each.name] for each in failed):
            rows = marked.where(self._violates("fail")).drop(_VIOLATED).limit(MAX_SAMPLES)
            found = self.jobs.collect_rows("sample violations", rows)
            samples = [row.asDict(recursive=True) for row in found]
            Violations(violations).check(self.expectations, samples)

    def _violates(self, action: Action) -> Column:
        """Return whether a row violates an expectation that has an action."""
        sql = self.functions
        names = [sql.lit(each.name) for each in with_action(self.expectations, action)]
        if not names:
            return _as_column(sql.lit(False))
        return _as_column(sql.arrays_overlap(sql.col(_VIOLATED), sql.array(*names)))

    def _set_apart(self, marked: DataFrame) -> DataFrame:
        sql = self.functions
        apart = marked.where(self._violates("quarantine"))
        apart = apart.withColumnRenamed(_VIOLATED, QUARANTINE_COLUMNS.names[0])
        kinds = {"quarantine_application": "string", "quarantine_batch": "bigint"}
        for name, value in quarantine_values(self.transaction).items():
            literal = sql.lit(value.as_py()).cast(kinds.get(name, "timestamp"))
            apart = apart.withColumn(name, literal)
        return apart


def violated(functions: Any, predicate: str) -> Column:
    """Return whether a row violates an expectation: its predicate is false or NULL."""
    is_true = functions.coalesce(functions.expr(predicate), functions.lit(False))
    return _as_column(~is_true)


def _as_column(value: Any) -> Column:
    column: Column = value
    return column


def check_predicates(functions: Any, frame: DataFrame, expectations: Iterable[Expectation]) -> None:
    """Refuse a predicate that Spark cannot evaluate on the columns of a frame.

    Raises:
        InvalidArgumentError: Naming the expectation.
    """
    for each in expectations:
        try:
            kind = frame.select("*", functions.expr(each.predicate)).schema[-1].dataType
        except PySparkException as error:
            reason = str(error).strip().partition("\n")[0]
            raise InvalidArgumentError(
                f"the expectation {each.name!r} ({each.predicate}) does not fit the columns "
                f"{frame.columns!r}: {reason}",
                argument="expect",
            ) from error
        if not isinstance(kind, BooleanType):
            raise InvalidArgumentError(
                f"the expectation {each.name!r} ({each.predicate}) must be true or false, but is "
                f"of type {kind.simpleString()}.\nHint: compare it, as in amount >= 0.",
                argument="expect",
            )
