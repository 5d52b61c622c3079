"""A condition: which rows of a table it selects, and what it may select in a row group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.conditions.literals import ConditionText
from fsspeckit.core.conditions.predicates import (
    ColumnRef,
    FromEngine,
    FromExpression,
    RowGroups,
    Rows,
)
from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fsspeckit.core.conditions.predicates import Bounds, Outcomes, Predicate
    from fsspeckit.core.keys import KeyColumn


@dataclass(frozen=True, eq=False)
class EngineCondition:
    """A condition of a kind that only one engine knows, and evaluates itself."""

    text: str
    given: Any
    columns: Callable[[pa.Schema], Sequence[str]]
    """Returns the columns that it reads, of those of a schema."""


@dataclass(frozen=True, eq=False)
class Condition:
    """Selects rows; made once from text, and sent to tasks as it is."""

    text: str
    predicate: Predicate

    @classmethod
    def of(
        cls,
        given: str | pc.Expression | EngineCondition,
        schema: pa.Schema,
        argument: str = "where",
    ) -> Condition:
        """Return the condition that SQL text or a pyarrow expression describes.

        Args:
            given: SQL text in the dialect of Spark, an expression over columns of the schema, or a
                condition of the engine's own.
            schema: The columns that it may name.
            argument: The argument it was passed as, for error messages.

        Raises:
            InvalidArgumentError: If it cannot be understood, or does not fit the schema.
        """
        if isinstance(given, pc.Expression):
            return cls(str(given), _from_expression(given, schema, argument))
        if isinstance(given, EngineCondition):
            fields = [schema.field(name) for name in given.columns(schema)]
            references = tuple(ColumnRef((field.name,), field.type) for field in fields)
            return cls(given.text, FromEngine(given.given, references))
        if not isinstance(given, str):
            of_spark = type(given).__module__.startswith("pyspark.")
            hint = "\nHint: pass SQL text; only the engine 'spark' takes a Column."
            raise InvalidArgumentError(
                f"{argument} must be SQL text or a pyarrow expression, got {given!r}."
                f"{hint if of_spark else ''}",
                argument=argument,
            )
        # The parser takes 0.2 s to load, and tasks do not need it.
        from fsspeckit.core.conditions.sql import parse_sql

        return cls(given, parse_sql(ConditionText(argument, given), schema))

    def __str__(self) -> str:
        return self.text

    @property
    def of_engine(self) -> Any:
        """What only the engine can evaluate; None for a condition that every engine can."""
        return self.predicate.given if isinstance(self.predicate, FromEngine) else None

    @property
    def columns(self) -> tuple[str, ...]:
        """The top-level columns that it reads, each once."""
        return tuple(dict.fromkeys(column.name for column in self.predicate.columns()))

    @property
    def key_columns(self) -> tuple[KeyColumn, ...]:
        """The columns whose bounds :meth:`outcomes` can use, and how they are compared."""
        if isinstance(self.predicate, FromExpression | FromEngine):
            return ()
        top = (column.key for column in self.predicate.columns() if len(column.path) == 1)
        return tuple({key.name: key for key in top if key is not None}.values())

    def mask(self, table: pa.Table) -> pa.BooleanArray:
        """Return for each row whether it is selected; a row is not if the outcome is NULL.

        Raises:
            SchemaMismatchError: If a column is missing, or of a type that is never equal to that
                of the schema.
        """
        truths = self.predicate.evaluate(Rows(table))
        if isinstance(truths, pa.Scalar):
            return pa.repeat(pa.scalar(truths.as_py() is True), table.num_rows)
        if isinstance(truths, pa.ChunkedArray):
            truths = truths.combine_chunks()
        return truths.fill_null(False)

    def outcomes(self, bounds: Mapping[str, Bounds], row_groups: int) -> Outcomes:
        """Return what the condition may be in each row group.

        ``bounds`` are those of :attr:`key_columns` in all the row groups; a column that is not
        there is unknown.
        """
        return self.predicate.outcomes(RowGroups(bounds, row_groups))


def _from_expression(expression: pc.Expression, schema: pa.Schema, argument: str) -> FromExpression:
    text = str(expression)
    if "FieldPath(" in text:
        raise InvalidArgumentError(
            f"{argument} {text!r} names a column by its number.\n"
            "Hint: name it, as in pyarrow.compute.field('status').",
            argument=argument,
        )
    try:
        data_type = _result_type(expression, schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
        raise InvalidArgumentError(
            f"{argument} {text!r} does not fit the columns {schema.names!r}: {error}.",
            argument=argument,
        ) from error
    if not pa.types.is_boolean(data_type):
        raise InvalidArgumentError(
            f"{argument} {text!r} must be a boolean expression, but is of type {data_type}.",
            argument=argument,
        )
    needed = _needed_columns(expression, list(schema), [])
    return FromExpression(
        expression, tuple(ColumnRef((column.name,), column.type) for column in needed)
    )


def _result_type(expression: pc.Expression, schema: pa.Schema) -> pa.DataType:
    truths = FromExpression(expression, ()).evaluate(Rows(schema.empty_table()))
    return truths.type


def _needed_columns(
    expression: pc.Expression, fields: Sequence[pa.Field], others: Sequence[pa.Field]
) -> list[pa.Field]:
    """Return those of some columns that an expression cannot do without.

    An expression does not list its columns, so columns are left out by halves.
    """
    try:
        _result_type(expression, pa.schema(others))
        return []
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError):
        if len(fields) == 1:
            return list(fields)
    left, right = fields[: len(fields) // 2], fields[len(fields) // 2 :]
    needed = _needed_columns(expression, left, [*right, *others])
    return needed + _needed_columns(expression, right, [*left, *others])
