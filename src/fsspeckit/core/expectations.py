"""Expectations: what must be true of every row of a batch, and what happens to rows that differ.

A row violates an expectation unless its predicate is true: NULL is not true. Of the actions of all
expectations that a row violates, the strictest decides: ``fail``, then ``quarantine``, then
``drop``; ``warn`` only counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa

from fsspeckit.errors import ExpectationError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "MAX_SAMPLES",
    "QUARANTINE_COLUMNS",
    "Action",
    "Expectation",
    "Violations",
    "check_columns_are_free",
    "parse_expectations",
]

Action = Literal["warn", "drop", "fail", "quarantine"]
_ACTIONS: tuple[str, ...] = get_args(Action)

MAX_NAME_CHARACTERS = 200
"""Names are in every row of the quarantine and in log lines, so they have a limit."""

MAX_SAMPLES = 3
"""How many rows an error shows."""

QUARANTINE_COLUMNS = pa.schema(
    [
        ("quarantine_reasons", pa.list_(pa.string())),
        ("quarantine_application", pa.string()),
        ("quarantine_batch", pa.int64()),
        ("quarantine_time", pa.timestamp("us", "UTC")),
    ]
)
"""What a row in quarantine has after the columns of its source: the names of all expectations that
it violates, the application and the number of its batch, and when it was set apart."""


@dataclass(frozen=True)
class Expectation:
    """Something that must be true of every row."""

    name: str
    """What reports and the quarantine call it."""

    predicate: str
    """SQL text over the columns of the source."""

    action: Action = "warn"
    """What happens to a row that violates it: ``"warn"`` counts it and keeps it, ``"drop"`` leaves
    it out, ``"fail"`` refuses the whole batch, ``"quarantine"`` appends it to another dataset."""

    def __post_init__(self) -> None:
        name: Any = self.name
        is_text = isinstance(name, str) and name.isprintable() and bool(name.strip())
        if not (is_text and len(name) <= MAX_NAME_CHARACTERS):
            raise InvalidArgumentError(
                "the name of an expectation must be a text of 1 to "
                f"{MAX_NAME_CHARACTERS} printable characters, got {name!r}.",
                argument="expect",
            )
        predicate: Any = self.predicate
        if not (isinstance(predicate, str) and predicate.strip()):
            raise InvalidArgumentError(
                f"the expectation {name!r} must be a condition as SQL text, got {predicate!r}.\n"
                'Hint: pass a text such as "amount >= 0".',
                argument="expect",
            )
        if self.action not in _ACTIONS:
            raise InvalidArgumentError.choice(
                f"the action of the expectation {name!r}", self.action, _ACTIONS
            )


def parse_expectations(
    expect: Mapping[str, Any] | None, on_violation: Action = "warn"
) -> tuple[Expectation, ...]:
    """Return the expectations that a caller passes.

    Args:
        expect: By name, the predicate as SQL text, or a pair of the predicate and its action; None
            for none.
        on_violation: The action of those that do not name their own.

    Raises:
        InvalidArgumentError: If it is something else.

    Examples:
        >>> parse_expectations({"valid amount": "amount >= 0"}, "drop")
        (Expectation(name='valid amount', predicate='amount >= 0', action='drop'),)
    """
    if on_violation not in _ACTIONS:
        raise InvalidArgumentError.choice("on_violation", on_violation, _ACTIONS)
    given: Any = expect
    if given is None:
        if on_violation != "warn":
            raise InvalidArgumentError(
                f"on_violation {on_violation!r} has no use without expectations.\n"
                "Hint: pass expect=, or leave it out.",
                argument="on_violation",
            )
        return ()
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(
            f"expect must be a mapping of names to predicates, got {given!r}.\n"
            'Hint: pass {"valid amount": "amount >= 0"}, or '
            '{"valid amount": ("amount >= 0", "drop")}.',
            argument="expect",
        )
    return tuple(_expectation(name, value, on_violation) for name, value in given.items())


def _expectation(name: str, value: Any, on_violation: Action) -> Expectation:
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise InvalidArgumentError(
                f"the expectation {name!r} must be a predicate, or a pair of a predicate and an "
                f"action, got {value!r}.",
                argument="expect",
            )
        return Expectation(name, value[0], value[1])
    return Expectation(name, value, on_violation)


def with_action(expectations: Iterable[Expectation], *actions: Action) -> tuple[Expectation, ...]:
    """Return the expectations that have one of some actions."""
    return tuple(each for each in expectations if each.action in actions)


def check_columns_are_free(names: Sequence[str]) -> None:
    """Refuse a source that has a column of the quarantine already.

    Raises:
        InvalidArgumentError: Naming the columns.
    """
    if existing := [name for name in names if name.casefold() in QUARANTINE_COLUMNS.names]:
        raise InvalidArgumentError(
            f"the source has the columns {existing!r}, which rows in quarantine get.\n"
            "Hint: rename them in the source, or drop them.",
            argument="quarantine",
        )


@dataclass(frozen=True)
class Violations:
    """How many rows of a batch violate each expectation."""

    counts: Mapping[str, int]
    """By name; a row that violates several counts for each."""

    def check(
        self, expectations: Iterable[Expectation], samples: Sequence[Mapping[str, Any]]
    ) -> None:
        """Refuse a batch that violates an expectation whose action is ``fail``.

        Args:
            expectations: All of them.
            samples: Some rows that violate one of those.

        Raises:
            ExpectationError: Naming each such expectation with the number of rows.
        """
        failed = {
            each.name: (each.predicate, count)
            for each in with_action(expectations, "fail")
            if (count := self.counts.get(each.name, 0))
        }
        if failed:
            raise ExpectationError.violated(failed, samples[:MAX_SAMPLES])
