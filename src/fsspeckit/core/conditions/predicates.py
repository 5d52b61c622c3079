"""The tree of a condition: what it says of rows, and what statistics say of its outcome.

Columns are compared as canonical values, as keys are: NaN equals NaN and is greater than every
other number, -0.0 equals 0.0, and bounds in footers are compared by the same rule as rows.

A predicate is true, false or NULL for each row. For a row group it is a set of possible outcomes:
bounds can prove that one of the three does not occur.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.keys import NAN_CODE, KeyColumn, family, key_column, plain_values
from fsspeckit.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]

Operator = Literal["=", "<>", "<", "<=", ">", ">="]

Truths: TypeAlias = Any
"""The outcome for each row: an array of booleans, or a scalar if it is the same for all."""

_NULL = pa.scalar(None, pa.bool_())
_KERNELS: dict[Operator, Any] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
NEGATED: dict[Operator, Operator] = {
    "=": "<>",
    "<>": "=",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
}


@dataclass(frozen=True)
class ColumnRef:
    """A column of a condition, or a field inside of a struct column."""

    path: tuple[str, ...]
    type: pa.DataType

    @property
    def name(self) -> str:
        """The column at the top."""
        return self.path[0]

    @property
    def key(self) -> KeyColumn | None:
        """How its values are compared; None for lists, structs and other types without order."""
        if family(self.type) is None:
            return None
        return key_column(".".join(self.path), self.type)

    def __str__(self) -> str:
        return ".".join(self.path)


class Rows:
    """The columns of a table as a condition compares them, each converted once."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._codes: dict[tuple[ColumnRef, KeyColumn], pa.ChunkedArray] = {}

    def values(self, column: ColumnRef) -> pa.ChunkedArray:
        """Return the values of a column, without dictionaries and extension types.

        Raises:
            SchemaMismatchError: If the table does not have the column.
        """
        indices = self.table.schema.get_all_field_indices(column.name)
        if len(indices) != 1:
            raise SchemaMismatchError(
                f"a condition needs one column {column.name!r}; the rows have {len(indices)}."
            )
        values = _plain(self.table.column(indices[0]))
        for name in column.path[1:]:
            values = _plain(pc.struct_field(values, [name]))
        return values

    def codes(self, column: ColumnRef, key: KeyColumn) -> pa.ChunkedArray:
        """Return the canonical values of a column, compared as ``key`` says."""
        known = self._codes.get((column, key))
        if known is None:
            values = self.values(column)
            kind = family(values.type)
            if kind in ("string", "binary") and kind == family(key.type):
                # A binary array ends at 2 GB; the canonical type of keys is not needed here.
                known = values.cast(pa.large_binary())
            else:
                known = key.canonical(values)
            self._codes[column, key] = known
        return known


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    chunks = [plain_values(chunk) for chunk in values.chunks]
    return pa.chunked_array(chunks) if chunks else values


class Bounds(Protocol):
    """The canonical bounds of one column in each row group, as planning makes them."""

    @property
    def low(self) -> pa.Array:
        """Inclusive; NULL where unknown."""

    @property
    def high(self) -> pa.Array:
        """Inclusive; NULL where unknown."""

    @property
    def may_contain_values(self) -> Flags:
        """False only where every value is proved NULL."""

    @property
    def may_contain_nulls(self) -> Flags:
        """False only where no value is NULL."""


@dataclass(frozen=True)
class Outcomes:
    """For each row group, which outcomes a predicate may have in its rows."""

    true: Flags
    false: Flags
    null: Flags

    @property
    def may_match(self) -> Flags:
        """False only where no row can be selected."""
        return self.true

    @property
    def must_match(self) -> Flags:
        """True only where every row is selected for certain."""
        return ~self.false & ~self.null

    @classmethod
    def unknown(cls, count: int) -> Outcomes:
        """Return the outcomes of a predicate of which statistics say nothing."""
        return cls(*(np.ones(count, bool) for _ in range(3)))

    @classmethod
    def constant(cls, value: bool | None, count: int) -> Outcomes:
        """Return the outcomes of a predicate that is the same for every row."""
        return cls(*(np.full(count, value is each) for each in (True, False, None)))


@dataclass(frozen=True)
class RowGroups:
    """The bounds of columns, by name, in some row groups."""

    bounds: Mapping[str, Bounds]
    count: int

    def of(self, column: ColumnRef) -> Bounds | None:
        """Return the bounds of a column; statistics of struct fields are not read."""
        return self.bounds.get(column.name) if len(column.path) == 1 else None


class Predicate(Protocol):
    """A part of a condition that is true, false or NULL for each row."""

    def evaluate(self, rows: Rows) -> Truths:
        """Return the outcome for each row; a scalar if it is the same for all."""

    def outcomes(self, groups: RowGroups) -> Outcomes:
        """Return the possible outcomes in each row group."""

    def columns(self) -> tuple[ColumnRef, ...]:
        """Return the columns it reads."""


class _OfColumn:
    """What predicates of one column share: without values in a row group, only NULL is left."""

    column: ColumnRef

    def columns(self) -> tuple[ColumnRef, ...]:
        return (self.column,)

    def outcomes(self, groups: RowGroups) -> Outcomes:
        bounds = groups.of(self.column)
        if bounds is None:
            return Outcomes.unknown(groups.count)
        true, false = self.outcomes_of_values(bounds)
        values = bounds.may_contain_values
        return Outcomes(true & values, false & values, bounds.may_contain_nulls)

    def outcomes_of_values(self, bounds: Bounds) -> tuple[Flags, Flags]:
        """Return where values that are not NULL may be true, and where they may be false."""
        raise NotImplementedError


@dataclass(frozen=True)
class Compare(_OfColumn):
    """A column compared with a canonical value of its type."""

    column: ColumnRef
    operator: Operator
    code: int | bytes

    def evaluate(self, rows: Rows) -> Truths:
        """Compare canonical values."""
        codes = rows.codes(self.column, _key(self.column))
        return _KERNELS[self.operator](codes, pa.scalar(self.code, codes.type))

    def outcomes_of_values(self, bounds: Bounds) -> tuple[Flags, Flags]:
        """Compare the ends of the ranges."""
        low, high = _ends(bounds, self.column)
        code = pa.scalar(self.code, low.type)
        true, false = (
            _may_hold(operator, low, high, code)
            for operator in (self.operator, NEGATED[self.operator])
        )
        return true, false


def _key(column: ColumnRef) -> KeyColumn:
    key = column.key
    if key is None:
        raise TypeError(f"values of {column.type} are not compared")
    return key


def _ends(bounds: Bounds, column: ColumnRef) -> tuple[pa.Array, pa.Array]:
    """Return the bounds; those of floats do not say whether there is a NaN, the greatest value."""
    if not _key(column).is_float:
        return bounds.low, bounds.high
    known = bounds.high.is_valid()
    return bounds.low, pc.if_else(known, pa.scalar(NAN_CODE, pa.int64()), bounds.high)


def _may_hold(operator: Operator, low: pa.Array, high: pa.Array, code: pa.Scalar) -> Flags:
    """Return where some value of a range may compare so with a value; unknown means yes."""
    if operator == "=":
        return _may(pc.and_(pc.less_equal(low, code), pc.greater_equal(high, code)))
    if operator == "<>":
        return _may(pc.or_(pc.not_equal(low, code), pc.not_equal(high, code)))
    end = low if operator in ("<", "<=") else high
    return _may(_KERNELS[operator](end, code))


def _may(flags: pa.Array) -> Flags:
    return np.asarray(flags.fill_null(True))


@dataclass(frozen=True)
class Decided(_OfColumn):
    """A comparison whose outcome is the same for every value: false for ``integer = 1.5``."""

    column: ColumnRef
    value: bool

    def evaluate(self, rows: Rows) -> Truths:
        """Return the outcome where there is a value, else NULL."""
        return pc.if_else(rows.values(self.column).is_valid(), self.value, _NULL)

    def outcomes_of_values(self, bounds: Bounds) -> tuple[Flags, Flags]:
        """Return the one outcome."""
        outcomes = Outcomes.constant(self.value, len(bounds.low))
        return outcomes.true, outcomes.false


@dataclass(frozen=True)
class IsIn(_OfColumn):
    """Whether a column has one of several canonical values."""

    column: ColumnRef
    codes: tuple[Any, ...]
    """Sorted, each once."""

    def evaluate(self, rows: Rows) -> Truths:
        """Look the values up."""
        codes = rows.codes(self.column, _key(self.column))
        found = pc.is_in(codes, value_set=pa.array(self.codes, codes.type))
        return pc.if_else(codes.is_valid(), found, _NULL)

    def outcomes_of_values(self, bounds: Bounds) -> tuple[Flags, Flags]:
        """Find for each range the first value that is not below it."""
        low, high = _ends(bounds, self.column)
        pairs = zip(low.to_pylist(), high.to_pylist(), strict=True)
        outcomes = [self._outcome(least, greatest) for least, greatest in pairs]
        true, false = np.array(outcomes, bool).reshape(-1, 2).T
        return true, false

    def _outcome(self, low: Any, high: Any) -> tuple[bool, bool]:
        """Return whether a value of a range may be among them, and whether one may not be."""
        if low is None or high is None:
            return True, True
        codes: tuple[Any, ...] = self.codes
        first = bisect_left(codes, low)
        is_inside = first < len(codes) and codes[first] <= high
        return is_inside, not (is_inside and low == high)


@dataclass(frozen=True)
class Like(_OfColumn):
    """A string column compared with a pattern of ``%`` and ``_``."""

    column: ColumnRef
    regex: str
    """The pattern as a regular expression; Arrow's own LIKE reads ``%\\\\b`` wrongly."""

    prefix: str
    """What every matching value begins with."""

    is_prefix: bool
    """Whether everything that begins so matches."""

    def evaluate(self, rows: Rows) -> Truths:
        """Match each string."""
        values = rows.values(self.column).cast(pa.large_string())
        if self.is_prefix:
            return pc.starts_with(values, self.prefix)
        return pc.match_substring_regex(values, self.regex)

    def outcomes_of_values(self, bounds: Bounds) -> tuple[Flags, Flags]:
        """Compare the beginnings of the bounds with that of the pattern."""
        start = self.prefix.encode()
        size = len(start)
        low, high = (
            pc.binary_slice(end, 0, size) if size else pc.if_else(end.is_valid(), b"", end)
            for end in (bounds.low, bounds.high)
        )
        prefix = pa.scalar(start, pa.binary())
        true = _may(pc.and_(pc.less_equal(low, prefix), pc.greater_equal(high, prefix)))
        if not self.is_prefix:
            return true, np.ones(len(true), bool)
        return true, _may(pc.or_(pc.not_equal(low, prefix), pc.not_equal(high, prefix)))


@dataclass(frozen=True)
class IsNull:
    """Whether a column is NULL; never NULL itself."""

    column: ColumnRef

    def evaluate(self, rows: Rows) -> Truths:
        """Return which values are NULL; NaN is not."""
        return rows.values(self.column).is_null()

    def outcomes(self, groups: RowGroups) -> Outcomes:
        """Count NULL values."""
        bounds = groups.of(self.column)
        if bounds is None:
            return Outcomes.unknown(groups.count)
        never = np.zeros(groups.count, bool)
        return Outcomes(bounds.may_contain_nulls, bounds.may_contain_values, never)

    def columns(self) -> tuple[ColumnRef, ...]:
        """Return the column."""
        return (self.column,)


@dataclass(frozen=True)
class CompareColumns:
    """Two columns compared with each other, as values of their common type."""

    left: ColumnRef
    operator: Operator
    right: ColumnRef
    key: KeyColumn

    def evaluate(self, rows: Rows) -> Truths:
        """Compare canonical values."""
        left, right = (rows.codes(column, self.key) for column in self.columns())
        return _KERNELS[self.operator](left, right)

    def outcomes(self, groups: RowGroups) -> Outcomes:
        """Return what is known: without NULL values the outcome is not NULL."""
        nulls, values = np.zeros(groups.count, bool), np.ones(groups.count, bool)
        for column in self.columns():
            bounds = groups.of(column)
            nulls |= bounds is None or bounds.may_contain_nulls
            values &= bounds is None or bounds.may_contain_values
        return Outcomes(values, values, nulls)

    def columns(self) -> tuple[ColumnRef, ...]:
        """Return both columns."""
        return (self.left, self.right)


@dataclass(frozen=True)
class Truth:
    """TRUE, FALSE or NULL, whatever the row."""

    value: bool | None

    def evaluate(self, rows: Rows) -> Truths:
        """Return the value."""
        return pa.scalar(self.value, pa.bool_())

    def outcomes(self, groups: RowGroups) -> Outcomes:
        """Return the one outcome."""
        return Outcomes.constant(self.value, groups.count)

    def columns(self) -> tuple[ColumnRef, ...]:
        """Return no column."""
        return ()


@dataclass(frozen=True)
class Not:
    """True where the operand is false; NULL stays NULL."""

    operand: Predicate

    def evaluate(self, rows: Rows) -> Truths:
        """Exchange true and false."""
        return pc.invert(self.operand.evaluate(rows))

    def outcomes(self, groups: RowGroups) -> Outcomes:
        """Exchange true and false."""
        found = self.operand.outcomes(groups)
        return Outcomes(found.false, found.true, found.null)

    def columns(self) -> tuple[ColumnRef, ...]:
        """Return the operand's columns."""
        return self.operand.columns()


@dataclass(frozen=True)
class IsTrue:
    """True where the operand is true, else false; never NULL."""

    operand: Predicate

    def evaluate(self, rows: Rows) -> Truths:
        """Replace NULL by false."""
        return pc.coalesce(self.operand.evaluate(rows), pa.scalar(False))

    def outcomes(self, groups: RowGroups) -> Outcomes:
        """Replace NULL by false."""
        found = self.operand.outcomes(groups)
        never = np.zeros(groups.count, bool)
        return Outcomes(found.true, found.false | found.null, never)

    def columns(self) -> tuple[ColumnRef, ...]:
        """Return the operand's columns."""
        return self.operand.columns()


@dataclass(frozen=True)
class _Junction:
    operands: tuple[Predicate, ...]

    def columns(self) -> tuple[ColumnRef, ...]:
        """Return the columns of all operands."""
        return tuple(column for operand in self.operands for column in operand.columns())

    def _evaluated(self, rows: Rows, kernel: Callable[[Any, Any], Any]) -> Truths:
        return reduce(kernel, (operand.evaluate(rows) for operand in self.operands))


class And(_Junction):
    """True where every operand is true, false where one is false, else NULL."""

    def evaluate(self, rows: Rows) -> Truths:
        """Combine with Kleene's logic, which is that of SQL."""
        return self._evaluated(rows, pc.and_kleene)

    def outcomes(self, groups: RowGroups) -> Outcomes:
        """Combine possible outcomes, each operand on its own."""
        return reduce(_both, (operand.outcomes(groups) for operand in self.operands))


class Or(_Junction):
    """True where one operand is true, false where every one is false, else NULL."""

    def evaluate(self, rows: Rows) -> Truths:
        """Combine with Kleene's logic, which is that of SQL."""
        return self._evaluated(rows, pc.or_kleene)

    def outcomes(self, groups: RowGroups) -> Outcomes:
        """Combine possible outcomes as those of the negated conjunction."""
        negated = And(tuple(Not(operand) for operand in self.operands))
        return Not(negated).outcomes(groups)


def _both(left: Outcomes, right: Outcomes) -> Outcomes:
    null = (left.null & (right.null | right.true)) | (right.null & left.true)
    return Outcomes(left.true & right.true, left.false | right.false, null)


@dataclass(frozen=True, eq=False)
class FromEngine:
    """A condition that an engine evaluates itself; statistics say nothing of it."""

    given: Any
    references: tuple[ColumnRef, ...]

    def evaluate(self, rows: Rows) -> Truths:
        """Refuse: only the engine can."""
        raise TypeError(f"{self.given!r} is evaluated by the engine that it belongs to.")

    def outcomes(self, groups: RowGroups) -> Outcomes:
        """Return that every outcome is possible."""
        return Outcomes.unknown(groups.count)

    def columns(self) -> tuple[ColumnRef, ...]:
        """Return the columns it reads."""
        return self.references


@dataclass(frozen=True, eq=False)
class FromExpression:
    """A pyarrow expression, which Arrow evaluates; statistics say nothing of it."""

    expression: pc.Expression
    references: tuple[ColumnRef, ...]

    def evaluate(self, rows: Rows) -> Truths:
        """Compute the expression as a new column."""
        from pyarrow import acero  # takes time, and most conditions do not need it

        names = list({column.name: None for column in self.references})
        table = rows.table.select(names) if names else rows.table
        steps = [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
            acero.Declaration("project", acero.ProjectNodeOptions([self.expression], ["mask"])),
        ]
        # One thread keeps the order of the rows.
        result = acero.Declaration.from_sequence(steps).to_table(use_threads=False)
        return result.column("mask")

    def outcomes(self, groups: RowGroups) -> Outcomes:
        """Return that every outcome is possible."""
        return Outcomes.unknown(groups.count)

    def columns(self) -> tuple[ColumnRef, ...]:
        """Return the columns it reads."""
        return self.references
