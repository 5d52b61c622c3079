"""Change feeds: whatever the order of events, the rows are those of the feed.

Every batch is compared with the model: rows, counters, and files that need no change. Then the same
batch is applied again, which must change nothing.
"""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fsspeckit.core.arrow_compat import cast_table
from fsspeckit.core.changes import RESERVED
from fsspeckit.errors import (
    InvalidArgumentError,
    NullKeyError,
    PartitionMoveError,
    RewriteLimitError,
    SchemaMismatchError,
    StalePlanError,
)
from fsspeckit.storage import Transaction, history
from fsspeckit.testing.conformance.merging import EVERY_STORE
from fsspeckit.testing.conformance.stores import (
    bucket_store,
    data_files,
    long_object_stores,
    object_store,
)
from fsspeckit.testing.conformance.target import Target, lines
from fsspeckit.testing.feed_model import END, START, ModelFeed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fsspeckit.core.incremental import MergePlan, MergeResult
    from fsspeckit.storage import HistoryEntry
    from fsspeckit.testing.model import ModelResult

__all__ = ["FeedColumnTests", "FeedCommitTests", "FeedRefusalTests", "FeedTests", "VersionTests"]

BOTH_TYPES = pytest.mark.parametrize("scd_type", [1, 2])
NOTHING_KEPT = dt.timedelta(0)


def events(*texts: str, v: str | None = None) -> pa.Table:
    """Events as ``7+5`` and ``7-6``: a key, whether it is changed or deleted, and a sequence."""
    split = [text.partition("-" if "-" in text else "+") for text in texts]
    values = [None if sign == "-" else v or f"{key}@{at}" for key, sign, at in split]
    return pa.table(
        {
            "id": pa.array([int(key) for key, _, _ in split], pa.int64()),
            "v": pa.array(values, pa.string()),
            "seq": pa.array([int(at) for _, _, at in split], pa.int64()),
            "gone": pa.array([sign == "-" for _, sign, _ in split], pa.bool_()),
        }
    )


class Feed:
    """A dataset under test to which a feed is applied, and its model."""

    def __init__(
        self,
        target: Target,
        scd_type: int = 1,
        keys: Sequence[str] = ("id",),
        sequence: str = "seq",
        **options: Any,
    ) -> None:
        self.target = target
        change = options.get("partition_change", "refuse")
        self.model = ModelFeed(keys, sequence, "gone", scd_type, change)
        self.parts: Sequence[str] = options.get("partition_by", ())
        self._options: dict[str, Any] = {
            "apply_as_deletes": "gone",
            "except_column_list": "gone",
            "stored_as_scd_type": scd_type,
            **options,
        }
        self._schema = pa.schema([])

    def arguments(self, **options: Any) -> dict[str, Any]:
        """What every call is given besides the changes."""
        given = {"keys": list(self.model.keys), "sequence_by": self.model.sequence}
        return {"path": self.target.store.path, **given, **self._options, **options}

    def call(self, batch: Any, **options: Any) -> MergeResult:
        """Apply without comparing."""
        result: MergeResult = self.target.io.apply_changes(batch, **self.arguments(**options))
        return result

    def plan(self, batch: pa.Table, **options: Any) -> MergePlan:
        """Plan what would be applied; nothing is changed."""
        before = self.target.store.tree()
        plan: MergePlan = self.target.io.plan_apply_changes(batch, **self.arguments(**options))
        assert self.target.store.tree() == before
        return plan

    def commits(self) -> list[HistoryEntry]:
        """The commits of the dataset, if there is one."""
        try:
            return history(self.target.store.path, **self.target.store.opening)
        except FileNotFoundError:
            return []

    def rows(self) -> Counter[str]:
        """All rows on disk."""
        return self.target.rows(self._schema)

    def knows(self, batch: pa.Table) -> None:
        """Take the stored columns from a batch; those of the first one stay."""
        fields = [f for f in batch.schema if f.name != "gone"]
        if self.model.scd_type == 2:
            kind = batch.schema.field(self.model.sequence).type
            fields += [pa.field(START, kind), pa.field(END, kind)]
        if not len(self._schema):
            self._schema = pa.schema(fields)

    def expect(self, batch: pa.Table) -> ModelResult:
        """Ask the model, with the types that are stored."""
        types = {field.name: field.type for field in self._schema}
        fields = [(field.name, types.get(field.name, field.type)) for field in batch.schema]
        rows = cast_table(batch, pa.schema(fields)).to_pylist()
        return self.model.apply(rows, self.parts)

    def apply(
        self, batch: pa.Table, *, data: Any = None, by_plan: bool = False, **options: Any
    ) -> MergeResult:
        """Apply, compare everything with the model, and apply again.

        Args:
            batch: The changes.
            data: The same changes in another form.
            by_plan: Plan them, then execute the plan.
            options: Passed on.
        """
        self.knows(batch)
        store = self.target.store
        files, before = self.target.files(self._schema), store.tree()
        leftovers = store.leftovers()  # of plans that the test still has
        given = batch if data is None else data
        result = (
            self.target.io.execute(self.plan(given, **options))
            if by_plan
            else self.call(given, **options)
        )
        expected = self.expect(batch)
        assert (result.strategy, result.source_count) == ("apply_changes", batch.num_rows)
        counted = (result.inserted, result.updated, result.deleted)
        assert counted == (expected.inserted, expected.updated, expected.deleted)
        assert (result.late, result.not_found) == (expected.late, expected.not_found)
        assert result.target_count_before == sum(map(len, files.values()))
        assert result.target_count_after == len(expected.rows)
        assert self.rows() == Counter(lines(expected.rows))
        left = set(lines(expected.rows))
        changed = {name for name, rows in files.items() if not left.issuperset(lines(rows))}
        preserved = set(map(store.relative, result.preserved_files))
        assert preserved == files.keys() - changed
        assert all(store.tree()[name] == before[name] for name in preserved)
        assert set(store.leftovers()) <= set(leftovers)
        self.changes_nothing(given, **{**options, "transaction": None})
        return result

    def changes_nothing(self, batch: Any, **options: Any) -> MergeResult:
        """Apply what is known already: no row, no file, and no commit."""
        before, commits = self.target.store.tree(), len(self.commits())
        leftovers = self.target.store.leftovers()
        result = self.call(batch, **options)
        assert (result.inserted, result.updated, result.deleted) == (0, 0, 0)
        assert (result.rewritten_files, result.inserted_files) == ([], [])
        assert (self.target.store.tree(), len(self.commits())) == (before, commits)
        assert set(self.target.store.leftovers()) <= set(leftovers)
        return result

    def refuses(
        self, error: type[BaseException], batch: Any, match: str | None = None, **options: Any
    ) -> None:
        """Apply what must be refused before anything is written."""
        before, known = self.target.store.tree(), self.commits()
        for call in (self.target.io.plan_apply_changes, self.target.io.apply_changes):
            with pytest.raises(error, match=match):
                call(batch, **self.arguments(**options))
        assert (self.target.store.tree(), self.commits()) == (before, known)
        assert self.target.store.leftovers() == []


STATES = {  # what a key has met before an event with sequence 5 comes
    1: [],
    2: ["+3"],
    3: ["+5"],
    4: ["+7"],
    5: ["-3"],
    6: ["-5"],
    7: ["-7"],
    8: ["+3", "-4"],
    9: ["-3", "+4"],
    10: ["+3", "-7"],
    11: ["-3", "+7"],
    12: ["+7", "-9", "+8"],
}
BATCHES = {  # the event, and others of the same key beside it
    "alone": [],
    "twice": ["+5"],
    "deleted at once": ["-5"],
    "after an older one": ["+4"],
    "after an older deletion": ["-4"],
    "before a newer one": ["+6"],
    "before a newer deletion": ["-6"],
}


class FeedTests:
    """Events of one key in any order (SCD type 1 and 2)."""

    @BOTH_TYPES
    @pytest.mark.parametrize("event", ["+5", "-5"])
    @pytest.mark.parametrize("beside", BATCHES)
    def test_an_event_meets_every_state_of_its_key(
        self, target: Target, scd_type: int, event: str, beside: str
    ) -> None:
        feed = Feed(target, scd_type)
        states = STATES | {key + 100: steps for key, steps in STATES.items()}
        for step in range(3):
            before = [f"{key}{steps[step]}" for key, steps in states.items() if step < len(steps)]
            feed.apply(events(*before))
        batch = [event, *BATCHES[beside]]
        both = [f"{key}{one}" for key in states for one in batch[:: 1 if key < 100 else -1]]
        feed.apply(events(*both, v="new"))

    @BOTH_TYPES
    @EVERY_STORE
    def test_a_feed_on_every_store(self, target: Target, scd_type: int) -> None:
        feed = Feed(target, scd_type)
        feed.apply(events("1+1", "2+1", "3+1", "1+4"))
        feed.apply(events("1-3", "2-5", "4-2"))
        feed.apply(events("1+2", "2+4", "4+1", "4+3", "3+9"))

    def test_a_late_event_does_not_bring_a_deleted_row_back(self, target: Target) -> None:
        feed = Feed(target)
        feed.apply(events("1+1", "2+1"))
        assert feed.apply(events("1-5")).deleted == 1
        assert feed.apply(events("1+3", "1+4", "1+5")).late == 3
        assert feed.apply(events("1+6")).inserted == 1

    @BOTH_TYPES
    def test_deletes_alone_create_no_dataset_and_are_remembered(
        self, target: Target, scd_type: int
    ) -> None:
        feed = Feed(target, scd_type)
        feed.apply(events("1-5", "2-5"))
        assert data_files(target.store.tree()) == []
        feed.apply(events("1+4", "2+6"))

    @BOTH_TYPES
    def test_the_last_row_can_be_deleted(self, target: Target, scd_type: int) -> None:
        feed = Feed(target, scd_type)
        for one in ("1+1", "1-2", "1+1", "1+3", "1-4", "1+2"):
            feed.apply(events(one))

    @BOTH_TYPES
    def test_an_empty_batch_changes_nothing(self, target: Target, scd_type: int) -> None:
        feed = Feed(target, scd_type)
        feed.apply(events())
        feed.apply(events("1+1", "2-1"))
        feed.apply(events())

    @BOTH_TYPES
    def test_a_feed_without_deletes(self, target: Target, scd_type: int) -> None:
        feed = Feed(target, scd_type, apply_as_deletes=None)
        for batch in (events("1+3", "2+1"), events("1+2", "2+2", "3+1"), events("1+2")):
            feed.apply(batch)
        assert {entry.tombstones for entry in feed.commits()} <= {None, 0}

    @BOTH_TYPES
    def test_many_small_commits_of_deletes(self, target: Target, scd_type: int) -> None:
        feed = Feed(target, scd_type)
        feed.apply(events(*(f"{key}+1" for key in range(12))))
        for key in range(12):
            feed.apply(events(f"{key}-{key + 2}", f"{key + 20}-3"))
        feed.apply(events(*(f"{key}+{at}" for key in range(12) for at in (key + 1, key + 3))))
        feed.apply(events(*(f"{key + 20}+2" for key in range(12))))
        assert [entry.tombstones for entry in feed.commits()][1:13] == list(range(2, 25, 2))

    def test_rows_of_a_plain_dataset_can_be_changed(self, target: Target) -> None:
        feed = Feed(target)
        rows = events("1+5", "2+5", "3+5", "4+5")
        feed.knows(rows)
        for number in range(4):
            target.write(f"f{number}.parquet", rows.drop_columns(["gone"]).slice(number, 1))
        feed.model.rows = rows.drop_columns(["gone"]).to_pylist()
        result = feed.apply(events("1+4", "2-6", "3+6", "9+1"))
        assert (len(result.preserved_files), result.late) == (2, 1)

    @BOTH_TYPES
    def test_other_writers_keep_the_tombstones(self, target: Target, scd_type: int) -> None:
        feed = Feed(target, scd_type)
        feed.apply(events("1+1", "2+1"))
        feed.apply(events("1-5"))
        target.io.delete([2], target.store.path, "id")
        feed.model.rows = [row for row in feed.model.rows or () if row["id"] != 2]
        feed.apply(events("1+4"))


class VersionTests:
    """Every version of a row, with the sequences from which and until which it held."""

    def test_versions_end_where_the_next_change_begins(self, target: Target) -> None:
        feed = Feed(target, 2)
        feed.apply(events("1+1", "1+3", "1-5"))
        feed.apply(events("1+2", "1+7"))
        found = [
            (row["v"], row[START], row[END])
            for rows in target.files(
                pa.schema([("v", pa.string()), (START, pa.int64()), (END, pa.int64())])
            ).values()
            for row in rows
        ]
        assert sorted(found) == [("1@1", 1, 2), ("1@2", 2, 3), ("1@3", 3, 5), ("1@7", 7, None)]

    def test_versions_are_in_the_partitions_of_their_rows(self, target: Target) -> None:
        feed = Feed(target, 2, partition_by=["p"])

        def placed(p: str, *texts: str) -> pa.Table:
            table = events(*texts)
            return table.append_column("p", pa.array([p] * table.num_rows, pa.string()))

        feed.apply(pa.concat_tables([placed("a", "1+1", "2+1"), placed("b", "1+3", "3+1")]))
        feed.apply(placed("c", "1+2", "2-9", "3+0"))
        result = feed.apply(placed("a", "3+4"))
        assert (result.inserted, result.updated) == (1, 1)
        assert {name.partition("/")[0] for name in data_files(target.store.tree())} == {
            "p=a",
            "p=b",
            "p=c",
        }

    def test_the_sequence_need_not_be_stored(self, target: Target) -> None:
        feed = Feed(target, 2, except_column_list=["gone", "seq"])
        for batch in (events("1+1", "1+3"), events("1+2", "2-1"), events("1-4")):
            feed.call(batch)
        schema = pa.schema([("v", pa.string()), (START, pa.int64()), (END, pa.int64())])
        assert "seq" not in target.store.schema(data_files(target.store.tree())[0]).names
        expected = [{"v": f"1@{at}", START: at, END: at + 1} for at in (1, 2, 3)]
        assert target.rows(schema) == Counter(lines(expected))

    def test_versions_keep_their_other_columns(self, target: Target) -> None:
        feed = Feed(target, 2)

        def with_payload(*texts: str) -> pa.Table:
            table = events(*texts)
            payload = [{"tags": [at], "more": None} for at in table["seq"].to_pylist()]
            kind = pa.struct([("tags", pa.list_(pa.int64())), ("more", pa.string())])
            return table.append_column("payload", pa.array(payload, kind))

        feed.apply(with_payload("1+1", "2+1"))
        feed.apply(with_payload("1+3", "2-2"))
        feed.apply(with_payload("1+2"))

    def test_late_versions_after_tombstones_were_forgotten(self, target: Target) -> None:
        """The ends of versions that are stored are known from them."""
        feed = Feed(target, 2, tombstone_retention=NOTHING_KEPT)
        feed.call(events("1+1", "1-5"))
        feed.call(events("1+3"))
        schema = pa.schema([(START, pa.int64()), (END, pa.int64())])
        assert target.rows(schema) == Counter(lines([{START: 1, END: 3}, {START: 3, END: 5}]))

    def test_few_files_are_read_and_rewritten(self, target: Target) -> None:
        feed = Feed(target, 2)
        for start in (0, 10, 20):
            feed.apply(events(*(f"{key}+1" for key in range(start, start + 10))))
        result = feed.apply(events("13+2", "99+1"))
        assert (len(result.preserved_files), len(result.rewritten_files)) == (2, 1)


KEYS: dict[str, tuple[list[Any], list[pa.DataType]]] = {  # values, and types of the batches
    "string": (["a", "ä", ""], [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), "utf8")]),
    "decimal": (
        [Decimal("1.50"), Decimal("-2.00"), Decimal("0.00")],
        [pa.decimal128(9, 2), pa.decimal128(12, 4), pa.decimal128(5, 2)],
    ),
    "integer": ([1, -7, 2**31 - 1], [pa.int32(), pa.int64(), pa.int32()]),
    "timestamp": (
        [dt.datetime(1960, 1, day, 1, 2, 3) for day in (1, 2, 3)],
        [pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("s")],
    ),
    "zoned": (
        [dt.datetime(2020, 1, day, tzinfo=dt.UTC) for day in (1, 2, 3)],
        [pa.timestamp("us", "UTC"), pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("us", "UTC")],
    ),
    "date": ([dt.date(2020, 1, day) for day in (1, 2, 3)], [pa.date32()] * 3),
    "binary": ([b"", b"\xff", b"\x00"], [pa.binary(), pa.large_binary(), pa.binary()]),
    "float": ([0.5, float("nan"), -1.0], [pa.float64(), pa.float64(), pa.float64()]),
    "boolean": ([True, False], [pa.bool_()] * 3),
}
SEQUENCES: dict[str, tuple[pa.DataType, list[Any]]] = {  # ascending
    "integer": (pa.int32(), [-5, 0, 7, 9]),
    "unsigned": (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    "string": (pa.string(), ["", "A", "a", "ab"]),
    "float": (pa.float64(), [float("-inf"), -0.5, 1.0, float("nan")]),
    "decimal": (pa.decimal128(9, 2), [Decimal(f"{n}.10") for n in (-3, -1, 2, 10)]),
    "date": (pa.date32(), [dt.date(1960, 1, 1), *(dt.date(2020, 1, day) for day in (1, 2, 3))]),
    "timestamp": (
        pa.timestamp("us"),
        [dt.datetime(1960, 1, 1), *(dt.datetime(2020, 1, 1, 0, 0, 0, us) for us in (0, 1, 2))],
    ),
    "zoned": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(2020, 1, day, tzinfo=dt.UTC) for day in (1, 2, 3, 4)],
    ),
    "binary": (pa.binary(), [b"", b"\x01", b"\x7f", b"\xff"]),
}


class FeedColumnTests:
    """Keys, sequences and columns of every kind."""

    @BOTH_TYPES
    @pytest.mark.parametrize("kind", KEYS)
    def test_tombstones_know_keys_of_every_type(
        self, target: Target, scd_type: int, kind: str
    ) -> None:
        values, types = KEYS[kind]
        feed = Feed(target, scd_type)

        def batch(step: int, texts: str) -> pa.Table:
            table = events(
                *(f"{key}{text}" for key in range(len(values)) for text in texts.split())
            )
            keys = pa.array([values[key] for key in table["id"].to_pylist()])
            if pa.types.is_dictionary(types[step]):
                typed: Any = keys.cast(types[step].value_type).dictionary_encode()
            else:
                typed = keys.cast(types[step])
            return table.set_column(0, "id", typed)

        for step, texts in enumerate(["+1 -5", "+4 -7", "+3 +6"]):
            feed.apply(batch(step, texts))
        if scd_type == 1:
            assert not feed.model.rows
        feed.apply(batch(1, "+8"))

    @BOTH_TYPES
    @pytest.mark.parametrize("kind", SEQUENCES)
    def test_sequences_of_every_type(self, target: Target, scd_type: int, kind: str) -> None:
        typed, values = SEQUENCES[kind]
        feed = Feed(target, scd_type)
        for texts in ("1+1 2+0", "1-2 2-3", "1+0 2+2 3+3", "1+3 2+1 3+2"):
            table = events(*texts.split())
            at = pa.array([values[number] for number in table["seq"].to_pylist()], typed)
            feed.apply(table.set_column(2, "seq", at))

    @pytest.mark.parametrize(
        "types",
        [(pa.timestamp("ms"), pa.timestamp("us")), (pa.int32(), pa.int64())],
        ids=["timestamps", "integers"],
    )
    @BOTH_TYPES
    def test_sequences_of_other_units_between_batches(
        self, target: Target, scd_type: int, types: tuple[pa.DataType, pa.DataType]
    ) -> None:
        feed = Feed(target, scd_type)
        for step, texts in enumerate(["9+9", "1-4 2+1", "1+2 2-3", "1+3 2+2", "1+5 2+4"]):
            table = events(*texts.split())
            at = pc.multiply(table["seq"], 1000).cast(types[1]).cast(types[step % 2])
            feed.apply(table.set_column(2, "seq", at))

    @BOTH_TYPES
    def test_several_key_columns(self, target: Target, scd_type: int) -> None:
        feed = Feed(target, scd_type, keys=("id", "v"))
        for texts in (["1+1", "2+1"], ["1-3"], ["1+2", "2+5"]):
            for v in "ab":
                feed.apply(
                    events(*texts[:: 1 if v == "a" else -1], v=v).set_column(
                        1, "v", pa.array([v] * len(texts))
                    )
                )

    @pytest.mark.parametrize(
        "condition",
        ["op = 'd'", "op IN ('d', 'x') AND seq > 0", pc.field("op") == "d"],
        ids=["text", "list", "expression"],
    )
    @BOTH_TYPES
    def test_conditions_say_which_events_delete(
        self, target: Target, scd_type: int, condition: Any
    ) -> None:
        feed = Feed(target, scd_type, apply_as_deletes=condition, except_column_list=["op"])
        for texts in ("1+1 2+1", "1-3", "1+2 2-2"):
            table = events(*texts.split())
            ops = pc.if_else(table["gone"], "d", pa.scalar(None, pa.string()))
            given = table.drop_columns(["gone"]).append_column("op", ops)
            feed.apply(table, data=given)

    @BOTH_TYPES
    def test_listed_columns_are_stored(self, target: Target, scd_type: int) -> None:
        feed = Feed(target, scd_type, except_column_list=None, column_list=["seq", "id", "v"])
        feed.apply(events("1+1", "2+1"))
        feed.apply(events("1-2", "2+2"))
        names = target.store.schema(data_files(target.store.tree())[0]).names
        assert names[:3] == ["id", "v", "seq"]

    def test_deletes_need_only_key_and_sequence(self, target: Target) -> None:
        feed = Feed(target)
        feed.apply(events("1+1", "2+1"))
        bare = events("1-2").select(["id", "seq", "gone"])
        result = feed.call(bare.append_column("v", pa.nulls(1, pa.string())))
        assert result.deleted == 1

    def test_a_nested_payload(self, target: Target) -> None:
        feed = Feed(target)

        def nested(*texts: str) -> pa.Table:
            table = events(*texts)
            payload = [{"a": [at, None], "b": {"c": "x"}} for at in table["seq"].to_pylist()]
            return table.append_column("payload", pa.array(payload))

        feed.apply(nested("1+1", "2+1", "3-1"))
        feed.apply(nested("1+3", "2-3", "3+2"))
        feed.apply(nested("1+2", "2+2"))

    def test_a_key_that_moves_to_another_partition_is_refused(self, target: Target) -> None:
        feed = Feed(target, partition_by=["p"])
        table = events("1+1", "2+1")
        feed.apply(table.append_column("p", pa.array(["a", "b"])))
        moved = events("1+2").append_column("p", pa.array(["b"]))
        feed.refuses(PartitionMoveError, moved)
        feed.apply(events("1+2", "2-2").append_column("p", pa.array(["a", None], pa.string())))
        feed.apply(events("2+1").append_column("p", pa.array(["c"])))

    @pytest.mark.parametrize("last", ["1+5", "1-5"])
    def test_a_key_moves_between_partitions_in_any_order(self, target: Target, last: str) -> None:
        feed = Feed(target, partition_by=["p"], partition_change="move")
        batches = [
            ("1+2", "a"),
            ("1+1", "b"),
            (last, "c"),
            ("1+4", "d"),
            ("2+1", "a"),
            ("2+3", "b"),
        ]
        moved = [
            feed.apply(events(text).append_column("p", pa.array([part]))).moved
            for text, part in batches
        ]
        assert moved == [0, 0, int(last == "1+5"), 0, 0, 1]

    @BOTH_TYPES
    @pytest.mark.parametrize("values", [["a", "b"], [7, 8]], ids=["text", "numbers"])
    def test_deletes_whose_partition_column_has_no_type(
        self, target: Target, scd_type: int, values: list[Any]
    ) -> None:
        feed = Feed(target, scd_type, partition_by=["p"])
        feed.apply(events("1+1", "2+1").append_column("p", pa.array(values)))
        known = pa.array([None, None], pa.array(values).type)
        feed.expect(events("1-2", "3-2").append_column("p", known))
        feed.call(events("1-2", "3-2").append_column("p", pa.nulls(2)))
        feed.apply(events("1+1", "2+2").append_column("p", pa.array(values)))


class FeedCommitTests:
    """What a batch commits, and for how long deletions are remembered."""

    @BOTH_TYPES
    def test_a_numbered_batch_is_applied_once(self, target: Target, scd_type: int) -> None:
        feed = Feed(target, scd_type)
        feed.apply(events("1+1", "2+1"), transaction=Transaction("feed", 1))
        feed.apply(events("1-5", "3-2"), transaction=Transaction("feed", 2))
        before = target.store.tree()
        again = feed.call(events("1+9"), transaction=Transaction("feed", 2))
        assert again.metrics["commit"]["skipped"]
        assert target.store.tree() == before
        entry = feed.commits()[1]
        assert str(entry.transaction) == "feed:2"
        assert (entry.strategy, entry.counts["deleted"]) == ("apply_changes", 2 - scd_type)

    def test_a_batch_without_effect_is_recorded(self, target: Target) -> None:
        feed = Feed(target)
        feed.apply(events("1+5"), transaction=Transaction("feed", 1))
        feed.call(events("1+4"), transaction=Transaction("feed", 2))
        assert [str(entry.transaction) for entry in feed.commits()] == ["feed:1", "feed:2"]

    @BOTH_TYPES
    def test_a_plan_of_changes_can_be_executed(self, target: Target, scd_type: int) -> None:
        feed = Feed(target, scd_type)
        feed.apply(events("1+1", "2+1"), by_plan=True)
        assert "apply_changes" in str(feed.plan(events("1-2")))
        feed.apply(events("1-2", "3-1"), by_plan=True)
        feed.apply(events("1+1", "1+3", "3+0"), by_plan=True)

    @BOTH_TYPES
    def test_a_plan_is_stale_if_rows_have_changed(self, target: Target, scd_type: int) -> None:
        feed = Feed(target, scd_type)
        feed.apply(events("1+1", "2+1"))
        plan = feed.plan(events("1+3"))
        feed.apply(events("2+2"))
        with pytest.raises(StalePlanError):
            target.io.execute(plan)

    @BOTH_TYPES
    def test_a_plan_does_not_bring_a_row_back_that_is_deleted_meanwhile(
        self, target: Target, scd_type: int
    ) -> None:
        """The other writer changes no file, so only its tombstone says it."""
        feed = Feed(target, scd_type)
        feed.apply(events("1+1"))
        late = events("2+3")
        plan = feed.plan(late)
        feed.apply(events("2-5"))
        target.io.execute(plan)
        feed.expect(late)
        assert feed.rows() == Counter(lines(feed.model.rows or ()))

    @BOTH_TYPES
    def test_another_program_deletes_the_key_at_any_moment(
        self, connect: Callable[..., Any], target: Target, scd_type: int
    ) -> None:
        """A tombstone that is committed between plan and commit leads to another plan."""
        event, seen, at = 1, 1, 0
        feed = Feed(target, scd_type)
        feed.apply(events("0+1"))
        while event <= seen:
            at, seen = at + 1, 0

            def progress(*_: Any) -> None:
                nonlocal seen
                seen += 1
                if seen == event:  # noqa: B023
                    with connect(**target.store.options) as io:
                        guest = events(f"{at}-5")  # noqa: B023
                        io.apply_changes(guest, **feed.arguments())
                        feed.expect(guest)

            feed.call(events(f"{at}+3"), progress=progress)
            feed.expect(events(f"{at}+3"))  # whichever came first
            event += 1
            assert feed.rows() == Counter(lines(feed.model.rows or ()))
        assert event > 4

    def test_the_history_shows_tombstones_and_their_retention(self, target: Target) -> None:
        feed = Feed(target, tombstone_retention=dt.timedelta(days=3))
        feed.apply(events("1+1", "2+1"))
        feed.apply(events("1-2", "2-2", "3-2"))
        target.io.write_dataset(events("7+1").drop_columns(["gone"]), target.store.path)
        first, second, third = feed.commits()
        assert (second.tombstones, second.tombstone_seconds) == (3, 3 * 86400)
        assert "3 tombstones for 3 days" in str(second)
        assert "tombstone" not in f"{first}{third}"

    def test_a_tombstone_that_has_expired_does_not_count(self, target: Target) -> None:
        feed = Feed(target)
        feed.apply(events("1+1", "2+1"))
        feed.apply(events("1-5", "2-5"))
        late = feed.call(events("1+4"), tombstone_retention=NOTHING_KEPT)
        assert (late.inserted, late.late) == (1, 0)
        entry = feed.commits()[-1]
        assert (entry.tombstones, entry.tombstone_seconds) == (0, 0)
        assert feed.call(events("2+4")).inserted == 1, "they are gone for good"

    def test_guard_rails_hold_for_changes(self, target: Target) -> None:
        feed = Feed(target)
        feed.apply(events("1+1", "2+1"))
        before = target.store.tree()
        with pytest.raises(RewriteLimitError):
            feed.call(events("1+2"), max_rewrite_bytes=1)
        assert target.store.tree() == before
        feed.call(events("3+2"), max_rewrite_bytes=1)

    @pytest.mark.parametrize("kind", long_object_stores())
    @pytest.mark.slow
    @BOTH_TYPES
    def test_a_feed_into_a_bucket(
        self, connect: Callable[..., Any], kind: str, scd_type: int
    ) -> None:
        server = object_store(kind)
        store = bucket_store(server, server.make_bucket())
        with connect(**store.options) as io:
            feed = Feed(Target(io, store), scd_type)
            for texts in ("1+1 2+1 3-2", "1-5", "1+4 3+1 2-1", "2+3 1+7"):
                feed.apply(events(*texts.split()))


class FeedRefusalTests:
    """Input that is wrong is refused with an error that says so, and nothing is changed."""

    @pytest.fixture
    def feed(self, target: Target) -> Feed:
        feed = Feed(target)
        feed.apply(events("1+1", "2-1"))
        return feed

    @pytest.mark.parametrize(
        ("options", "match"),
        [
            ({"keys": []}, "key"),
            ({"keys": ["nothing"]}, "nothing"),
            ({"keys": ["id", "id"]}, "id"),
            ({"sequence_by": "nothing"}, "nothing"),
            ({"sequence_by": ""}, "sequence_by"),
            ({"sequence_by": 7}, "sequence_by"),
            ({"sequence_by": None}, "sequence_by"),
            ({"stored_as_scd_type": 3}, "stored_as_scd_type must be 1 or 2, got 3"),
            ({"stored_as_scd_type": "two"}, "stored_as_scd_type"),
            ({"stored_as_scd_type": True}, "stored_as_scd_type"),
            ({"stored_as_scd_type": None}, "stored_as_scd_type"),
            ({"stored_as_scd_type": [1]}, "stored_as_scd_type"),
            ({"except_column_list": ["id"]}, "key column 'id' must be stored"),
            ({"except_column_list": ["seq"]}, "sequence_by column 'seq' must be stored"),
            ({"except_column_list": ["nothing"]}, "nothing"),
            ({"except_column_list": None, "column_list": ["id", "v"]}, "'seq' must be stored"),
            ({"except_column_list": None, "column_list": ["v", "seq"]}, "'id' must be stored"),
            ({"column_list": ["id", "seq"]}, "cannot be given together"),
            ({"apply_as_deletes": "gone ="}, "apply_as_deletes"),
            ({"apply_as_deletes": "nothing = 1"}, "nothing"),
            ({"apply_as_deletes": "v = 1"}, "apply_as_deletes|v"),
            ({"apply_as_deletes": 7}, "apply_as_deletes"),
            ({"apply_as_deletes": pc.field("nothing")}, "nothing|apply_as_deletes"),
            ({"tombstone_retention": dt.timedelta(seconds=-1)}, "tombstone_retention"),
            ({"tombstone_retention": 7}, "tombstone_retention"),
        ],
        ids=repr,
    )
    def test_arguments_of_a_feed_are_checked(
        self, feed: Feed, options: dict[str, Any], match: str
    ) -> None:
        feed.refuses(InvalidArgumentError, events("1+2"), match, **options)

    @BOTH_TYPES
    def test_an_event_without_a_sequence_is_refused(self, target: Target, scd_type: int) -> None:
        feed = Feed(target, scd_type)
        feed.apply(events("1+1", "2-1"))
        table = events("1+2", "2+2")
        table = table.set_column(2, "seq", pa.array([3, None], pa.int64()))
        feed.refuses(InvalidArgumentError, table, "sequence_by 'seq' is NULL in 1 change")

    @pytest.mark.parametrize("values", [[[1]], [{"a": 1}]], ids=["list", "struct"])
    def test_a_nested_sequence_is_refused(self, target: Target, values: list[Any]) -> None:
        table = events("1+2").set_column(2, "seq", pa.array(values))
        Feed(target).refuses(InvalidArgumentError, table, "sequence_by 'seq'.*has no order")

    @pytest.mark.parametrize("name", RESERVED)
    @BOTH_TYPES
    def test_names_of_computed_columns_are_refused(
        self, target: Target, scd_type: int, name: str
    ) -> None:
        table = events("1+2").append_column(name, pa.array([1]))
        Feed(target, scd_type).refuses(InvalidArgumentError, table, name)

    @BOTH_TYPES
    @pytest.mark.parametrize("text", ["1+2", "1-2"])
    def test_a_null_key_is_refused(self, target: Target, scd_type: int, text: str) -> None:
        feed = Feed(target, scd_type)
        feed.apply(events("1+1", "2-1"))
        table = events(text).set_column(0, "id", pa.nulls(1, pa.int64()))
        feed.refuses(NullKeyError, table, "keys of the changes: 'id' has 1.*\nHint: leave")

    def test_versions_in_a_dataset_without_them_are_refused(self, feed: Feed) -> None:
        feed.refuses(SchemaMismatchError, events("1+2"), "keeps no versions", stored_as_scd_type=2)

    def test_rows_in_a_dataset_of_versions_are_refused(self, target: Target) -> None:
        feed = Feed(target, 2)
        feed.apply(events("1+1", "2-1"))
        feed.refuses(SchemaMismatchError, events("1+2"), START, stored_as_scd_type=1)

    @BOTH_TYPES
    def test_a_sequence_of_another_kind_is_refused(self, target: Target, scd_type: int) -> None:
        feed = Feed(target, scd_type)
        feed.apply(events("1+1", "2-1"))
        for texts in ("1+2", "2+2", "2-2"):
            table = events(*texts.split())
            table = table.set_column(2, "seq", table["seq"].cast(pa.string()))
            feed.refuses(ValueError, table, "'seq'|__START_AT")

    @BOTH_TYPES
    def test_a_key_of_another_kind_is_refused(self, target: Target, scd_type: int) -> None:
        feed = Feed(target, scd_type)
        feed.apply(events("1+1", "2-1"))
        for texts in ("1+2", "2+2", "2-2"):
            table = events(*texts.split())
            table = table.set_column(0, "id", table["id"].cast(pa.string()))
            feed.refuses(ValueError, table)

    @BOTH_TYPES
    @pytest.mark.parametrize("name", ["id", "seq"])
    def test_types_of_remembered_deletions_can_be_left_behind(
        self, target: Target, scd_type: int, name: str
    ) -> None:
        old = Feed(target, scd_type)
        old.apply(events("2-1"))
        table = events("2+0", "3-1")
        number = table.column_names.index(name)
        table = table.set_column(number, name, table[name].cast(pa.string()))
        old.refuses(SchemaMismatchError, table, "remembered(.|\n)*tombstone_retention")
        Feed(target, scd_type).apply(table, tombstone_retention=NOTHING_KEPT)

    def test_a_sequence_that_only_paths_would_have_is_refused(self, target: Target) -> None:
        feed = Feed(target, partition_by=["seq"])
        feed.refuses(InvalidArgumentError, events("1+1"), "sequence_by 'seq'.*only in paths")

    @BOTH_TYPES
    def test_a_key_without_an_order_is_refused(self, target: Target, scd_type: int) -> None:
        table = events("1+2", "2-2").set_column(0, "id", pa.array([[1], [2]]))
        Feed(target, scd_type).refuses(ValueError, table)
