"""Tombstones: which are written, joined, forgotten and refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.core.changes import decode_tombstones, known_tombstones, plan_tombstones
from fsspeckit.core.changes.feed import SEQUENCE
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage import TombstoneFile, TombstoneLimits, Tombstones

NOW, WEEK = 1e9, 7 * 86400.0


def deletions(*pairs: tuple[int, int], keys: Any = None) -> pa.Table:
    kind = pa.int64() if keys is None else keys
    ids, sequences = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table({"id": pa.array(ids, kind), SEQUENCE: pa.array(sequences, pa.int64())})


class Graveyard:
    """Files of tombstones, as a dataset would have them."""

    def __init__(self, *, only_last: bool = True, max_rows: int = 1000) -> None:
        self.base = Tombstones()
        self.tables: list[pa.Table | None] = []
        self._options: dict[str, Any] = {
            "keys": ["id"],
            "only_last": only_last,
            "seconds": WEEK,
            "limits": TombstoneLimits(max_rows),
        }

    def bury(self, deletes: pa.Table | None, now: float = NOW) -> bool:
        """Commit deletions; gives whether anything changed."""
        change = plan_tombstones(self.base, self.tables, deletes, now=now, **self._options)
        known = dict(zip(self.base.files, self.tables, strict=True))
        files, tables = list(change.kept), [known[file] for file in change.kept]
        if change.data is not None:
            name = f"{self.base.commit + 1:010}"
            files.append(TombstoneFile(name, change.rows, change.newest, ""))
            tables.append(decode_tombstones(change.data))
        self.base = Tombstones(tuple(files), WEEK, self.base.commit + 1)
        self.tables = tables
        return not change.is_none

    def known(self, now: float = NOW) -> list[tuple[int, int]]:
        table = known_tombstones(self.tables, ["id"], now - WEEK)
        if table is None:
            return []
        return sorted(zip(table["id"].to_pylist(), table[SEQUENCE].to_pylist(), strict=True))


def test_nothing_is_written_that_is_not_kept() -> None:
    change = plan_tombstones(
        Tombstones(),
        [],
        deletions((1, 1)),
        keys=["id"],
        only_last=True,
        seconds=0.0,
        now=NOW,
        limits=TombstoneLimits(),
    )
    assert change.is_none


def test_files_are_joined_so_that_few_are_left() -> None:
    yard = Graveyard()
    for key in range(200):
        yard.bury(deletions((key, 1)))
        assert len(yard.base.files) < 10
    assert yard.known() == [(key, 1) for key in range(200)]
    assert yard.base.rows == 200


@pytest.mark.parametrize(
    ("only_last", "known"), [(True, [(1, 9), (2, 4)]), (False, [(1, 5), (1, 7), (1, 9), (2, 4)])]
)
def test_the_last_or_every_deletion_of_a_key_is_remembered(
    only_last: bool, known: list[tuple[int, int]]
) -> None:
    yard = Graveyard(only_last=only_last)
    yard.bury(deletions((1, 5), (1, 9), (2, 4)))
    yard.bury(deletions((1, 7), (2, 4)))
    assert yard.known() == known


@pytest.mark.parametrize("only_last", [True, False])
def test_what_is_known_is_not_written_again(only_last: bool) -> None:
    yard = Graveyard(only_last=only_last)
    assert yard.bury(deletions((1, 5), (1, 5)))
    assert not yard.bury(deletions((1, 5)))
    assert not yard.bury(None)
    assert not yard.bury(deletions())
    assert yard.base.rows == 1


def test_what_is_too_old_is_dropped() -> None:
    yard = Graveyard()
    yard.bury(deletions(*((key, 1) for key in range(100))))
    yard.bury(deletions((200, 1)), NOW + WEEK - 1)
    assert yard.bury(None, NOW + WEEK + 1), "the file of the older ones goes"
    assert yard.known(NOW + WEEK + 1) == [(200, 1)]
    yard.bury(deletions((1, 1)), NOW + WEEK + 1)
    assert yard.known(NOW + WEEK + 1) == [(1, 1), (200, 1)]


def test_what_was_too_old_to_be_read_is_dropped() -> None:
    yard = Graveyard()
    yard.bury(deletions((1, 1)))
    yard.tables = [None]
    assert yard.bury(None)
    assert yard.base.files == ()


def test_keys_of_other_types_are_kept_beside_each_other() -> None:
    yard = Graveyard()
    for kind, key in ((pa.int32(), 1), (pa.int64(), 2**40), (pa.int32(), 1)):
        yard.bury(deletions((key, 3), keys=kind))
    assert yard.known() == [(1, 3), (2**40, 3)]
    assert [table and table.schema.field("id").type for table in yard.tables] == [
        pa.int32(),
        pa.int64(),
    ]


def test_more_than_the_limit_is_refused() -> None:
    yard = Graveyard(max_rows=3)
    yard.bury(deletions((1, 1), (2, 1), (3, 1)))
    yard.bury(deletions((3, 2)))
    assert yard.known() == [(1, 1), (2, 1), (3, 2)]
    with pytest.raises(InvalidArgumentError, match=r"4 deleted keys.*7 days.*than 3\..*\nHint: "):
        yard.bury(deletions((4, 1)))
    assert yard.known() == [(1, 1), (2, 1), (3, 2)]


def test_what_has_expired_does_not_count_for_the_limit() -> None:
    yard = Graveyard(max_rows=5)
    yard.bury(deletions((1, 1), (2, 1), (3, 1)))
    yard.bury(deletions((4, 1), (5, 1)), NOW + WEEK - 1)
    yard.bury(deletions((6, 1)), NOW + WEEK + 1)
    assert yard.base.rows == 3
