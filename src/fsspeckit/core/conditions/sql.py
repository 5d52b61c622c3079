"""SQL text as a condition: sqlglot parses it, and a documented subset of its tree is converted.

The dialect is Spark's. What the engines do not agree on is refused: functions, arithmetic, casts,
double quotes (a string for Spark, a name for others). Every argument of a node is checked, so that
a clause this module does not know can never be left out silently.
"""

from __future__ import annotations

import difflib
import re
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser

from fsspeckit.core.conditions.literals import (
    ConditionText,
    LiteralValue,
    Moment,
    Nearest,
    nearest,
    parse_moment,
    parse_number,
)
from fsspeckit.core.conditions.predicates import (
    And,
    ColumnRef,
    Compare,
    CompareColumns,
    Decided,
    IsIn,
    IsNull,
    IsTrue,
    Like,
    Not,
    Operator,
    Or,
    Predicate,
    Truth,
)
from fsspeckit.core.keys import are_comparable, common_type, family, key_column, plain_type
from fsspeckit.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fsspeckit.errors import InvalidArgumentError

    Operand = ColumnRef | LiteralValue | None

_SUPPORTED = (
    "a condition has columns, literals, =, <>, <, <=, >, >=, <=>, IS NULL, IS TRUE, IN, BETWEEN, "
    "LIKE, AND, OR, NOT and parentheses; for anything else pass a pyarrow expression."
)
_KEYWORDS = f"a column whose name is a word of SQL is written in backquotes; {_SUPPORTED}"
_OPERATORS: dict[type[exp.Expr], Operator] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_MIRRORED: dict[Operator, Operator] = {
    "=": "=",
    "<>": "<>",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
_NAMES: tuple[tuple[type[exp.Expr] | tuple[type[exp.Expr], ...], str], ...] = (
    ((exp.Query, exp.Subquery, exp.Exists), "a query"),
    (exp.Cast, "a cast or a literal of this type"),
    ((exp.Placeholder, exp.Parameter), "a parameter"),
    (exp.Alias, "an alias"),
    (exp.Func, "a function"),
    (
        (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.DPipe),
        "arithmetic",
    ),
)
_DATES = frozenset({exp.DType.DATE})
_TIMESTAMPS = frozenset(
    {
        exp.DType.TIMESTAMP,
        exp.DType.TIMESTAMPTZ,
        exp.DType.TIMESTAMPLTZ,
        exp.DType.TIMESTAMPNTZ,
    }
)
_WILDCARDS = {"%": "(?:.*)", "_": "(?:.)"}
# Those that the parser and Spark read alike.
_BACKSLASHES = re.compile(r"(?:[^\\]|\\[\\'nrt%_])*", re.DOTALL)


class _Dialect(Spark):
    """Spark's dialect with the quote of standard SQL: 'it''s' is one string."""

    class Tokenizer(Spark.Tokenizer):
        """Two quotes inside of a string are one."""

        STRING_ESCAPES = ["'", "\\"]  # noqa: RUF012 (the parser's own attribute)

    class Parser(SparkParser):
        """Does not log what is then refused: a column that is named like a command."""

        def _warn_unsupported(self) -> None:
            pass


def parse_sql(condition: ConditionText, schema: pa.Schema) -> Predicate:
    """Return the predicate that SQL text describes.

    Raises:
        InvalidArgumentError: If it is not SQL, not supported, or does not fit the schema.
    """
    try:
        return _Converter(condition, schema).predicate(_parse(condition))
    except RecursionError:
        raise condition.error(
            "it is nested too deeply", "write it with fewer parentheses."
        ) from None


def _parse(condition: ConditionText) -> exp.Expr:
    dialect = _Dialect()
    try:
        tokens = dialect.tokenize(condition.text)
        _check_strings(tokens, condition)
        trees = dialect.parser().parse(tokens, condition.text)
    except TokenError as error:
        raise condition.error(
            "it is not SQL: a quote or a comment is not closed",
            "write a quote inside of a string twice: 'it''s'.",
        ) from error
    except ParseError as error:
        raise condition.error(f"it is not SQL: {_where(error)}", _KEYWORDS) from error
    found = [tree for tree in trees if tree is not None]
    if not found:
        raise condition.error("it is empty", "write TRUE to select every row.")
    if len(found) > 1:
        raise condition.error("it has more than one statement", "write one condition, without ';'.")
    tree = found[0]
    if not isinstance(tree, exp.Expr):
        raise condition.error("it is not a condition", _SUPPORTED)
    return tree


def _where(error: ParseError) -> str:
    """Return what the parser says, without its colours."""
    first = error.errors[0] if error.errors else {}
    if first.get("col") is None:
        return "it cannot be parsed"
    description = str(first.get("description") or "")
    what = "unexpected" if "nexpected" in description else "something is missing at"
    return f"{what} {first.get('highlight')!r} in line {first['line']}, column {first['col']}"


def _check_strings(tokens: Sequence[Any], condition: ConditionText) -> None:
    for token in tokens:
        if token.token_type != TokenType.STRING:
            continue
        spelling = condition.text[token.start : token.end + 1]
        if spelling.startswith('"'):
            raise condition.error(
                f"{spelling} is in double quotes, which mean a string for Spark and a column for "
                "others",
                "write a string in single quotes and a column in backquotes.",
            )
        if not _BACKSLASHES.fullmatch(spelling):
            raise condition.error(
                f"{spelling} has a backslash that means nothing, or not the same everywhere",
                r"write \\ for a backslash; \', \n, \r, \t, \% and \_ are known, too.",
            )


class _Converter:
    """Converts the parser's tree to predicates over the columns of a schema."""

    def __init__(self, condition: ConditionText, schema: pa.Schema) -> None:
        self.condition = condition
        self.schema = schema

    def predicate(self, node: exp.Expr) -> Predicate:
        """Return a node as a predicate."""
        convert = _PREDICATES.get(type(node))
        if convert is None:
            raise self._unsupported(node)
        return convert(self, node)

    def _unsupported(self, node: exp.Expr) -> InvalidArgumentError:
        names = (name for kinds, name in _NAMES if isinstance(node, kinds))
        known = f"a form of {node.key.upper()}" if type(node) in _PREDICATES else node.key.upper()
        name = next(names, known)
        hint = _KEYWORDS if isinstance(node, exp.Command) else _SUPPORTED
        return self.condition.error(
            f"{node.sql(dialect='spark')!r} is {name}, which is not supported here", hint
        )

    def _check_arguments(self, node: exp.Expr, *known: str) -> None:
        """Refuse a node with an argument that would be left out, such as SYMMETRIC."""
        for name, value in node.args.items():
            if value and name not in known:
                raise self._unsupported(value if isinstance(value, exp.Expr) else node)

    def junction(self, node: exp.Expr) -> Predicate:
        """Convert AND and OR; a chain of many becomes one predicate."""
        self._check_arguments(node, "this", "expression")
        operands = tuple(self.predicate(each) for each in node.flatten())
        return And(operands) if isinstance(node, exp.And) else Or(operands)

    def negation(self, node: exp.Expr) -> Predicate:
        """Convert NOT."""
        self._check_arguments(node, "this")
        return Not(self.predicate(node.this))

    def parentheses(self, node: exp.Expr) -> Predicate:
        """Convert what is inside."""
        self._check_arguments(node, "this")
        return self.predicate(node.this)

    def truth(self, node: exp.Expr) -> Predicate:
        """Convert TRUE, FALSE and NULL."""
        return Truth(None if isinstance(node, exp.Null) else bool(node.this))

    def boolean_column(self, node: exp.Expr) -> Predicate:
        """Convert a column that stands for itself."""
        column = self.column(node)
        if family(column.type) == "null":
            return Truth(None)
        if family(column.type) != "bool":
            raise self.condition.error(
                f"column {str(column)!r} of type {column.type} is not a condition",
                "compare it with something, for example IS NOT NULL.",
            )
        return Compare(column, "=", 1)

    def comparison(self, node: exp.Expr) -> Predicate:
        """Convert =, <>, <, <=, > and >=."""
        self._check_arguments(node, "this", "expression")
        return self._compare(node, node.this, _OPERATORS[type(node)], node.expression)

    def null_safe(self, node: exp.Expr) -> Predicate:
        """Convert <=> and IS [NOT] DISTINCT FROM."""
        self._check_arguments(node, "this", "expression")
        left, right = self.operand(node.this), self.operand(node.expression)
        pair = [each for each in (left, right) if isinstance(each, ColumnRef)]
        if len(pair) == 1 and None in (left, right):
            found: Predicate = IsNull(pair[0])
        else:
            found = IsTrue(self._compare(node, node.this, "=", node.expression))
            if len(pair) == 2:
                found = Or((found, And(tuple(IsNull(column) for column in pair))))
        return Not(found) if isinstance(node, exp.NullSafeNEQ) else found

    def is_value(self, node: exp.Expr) -> Predicate:
        """Convert IS NULL, IS TRUE and IS FALSE."""
        self._check_arguments(node, "this", "expression")
        if isinstance(node.expression, exp.Null):
            operand = self.operand(node.this)
            if isinstance(operand, ColumnRef):
                return IsNull(operand)
        elif isinstance(node.expression, exp.Boolean):
            operand_predicate = self.predicate(node.this)
            return IsTrue(operand_predicate if node.expression.this else Not(operand_predicate))
        raise self._unsupported(node)

    def between(self, node: exp.Expr) -> Predicate:
        """Convert BETWEEN, both ends included."""
        self._check_arguments(node, "this", "low", "high")
        low = self._compare(node, node.this, ">=", node.args["low"])
        return And((low, self._compare(node, node.this, "<=", node.args["high"])))

    def is_in(self, node: exp.Expr) -> Predicate:
        """Convert IN with a list of literals."""
        self._check_arguments(node, "this", "expressions")
        column = self.operand(node.this)
        if not node.expressions or not isinstance(column, ColumnRef):
            raise self._unsupported(node)
        literals = [self.operand(each) for each in node.expressions]
        values = [each for each in literals if each is not None]
        # A list with NULL is never known not to contain a value.
        unknown = [Truth(None)] if len(values) < len(literals) else []
        if family(column.type) == "null":
            return Truth(None)
        codes: set[Any] = set()
        for value in values:
            if isinstance(value, ColumnRef):
                raise self._unsupported(node)
            found = self._nearest(column, value)
            codes |= {found.code} if found.side == "inside" and found.is_exact else set()
        among = IsIn(column, tuple(sorted(codes)))
        return Or((among, *unknown)) if unknown else among

    def like(self, node: exp.Expr) -> Predicate:
        """Convert LIKE, with its own negation."""
        self._check_arguments(node, "this", "expression", "negate")
        found = self._like(node, "\\")
        return Not(found) if node.args.get("negate") else found

    def like_with_escape(self, node: exp.Expr) -> Predicate:
        """Convert LIKE with ESCAPE."""
        self._check_arguments(node, "this", "expression")
        like = node.this
        escape = node.expression
        if type(like) is not exp.Like or not _is_string(escape) or len(escape.this) != 1:
            raise self._unsupported(node)
        self._check_arguments(like, "this", "expression", "negate")
        found = self._like(like, escape.this)
        return Not(found) if like.args.get("negate") else found

    def _like(self, node: exp.Expr, escape: str) -> Predicate:
        column = self.operand(node.this)
        if not isinstance(column, ColumnRef) or not _is_string(node.expression):
            raise self._unsupported(node)
        if family(column.type) == "null":
            return Truth(None)
        if family(column.type) != "string":
            raise self.condition.error(
                f"column {str(column)!r} of type {column.type} cannot be compared by LIKE",
                "LIKE compares strings.",
            )
        return self._pattern(column, node.expression.this, escape)

    def _pattern(self, column: ColumnRef, text: str, escape: str) -> Predicate:
        """Return a pattern as a regular expression, and what it begins with."""
        parts: list[str] = []
        characters = iter(text)
        for character in characters:
            if character != escape:
                parts.append(_WILDCARDS.get(character) or re.escape(character))
                continue
            escaped = next(characters, "")
            if escaped not in ("%", "_", escape):
                raise self.condition.error(
                    f"the pattern {text!r} has the escape character {escape!r} before "
                    f"{escaped or 'its end'!r}",
                    f"{escape!r} is written before %, _ or itself.",
                )
            parts.append(re.escape(escaped))
        literal = list(takewhile(lambda part: part not in _WILDCARDS.values(), parts))
        prefix = "".join(part[-1] for part in literal)
        is_prefix = parts[len(literal) :] == [_WILDCARDS["%"]]
        return Like(column, rf"(?s)\A{''.join(parts)}\z", prefix, is_prefix)

    def _compare(
        self, node: exp.Expr, left: exp.Expr, operator: Operator, right: exp.Expr
    ) -> Predicate:
        one, other = self.operand(left), self.operand(right)
        if not isinstance(one, ColumnRef):
            one, other, operator = other, one, _MIRRORED[operator]
        if not isinstance(one, ColumnRef):
            raise self.condition.error(
                f"{node.sql(dialect='spark')!r} compares two literals",
                "name a column on one side; in SQL for Spark a column is written without quotes "
                "or in backquotes.",
            )
        if isinstance(other, ColumnRef):
            return self._compare_columns(one, operator, other)
        if other is None or family(one.type) == "null":
            return Truth(None)
        return _decide(one, operator, self._nearest(one, other))

    def _compare_columns(self, left: ColumnRef, operator: Operator, right: ColumnRef) -> Predicate:
        try:
            if are_comparable(left.type, right.type):
                key = key_column(str(left), common_type(left.type, right.type))
                return CompareColumns(left, operator, right, key)
            problem = "their values are never equal"
        except SchemaMismatchError as error:
            problem = str(error).rstrip(".")
        raise self.condition.error(
            f"columns {str(left)!r} of type {left.type} and {str(right)!r} of type {right.type} "
            f"cannot be compared: {problem}",
            "compare columns of one kind, or pass a pyarrow expression with the cast that you "
            "mean.",
        )

    def _nearest(self, column: ColumnRef, value: LiteralValue) -> Nearest:
        key = column.key
        if key is None:
            raise self.condition.error(
                f"column {str(column)!r} of type {column.type} cannot be compared",
                "name a field inside of it, or compare it with IS NULL.",
            )
        return nearest(value, key, self.condition)

    def operand(self, node: exp.Expr) -> Operand:
        """Return a side of a comparison: a column, a literal, or None for NULL."""
        while type(node) is exp.Paren:
            self._check_arguments(node, "this")
            node = node.this
        if type(node) in (exp.Column, exp.Dot):
            return self.column(node)
        convert = _LITERALS.get(type(node))
        if convert is None and type(node) in _PREDICATES:
            raise self.condition.error(
                f"{node.sql(dialect='spark')!r} is a condition where a value is expected",
                "compare columns with literals or with each other, and join comparisons by AND, "
                "OR and NOT.",
            )
        if convert is None:
            raise self._unsupported(node)
        return convert(self, node)

    def literal(self, node: exp.Expr) -> LiteralValue:
        """Convert a string or a number."""
        if node.args["is_string"]:
            return str(node.this)
        return parse_number(str(node.this), self.condition)

    def negative(self, node: exp.Expr) -> LiteralValue:
        """Convert a number with a minus sign."""
        value = self.operand(node.this)
        if isinstance(value, bool | str | bytes | Moment | ColumnRef) or value is None:
            raise self._unsupported(node)
        return value.copy_negate()

    def binary(self, node: exp.Expr) -> LiteralValue:
        """Convert hexadecimal digits."""
        try:
            return bytes.fromhex(str(node.this))
        except ValueError:
            raise self.condition.error(
                f"X'{node.this}' is not a valid binary", "write two hexadecimal digits a byte."
            ) from None

    def moment(self, node: exp.Expr) -> LiteralValue:
        """Convert DATE '…' and TIMESTAMP '…'."""
        kind = node.args["to"].this
        if not _is_string(node.this) or kind not in _DATES | _TIMESTAMPS:
            raise self._unsupported(node)
        self._check_arguments(node, "this", "to")
        found = parse_moment(node.this.this, self.condition)
        if kind in _DATES and found.kind != "date":
            raise self.condition.error(
                f"{node.this.this!r} is not a date", "write it as TIMESTAMP '…', or without a time."
            )
        if kind in _TIMESTAMPS and found.kind == "date":
            return Moment(found.nanoseconds, "timestamp without zone")
        return found

    def column(self, node: exp.Expr) -> ColumnRef:
        """Return the column, or the field of a struct, that a name means."""
        parts = [part.this for part in node.parts if isinstance(part, exp.Identifier)]  # type: ignore[attr-defined]
        if len(parts) != len(node.parts):  # type: ignore[attr-defined]
            raise self._unsupported(node)
        fields: Sequence[pa.Field] = list(self.schema)
        path: list[str] = []
        for part in parts:
            found = self._field(part, fields, path)
            path.append(found.name)
            data_type = plain_type(found.type)
            fields = list(data_type) if pa.types.is_struct(data_type) else []
        return ColumnRef(tuple(path), data_type)

    def _field(self, name: str, fields: Sequence[pa.Field], path: Sequence[str]) -> pa.Field:
        """Return the field of a name: spelled exactly so, or the only one but for its case."""
        named = [each for each in fields if each.name == name]
        named = named or [each for each in fields if each.name.lower() == name.lower()]
        if len(named) == 1:
            return named[0]
        full = ".".join([*path, name])
        names = [each.name for each in named or fields]
        if named:
            problem, hint = f"{full!r} is ambiguous among {names!r}", "rename one of them."
        elif path and not fields:
            problem, hint = f"{'.'.join(path)!r} has no field {name!r}", "it is not a struct."
        else:
            close = difflib.get_close_matches(name, names, cutoff=0.5) or names[:10]
            problem = f"there is no column {full!r}"
            hint = f"is one of these meant: {', '.join(map(repr, close))}?"
        raise self.condition.error(problem, hint)


def _is_string(node: Any) -> bool:
    return type(node) is exp.Literal and bool(node.args["is_string"])


def _decide(column: ColumnRef, operator: Operator, found: Nearest) -> Predicate:
    """Return a comparison with a literal as one with a value of the column's type."""
    if found.side == "below":
        return Decided(column, operator in (">", ">=", "<>"))
    if found.side == "above":
        return Decided(column, operator in ("<", "<=", "<>"))
    if found.is_exact:
        return Compare(column, operator, found.code)
    if operator in ("=", "<>"):
        return Decided(column, operator == "<>")
    return Compare(column, "<=" if operator in ("<", "<=") else ">", found.code)


_PREDICATES: dict[type, Callable[[_Converter, Any], Predicate]] = {
    exp.And: _Converter.junction,
    exp.Or: _Converter.junction,
    exp.Not: _Converter.negation,
    exp.Paren: _Converter.parentheses,
    exp.Boolean: _Converter.truth,
    exp.Null: _Converter.truth,
    exp.Column: _Converter.boolean_column,
    exp.Dot: _Converter.boolean_column,
    **dict.fromkeys(_OPERATORS, _Converter.comparison),
    exp.NullSafeEQ: _Converter.null_safe,
    exp.NullSafeNEQ: _Converter.null_safe,
    exp.Is: _Converter.is_value,
    exp.Between: _Converter.between,
    exp.In: _Converter.is_in,
    exp.Like: _Converter.like,
    exp.Escape: _Converter.like_with_escape,
}

_LITERALS: dict[type, Callable[[_Converter, Any], LiteralValue | None]] = {
    exp.Literal: _Converter.literal,
    exp.Neg: _Converter.negative,
    exp.Boolean: lambda converter, node: bool(node.this),
    exp.Null: lambda converter, node: None,
    exp.HexString: _Converter.binary,
    exp.Cast: _Converter.moment,
}
