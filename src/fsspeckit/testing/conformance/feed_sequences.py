"""Random change feeds, cut into batches that arrive in any order, are killed and repeated."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsspeckit.storage import Transaction, open_storage, read_tombstones, recover
from fsspeckit.storage.fs import syscalls
from fsspeckit.testing.conformance.stores import TORTURE, open_store
from fsspeckit.testing.conformance.target import Target, lines
from fsspeckit.testing.feed_model import END, START, ModelFeed, feed_rows
from fsspeckit.testing.model import merge_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from fsspeckit.core.incremental import MergeResult
    from fsspeckit.storage import Call
    from fsspeckit.testing.conformance.stores import Store
    from fsspeckit.testing.model import ModelResult

__all__ = ["FeedSequenceTests"]

Event = tuple[int, int, bool]
"""Key, sequence, and whether it deletes."""

_WEEK = 7 * 86400.0
_SCHEMA = pa.schema(
    [("id", pa.int64()), ("v", pa.string()), ("seq", pa.int64()), ("gone", pa.bool_())]
)
_KINDS = ("rows", "versions", "merge")


class Death(BaseException):
    """The process is dead: nothing that it would still do happens."""


class Dying:
    """Dies at a call, and at every later one, so that nothing can be cleaned up."""

    def __init__(self, at: int) -> None:
        self._left = at

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        self._left -= 1
        if self._left < 0:
            raise Death
        yield


@dataclass(frozen=True)
class Arrival:
    """A batch that arrives, and what happens to it."""

    batch: int
    """Which batch of the feed; one that has arrived already is a replay."""

    kills: tuple[int, ...]
    """The calls at which an attempt to apply it dies, one attempt after the other."""


@dataclass(frozen=True)
class RandomFeed:
    """A feed, its batches, and how they arrive."""

    kind: str
    store: str
    is_partitioned: bool
    is_numbered: bool
    """Whether batches are transactions."""

    batches: tuple[tuple[Event, ...], ...]
    arrivals: tuple[Arrival, ...]

    @property
    def has_one_event_per_sequence(self) -> bool:
        """Whether the order of batches does not matter at all."""
        events = {event for batch in self.batches for event in batch}
        return len({event[:2] for event in events}) == len(events)

    def table(self, batch: int) -> pa.Table:
        """The rows of a batch; a value follows from key and sequence."""
        rows = [
            {"id": key, "v": None if gone else f"{key}@{at}", "seq": at, "gone": gone}
            for key, at, gone in self.batches[batch]
        ]
        table = pa.Table.from_pylist(rows, _SCHEMA)
        if self.is_partitioned:
            parts = [
                # Versions of a key are in several partitions, rows do not move.
                "ab"[(key + (at if self.kind == "versions" else 0)) % 2]
                for key, at, _ in self.batches[batch]
            ]
            table = table.append_column("p", pa.array(parts, pa.string()))
        return table

    @property
    def stored(self) -> pa.Schema:
        """The columns of the dataset."""
        fields = [field for field in self.table(0).schema if field.name != "gone"]
        if self.kind == "versions":
            fields += [pa.field(START, pa.int64()), pa.field(END, pa.int64())]
        return pa.schema(fields)


@st.composite
def random_feeds(draw: st.DrawFn, stores: tuple[str, ...]) -> RandomFeed:
    """Draw inserts, updates, deletes, duplicates, late events, replays and kills."""
    kind = draw(st.sampled_from(_KINDS))
    event = st.tuples(st.integers(0, 4), st.integers(0, 9), st.booleans())
    conflicts = kind != "merge" and draw(st.integers(0, 3)) == 0
    unique = (lambda one: one) if conflicts else (lambda one: one[:2])
    feed = draw(st.lists(event, min_size=2, max_size=16, unique_by=unique))
    arriving = [*feed, *draw(st.lists(st.sampled_from(feed), max_size=4))]
    if kind == "merge":  # only a feed in order can be merged
        arriving.sort(key=lambda one: one[1])
    else:
        arriving = draw(st.permutations(arriving))
    cuts = sorted(draw(st.sets(st.integers(1, len(arriving) - 1), max_size=4)))
    bounds = zip([0, *cuts], [*cuts, len(arriving)], strict=True)
    batches = tuple(tuple(arriving[start:end]) for start, end in bounds)
    arrivals = []
    for number in range(len(batches)):
        repeated = draw(st.none() | st.integers(number if kind == "merge" else 0, number))
        for batch in (number, repeated):
            if batch is not None:
                kills = draw(st.lists(st.integers(0, 45), max_size=2))
                arrivals.append(Arrival(batch, tuple(kills)))
    return RandomFeed(
        kind,
        draw(st.sampled_from(stores)),
        draw(st.booleans()),
        draw(st.booleans()),
        batches,
        tuple(arrivals),
    )


class _Run:
    """One feed, applied to a dataset and to the model."""

    def __init__(self, feed: RandomFeed, io: Any, store: Store, figures: Counter[str]) -> None:
        self._feed = feed
        self._io = io
        self._store = store
        self._figures = figures
        self._model = ModelFeed(["id"], "seq", "gone", 2 if feed.kind == "versions" else 1)
        self._applied: dict[int, tuple[int, ...]] = {}

    def run(self) -> None:
        for arrival in self._feed.arrivals:
            self._arrive(arrival)
        self._check()
        self._figures["sequences"] += 1

    def _arrive(self, arrival: Arrival) -> None:
        before = self._figures["kills"]
        for at in arrival.kills:
            try:
                with syscalls.observed(Dying(at)):
                    result = self._call(arrival.batch)
                break
            except Death:
                self._figures["kills"] += 1
        else:
            result = self._call(arrival.batch)
        died = self._figures["kills"] > before
        self._figures["batches"] += 1
        self._figures["retries"] += died
        self._figures["replays"] += arrival.batch in self._applied
        counts = _counts(result)
        if self._is_skipped(arrival.batch):
            assert result.metrics["commit"]["skipped"]
            return
        expected = _counts(self._expect(arrival.batch))
        if not died or self._feed.is_numbered:
            assert counts == expected
        self._applied[arrival.batch] = expected

    def _is_skipped(self, batch: int) -> bool:
        return self._feed.is_numbered and bool(self._applied) and batch <= max(self._applied)

    def _call(self, batch: int) -> MergeResult:
        feed, table = self._feed, self._feed.table(batch)
        options: dict[str, Any] = {"partition_by": ["p"] if feed.is_partitioned else None}
        if feed.is_numbered:
            options["transaction"] = Transaction("feed", batch)
        result: MergeResult
        if feed.kind == "merge":
            options |= {"delete_when": "gone", "only_newer": "seq", "order_by": ["seq"]}
            result = self._io.merge(table, self._store.path, "upsert", ["id"], **options)
            return result
        options |= {"apply_as_deletes": "gone", "except_column_list": "gone"}
        options["stored_as_scd_type"] = self._model.scd_type
        result = self._io.apply_changes(table, self._store.path, ["id"], "seq", **options)
        return result

    def _expect(self, batch: int) -> ModelResult:
        rows = self._feed.table(batch).to_pylist()
        if self._feed.kind != "merge":
            return self._model.apply(rows)
        rules: dict[str, Any] = {"order_by": ["seq"], "only_newer": "seq"}
        result = merge_rows(self._model.rows, rows, "upsert", ["id"], delete_when="gone", **rules)
        self._model.rows = result.rows if result.rows or self._model.rows is not None else None
        return result

    def _check(self) -> None:
        """Every batch is applied, nothing is left over, and all tombstones are there."""
        with suppress(*([FileNotFoundError] if self._model.rows is None else [])):
            recover(self._store.path, **self._store.opening)
        assert self._store.leftovers() == []
        expected = Counter(lines(self._model.rows or ()))
        assert self._rows() == expected
        if self._feed.has_one_event_per_sequence:
            model = self._model
            events = [row for n in self._applied for row in self._feed.table(n).to_pylist()]
            whole = feed_rows(events, model.keys, model.sequence, model.is_delete, model.scd_type)
            assert Counter(lines(whole)) == expected
        if self._feed.kind != "merge":
            self._check_tombstones()

    def _rows(self) -> Counter[str]:
        return Target(None, self._store).rows(self._feed.stored)

    def _check_tombstones(self) -> None:
        """The next commit that deletes removes what killed ones have left."""
        options: dict[str, Any] = {"apply_as_deletes": "gone", "except_column_list": "gone"}
        row = {"id": 99, "seq": 99, "gone": True, "p": "a"}
        last = pa.Table.from_pylist([row], self._feed.table(0).schema)
        options["stored_as_scd_type"] = self._model.scd_type
        self._io.apply_changes(last, self._store.path, ["id"], "seq", **options)
        storage = open_storage(self._store.path, **self._store.opening)
        found, data = read_tombstones(storage, _WEEK)
        assert len(data) == len(found.files)
        names = storage.backend.names(storage.control.tombstones)
        assert sorted(names) == sorted(file.name for file in found.files)


def _counts(result: MergeResult | ModelResult) -> tuple[int, ...]:
    return result.inserted, result.updated, result.deleted, result.late, result.not_found


class FeedSequenceTests:
    """Whatever dies and however often a batch comes, the rows are those of the feed."""

    feed_sequences = (40, 500)
    """How many random feeds are applied, in the short and in the long form."""

    def test_random_sequences_of_feeds(
        self, connect: Callable[..., Any], engine: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        memory = getattr(self, "supports_memory_filesystem", True)
        stores = ("exchange", "plain", *(["memory", "arrow"] if memory else []))
        figures: Counter[str] = Counter()

        @given(feed=random_feeds(stores))
        @settings(
            max_examples=self.feed_sequences[TORTURE],
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        def apply(feed: RandomFeed) -> None:
            with ExitStack() as stack:
                store = stack.enter_context(open_store(feed.store))
                io = stack.enter_context(connect(**store.options))
                _Run(feed, io, store, figures).run()

        apply()
        counted = ", ".join(f"{count:,} {name}" for name, count in sorted(figures.items()))
        with capsys.disabled() if TORTURE else nullcontext():
            print(f"\nfeeds on {engine}: {counted}")  # noqa: T201 - the figures are what it is for
