"""Conditions that are a ``Column``: Spark evaluates them on the changes, or on rows of the target.

A ``Column`` cannot be sent to tasks of ours, nor be converted to text that says the same. So tasks
read the columns that it needs as a data frame, with the numbers of files and positions, and Spark
filters that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BooleanType

from fsspeckit.core.arrow_compat import cast_values
from fsspeckit.core.changes import EVALUATED
from fsspeckit.core.conditions import EngineCondition
from fsspeckit.core.matching import read_columns, row_group_starts
from fsspeckit.datasets.spark.matching import FoundRows
from fsspeckit.datasets.spark.reading import known_to_spark
from fsspeckit.datasets.spark.rewriting import RowPairs
from fsspeckit.datasets.spark.session import arrow_schema, is_connect
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql.types import StructType

    from fsspeckit.core.conditions import Condition
    from fsspeckit.core.planning import Target
    from fsspeckit.datasets.engine import OpenStage
    from fsspeckit.datasets.pipeline import MergeOptions
    from fsspeckit.datasets.spark.limits import SparkLimits
    from fsspeckit.datasets.spark.progress import PhaseTasks
    from fsspeckit.datasets.spark.session import Jobs
    from fsspeckit.storage import Root

    Rows = NDArray[np.int64]

__all__ = ["ReadRows", "SelectedPositions", "select_rows", "with_own_conditions"]

_FILE, _POSITION = "__fsspeckit_file", "__fsspeckit_position"
_MAX_BATCH_ROWS = 65_536
_MAX_TEXT = 200
_ALL_COLUMNS = ("*", "unresolvedstar", "unresolvedregex")
"""What Spark prints where a condition reads columns that it does not name."""


def with_own_conditions(jobs: Jobs, data: Any, options: MergeOptions) -> tuple[Any, MergeOptions]:
    """Return data and options in which no condition is a ``Column``.

    Raises:
        InvalidArgumentError: If the ``Column`` does not fit the data.
    """
    if isinstance(options.where, Column):
        column = options.where
        _check_session(jobs, column, "where")
        needed = partial(needed_columns, jobs, column)
        return data, replace(options, where=EngineCondition(_text(column), column, needed))
    if options.changes is None or not isinstance(options.changes.apply_as_deletes, Column):
        return data, options
    frame = _evaluated(jobs, data, options.changes.apply_as_deletes)
    changes = replace(options.changes, apply_as_deletes=pc.field(EVALUATED), unstored=(EVALUATED,))
    schema = options.schema
    if schema is not None:
        schema = schema.append(pa.field(EVALUATED, pa.bool_()))
    return frame, replace(options, changes=changes, schema=schema)


def _evaluated(jobs: Jobs, data: Any, column: Column) -> DataFrame:
    """Return a data frame with one more column, which says which rows the condition selects."""
    argument = "apply_as_deletes"
    if not isinstance(data, DataFrame):
        raise InvalidArgumentError(
            f"{argument} is a Column, which Spark evaluates on a DataFrame, but the changes are of "
            f"the type {type(data).__name__}.\nHint: pass SQL text, as in \"op = 'delete'\".",
            argument=argument,
        )
    _check_session(jobs, column, argument)
    if existing := [name for name in data.columns if name.lower() == EVALUATED]:
        raise InvalidArgumentError(
            f"the changes have a column {existing[0]!r}, a name that is used for what is computed "
            "from them.\nHint: rename the column."
        )
    try:
        frame = data.withColumn(EVALUATED, column)
        kind = frame.schema[EVALUATED].dataType
    except PySparkException as error:
        raise _does_not_fit(column, argument, data.columns, error) from error
    if not isinstance(kind, BooleanType):
        raise InvalidArgumentError(
            f"{argument} {_text(column)!r} must be a boolean Column, but is of type "
            f"{kind.simpleString()}.",
            argument=argument,
        )
    return frame


def _text(column: Column) -> str:
    """Return what Spark prints of a condition, shortened: it prints much of some functions."""
    text = _full_text(column)
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def _full_text(column: Column) -> str:
    return repr(column).removeprefix("Column<'").removesuffix("'>")


def _check_session(jobs: Jobs, column: Column, argument: str) -> None:
    """Refuse a ``Column`` of the other kind of session, which fails in ways of its own."""
    of_connect = type(column).__module__.startswith("pyspark.sql.connect")
    if of_connect != is_connect(jobs.spark):
        kinds = {True: "Spark Connect", False: "classic Spark"}
        raise InvalidArgumentError(
            f"{argument} {_text(column)!r} is a Column of {kinds[of_connect]}, but the session is "
            f"one of {kinds[not of_connect]}.\nHint: make the Column while that session is active.",
            argument=argument,
        )


def _does_not_fit(
    column: Column, argument: str, names: Sequence[str], error: PySparkException
) -> InvalidArgumentError:
    reason = str(error).strip().splitlines()[0]
    return InvalidArgumentError(
        f"{argument} {_text(column)!r} does not fit the columns {list(names)!r}: {reason}\n"
        "Hint: name columns with pyspark.sql.functions.col; those of another DataFrame are not "
        "known here.",
        argument=argument,
    )


def needed_columns(jobs: Jobs, column: Column, schema: pa.Schema) -> list[str]:
    """Return the columns that a condition may read.

    A ``Column`` does not list them. Those that its text does not name are left out if Spark
    resolves it without them.

    Raises:
        InvalidArgumentError: If it does not fit the columns, or is not boolean.
    """
    fields = [field for field in schema if _spark_type(field) is not None]
    names = [field.name for field in fields]
    try:
        _resolve(jobs, column, pa.schema(fields))
    except PySparkException as error:
        raise _does_not_fit(column, "where", names, error) from error
    text = _full_text(column).lower()
    named = [field for field in fields if _names(text, field.name.lower())]
    if any(word in text for word in _ALL_COLUMNS) or len(named) == len(fields):
        return names
    try:
        _resolve(jobs, column, pa.schema(named))
    except PySparkException:
        return names
    return [field.name for field in named]


def _names(text: str, name: str) -> bool:
    """Whether a name is in a text, not as a part of a longer one."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _resolve(jobs: Jobs, column: Column, schema: pa.Schema) -> None:
    """Let Spark check a condition on columns; it runs no job."""
    frame: DataFrame = jobs.spark.createDataFrame([], _frame_schema(schema))
    _ = frame.filter(column).schema


def _spark_type(field: pa.Field) -> StructType | None:
    """Return a column as Spark has it; None if it has no such type."""
    try:
        return from_arrow_schema(pa.schema([known_to_spark(field)]))
    except PySparkException:
        return None


def _frame_schema(schema: pa.Schema) -> StructType:
    """Return columns as Spark has them, with file and position."""
    numbers = [pa.field(name, pa.int64(), False) for name in (_FILE, _POSITION)]
    return from_arrow_schema(pa.schema([*map(known_to_spark, schema), *numbers]))


@dataclass(frozen=True)
class ReadRows:
    """Reads columns of the target for Spark, with the numbers of files and positions."""

    target: Target
    frame: pa.Schema
    """The columns as Spark takes them, then file and position."""

    def __call__(self, work: Sequence[tuple[int, tuple[int, ...]]]) -> Iterator[pa.RecordBatch]:
        """Take files by number, with the row groups to read, and yield their rows."""
        names = self.frame.names[:-2]
        for number, row_groups in work:
            starts = row_group_starts(self.target.footers[number])
            for group, table in read_columns(self.target, names, number, row_groups):
                positions = np.arange(starts[group], starts[group + 1])
                columns = [self._column(table, name, number) for name in names]
                file = pa.array(np.full(len(positions), number))
                rows = pa.table([*columns, file, pa.array(positions)], schema=self.frame)
                yield from rows.combine_chunks().to_batches(max_chunksize=_MAX_BATCH_ROWS)

    def _column(self, table: pa.Table, name: str, number: int) -> pa.ChunkedArray:
        """Return a column as Spark takes it.

        Raises:
            SchemaMismatchError: If a value would change.
        """
        column, wanted = table.column(name), self.frame.field(name).type
        try:
            return cast_values(column, wanted)
        except pa.ArrowException as error:
            path = self.target.root.to_user_path(self.target.footers[number].file.path)
            raise SchemaMismatchError(
                f"Spark cannot evaluate a condition on the column {name!r} of {path!r}: a value of "
                f"{column.type} would change as {wanted} ({error}).\n"
                "Hint: pass SQL text or a pyarrow expression, which compare every value as it is."
            ) from error


@dataclass(frozen=True)
class SelectedPositions:
    """Collects the positions of selected rows by file."""

    root: Root
    directory: str
    starts: Mapping[int, Rows]
    """By the number of a file, the positions of its row groups."""

    inline: int
    """How many positions of a file are sent to the driver; more are staged."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[FoundRows]:
        """Take the numbers of files and positions, and yield what was found in each file."""
        tables = [np.column_stack([one.column(n).to_numpy() for n in (0, 1)]) for one in batches]
        found = np.concatenate([np.empty((0, 2), np.int64), *tables])
        for number in np.unique(found[:, 0]).tolist():
            positions = np.sort(found[found[:, 0] == number, 1])
            groups = np.unique(np.searchsorted(self.starts[number], positions, "right") - 1)
            none = np.zeros(len(positions), np.int64)
            pairs = RowPairs.of(self.root, self.directory, positions, none, self.inline)
            yield FoundRows(number, len(positions), tuple(groups.tolist()), pairs)


def select_rows(
    jobs: Jobs,
    limits: SparkLimits,
    stage: OpenStage,
    target: Target,
    condition: Condition,
    work: Sequence[Sequence[tuple[int, tuple[int, ...]]]],
    tasks: PhaseTasks,
) -> list[FoundRows]:
    """Let Spark filter the rows of the target; ``work`` has the row groups of each task."""
    if not work:
        return []
    fields = [pa.field(column.name, column.type) for column in condition.predicate.columns()]
    frame = _frame_schema(pa.schema(fields))
    rows = jobs.map_items_to_rows(ReadRows(target, arrow_schema(frame)), work, frame)
    selected = rows.filter(condition.of_engine).select(_FILE, _POSITION)
    starts = {n: row_group_starts(footer) for n, footer in enumerate(target.footers)}
    task = SelectedPositions(target.root, stage().path, starts, limits.broadcast_max_inline_pairs)
    return jobs.map_partitions("select rows of", stage, selected, task, tasks)
