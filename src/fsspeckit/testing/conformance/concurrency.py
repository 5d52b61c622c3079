"""Others write meanwhile: merges, appends and removals at every step."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fsspeckit.testing.conformance.merging import three_files
from fsspeckit.testing.conformance.target import Target, lines, numbers

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ConcurrencyTests"]


def _add_a_file(target: Target, _: Callable[..., Any]) -> None:
    target.write("guest.parquet", numbers(1))


def _remove_a_file(target: Target, _: Callable[..., Any]) -> None:
    if "b.parquet" in target.store.tree():
        target.store.filesystem.rm_file(target.store.at("b.parquet"))


def _merge_too(target: Target, connect: Callable[..., Any]) -> None:
    with connect(**target.store.options) as io:
        io.merge(numbers(2, 9, v="guest"), target.store.path, "upsert", ["id"])


@dataclass(frozen=True)
class Guest:
    """Another program: what it does, and what may be there in the end.

    Whether it comes in time to be seen by the merge is not promised.
    """

    act: Callable[[Target, Callable[..., Any]], None]
    states: list[list[pa.Table]]


_MERGED = [numbers(1, 4, v="new"), numbers(2)]
GUESTS = {
    "adds a file": Guest(_add_a_file, [[*_MERGED, numbers(1, v="new")], [*_MERGED, numbers(1)]]),
    "removes a file": Guest(_remove_a_file, [[numbers(1, v="new"), numbers(2)], _MERGED]),
    "merges": Guest(_merge_too, [[numbers(1, 4, v="new"), numbers(2, 9, v="guest")]]),
}


class ConcurrencyTests:
    """Nothing of anybody is lost."""

    def test_merges_at_the_same_time_are_all_there(
        self, connect: Callable[..., Any], target: Target
    ) -> None:
        three_files(target)
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                with connect(**target.store.options) as io:
                    io.merge(
                        numbers(number, number + 10, v="new"), target.store.path, "upsert", ["id"]
                    )
            except BaseException as error:  # a thread's error must reach the test
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in (1, 4, 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        expected = [numbers(1, 4, 6, 11, 14, 16, v="new"), numbers(2, 3, 5, 7)]
        assert sorted(target.rows(numbers().schema)) == sorted(lines(pa.concat_tables(expected)))

    @pytest.mark.parametrize("store", ["exchange", "plain"], indirect=True)
    @pytest.mark.parametrize("what", GUESTS)
    def test_while_another_program(
        self, connect: Callable[..., Any], target: Target, what: str
    ) -> None:
        """At every event of progress somebody else changes the dataset; nothing is ever lost."""
        guest = GUESTS[what]
        event, events = 0, 1
        while event <= events:
            events = self._merge_with_guest(connect, target, guest, event)
            found = sorted(target.rows(numbers().schema).elements())
            assert found in [sorted(lines(pa.concat_tables(state))) for state in guest.states]
            event += 1
        assert events > 4

    def _merge_with_guest(
        self, connect: Callable[..., Any], target: Target, guest: Guest, at: int
    ) -> int:
        for name in target.store.tree():
            target.store.filesystem.rm_file(target.store.at(name))
        target.write("a.parquet", numbers(1, 2))
        target.write("b.parquet", numbers(4))
        seen = 0

        def progress(*_: Any) -> None:
            nonlocal seen
            seen += 1
            if seen == at:
                guest.act(target, connect)

        source = numbers(1, 4, v="new")
        target.io.merge(source, target.store.path, "update", ["id"], progress=progress)
        if seen < at or at == 0:
            guest.act(target, connect)
        return seen
