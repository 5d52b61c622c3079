"""Whole merges on object stores that fail: at each request, in every way a network fails.

A server in front of each store follows rules: it refuses requests, cuts connections, or leaves the
client waiting. After each fault the outcome that the merge has reported must be true, and so must
the rows.

With FSSPECKIT_TORTURE=1 every request fails once in every way on every store, and the figures go
into the documentation. Else each way is tried at some requests, on one of the stores that are here.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.storage import figures
from tests.storage.faults import (
    CUT,
    EXPIRED,
    LATE_RECORD,
    PERIODIC,
    SINGLE,
    Injection,
    Pausing,
    clock_off_by,
    faulty,
    hang_up,
    is_change,
    names_in,
)
from tests.storage.hasty import hasty, patient
from tests.storage.merging import KEYS, changes, table
from tests.storage.test_killed_merges import Merging, state

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import CommitPendingError, CommitUnknownError
from fsspeckit.storage import history, list_files, open_storage, recover
from fsspeckit.storage.storage import RecordNames
from fsspeckit.testing.conformance.stores import TORTURE, stores_of_clouds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.storage.faults import Fault, FaultyStore
    from tests.storage.merging import Rows
    from werkzeug.wrappers import Request, Response

    from fsspeckit.storage import Storage
    from fsspeckit.testing.object_stores import Answer, ObjectStore

pytestmark = [pytest.mark.slow, pytest.mark.untraced]
PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "what-survives-what.md"
OLD: Rows = dict.fromkeys(range(KEYS), -1)
MERGED: Rows = {0: 1, 5: 1, 100: 1}
"""Changes two of four files, and adds one."""

LATER: Rows = {1: 2, 5: 2, 200: 2}
Outcome = Literal["succeeded", "unchanged", "pending", "unknown"]
OUTCOMES: tuple[Outcome, ...] = ("succeeded", "unchanged", "pending", "unknown")
"""By the exit code of a process that merges."""

CLOCKS = {-1: "clock of the store an hour behind", 1: "clock of the store an hour ahead"}
TAKEN_OVER = {
    False: "writer paused after a change and taken over",
    True: "writer paused before a change and taken over",
}
TWO_HOSTS = "two hosts merge at once"
MATRIX = figures.Matrix(
    PAGE,
    "faults",
    "fault",
    [
        *(fault.name for fault in (*SINGLE, *PERIODIC, EXPIRED)),
        *(*CLOCKS.values(), *TAKEN_OVER.values(), TWO_HOSTS),
    ],
)


def shared_by_stores(cases: Sequence[Any]) -> list[Any]:
    """Each case on every store, or on one of them: the stores take turns."""
    stores = stores_of_clouds()
    if TORTURE:
        return [(case, store) for case in cases for store in stores]
    turns = [number + number // len(stores) for number in range(len(cases))]
    return [(case, stores[turn % len(stores)]) for case, turn in zip(cases, turns, strict=True)]


def on_stores(name: str, cases: Sequence[Any]) -> pytest.MarkDecorator:
    """Parametrize by cases and stores."""
    shared = shared_by_stores(cases)
    ids = [f"{getattr(case, 'name', case)}-{store}" for case, store in shared]
    return pytest.mark.parametrize((name, "store"), shared, ids=ids, indirect=["store"])


@pytest.fixture
def store(request: pytest.FixtureRequest) -> FaultyStore:
    return faulty(request.param)


@dataclass(frozen=True)
class Dataset:
    """A dataset of four files on a store."""

    path: str
    server: ObjectStore

    @classmethod
    def new(cls, server: ObjectStore) -> Dataset:
        """Put it there, without a commit."""
        path = server.at(server.make_bucket(), "lake/data")
        for start in range(0, KEYS, 3):
            data = io.BytesIO()
            pq.write_table(table(dict.fromkeys(range(start, start + 3), -1)), data)
            patient(server).pipe_file(f"{path}/{start}.parquet", data.getvalue())
        return cls(path, server)

    def storage(self) -> Storage:
        return open_storage(self.path, patient(self.server), lock_timeout=0.0)

    def merge(self, rows: Rows, filesystem: Any = None, lock_timeout: float = 0.0) -> Outcome:
        """Merge; what the merge says of itself."""
        given = filesystem or patient(self.server)
        try:
            with PyarrowDatasetIO(filesystem=given, lock_timeout=lock_timeout) as io:
                io.merge(table(rows), self.path, "upsert", ["id"])
        except CommitUnknownError:
            return "unknown"
        except CommitPendingError:
            return "pending"
        except Exception:  # any other error says that nothing was changed
            return "unchanged"
        return "succeeded"

    def recover(self, lock_timeout: float = 0.0) -> Any:
        return recover(self.path, patient(self.server), lock_timeout=lock_timeout)

    def plain_rows(self) -> list[tuple[int, int]]:
        """The rows that any reader of plain files finds."""
        storage = self.storage()
        found: list[tuple[int, int]] = []
        for file in list_files(storage.root).files:
            data = pq.read_table(pa.BufferReader(storage.backend.read(file.path)))
            found += zip(data["id"].to_pylist(), data["v"].to_pylist(), strict=True)
        return sorted(found)

    def our_rows(self) -> list[tuple[int, int]]:
        """The rows that our own reader finds."""
        with PyarrowDatasetIO(filesystem=patient(self.server)) as io:
            data = io.read_dataset(self.path)
        return sorted(zip(data["id"].to_pylist(), data["v"].to_pylist(), strict=True))

    def assert_tidy(self, *, orphans: bool = False) -> None:
        """Nothing is left but data files and complete records.

        A staged file that was put long after its writer had removed its staging directory stays:
        without its owner file, nobody knows whose it is.
        """
        storage = self.storage()
        names = storage.backend.names(storage.control.path)
        if orphans:
            places = [name for name in names if name.startswith(".staging_")]
            found = [storage.backend.names(storage.control.at(name)) for name in places]
            assert not any("owner.json" in files for files in found)
            names = [name for name in names if name not in places]
        assert names in ([], ["commits"])
        listed = RecordNames.of(storage.backend.names(storage.control.commits))
        assert listed.pending == []


class Cell:
    """Counts of one fault on one store."""

    def __init__(self, fault: str, store: FaultyStore) -> None:
        self._fault = fault
        self._store = store.kind
        self._counts: Counter[str] = Counter()

    def count(self, outcome: str, *, true: bool) -> None:
        self._counts.update(["tried", outcome] if true else ["tried", outcome, "lost or doubled"])

    def write(self) -> None:
        """Print the counts; put them into the page if every request had its turn."""
        counts = (self._counts[name] for name in (*OUTCOMES, "lost or doubled"))
        text = f"{self._counts['tried']:,}: {' · '.join(f'{count:,}' for count in counts)}"
        sys.stdout.write(f"{self._fault}, {self._store}: {text}\n")
        if TORTURE:
            MATRIX.write(self._fault, self._store, text)
        assert self._counts["tried"]
        assert not self._counts["lost or doubled"]


def sorted_rows(*changes: Rows) -> list[tuple[int, int]]:
    rows: Rows = {}
    for one in changes:
        rows |= one
    return sorted(rows.items())


def judge(dataset: Dataset, outcome: Outcome, *, orphans: bool = False) -> bool:
    """Whether an outcome is true, before recovery, after it, and after one more merge."""
    old, new = sorted_rows(OLD), sorted_rows(OLD, MERGED)
    before = dataset.our_rows()
    possible = {"succeeded": [new], "pending": [new], "unchanged": [old], "unknown": [old, new]}
    if before not in possible[outcome]:
        return False
    if outcome == "succeeded" and dataset.plain_rows() != new:
        return False
    dataset.recover()
    if dataset.plain_rows() != before:
        return False
    assert dataset.merge(LATER) == "succeeded"
    dataset.recover()
    dataset.assert_tidy(orphans=orphans)
    states = [entry.state for entry in history(dataset.path, patient(dataset.server))]
    assert len(states) == 1 + (before == new)
    return dataset.plain_rows() == sorted_rows(dict(before), LATER)


def try_at(fault: Fault, number: int, store: FaultyStore, cell: Cell) -> bool:
    """Merge while a fault befalls a request; False if there is no request of this number."""
    dataset = Dataset.new(store.server)
    injection = Injection(fault, number, store.server.scheme)
    filesystem = hasty(store.server, repeats=not fault.lasting)
    with store.following(injection):
        outcome = dataset.merge(MERGED, filesystem)
    for answer in injection.late:
        answer()
    if not injection.hits:
        return False
    true = judge(dataset, outcome, orphans=bool(injection.late))
    cell.count(outcome, true=true)
    assert true, (fault.name, store.kind, number, outcome, dataset.plain_rows())
    return True


@pytest.mark.parametrize("store", stores_of_clouds(), indirect=True)
@pytest.mark.parametrize("repeats", [False, True], ids=["once", "twice"])
def test_a_hasty_client_asks_once_or_twice(
    store: FaultyStore, repeats: bool, tmp_path: Path
) -> None:
    """Else a fault that comes once would count as one that a client repeats by itself."""
    client = hasty(store.server, repeats=repeats)
    path, copy = "lake/data/0.parquet", str(tmp_path / "0.parquet")
    # To get a file, a client may look for it first.
    asked: list[tuple[Callable[[], object], int]] = [
        (lambda: client.cat_file(path, start=0), 1),
        (lambda: client.pipe_file(path, b"rows"), 1),
        (lambda: client.get_file(path, copy), 2),
    ]
    for ask, most in asked:
        injection = Injection(replace(PERIODIC[0], every=1), 0, store.server.scheme)
        with store.following(injection), pytest.raises(Exception, match=r".") as caught:
            ask()
        assert 1 + repeats <= injection.hits <= most * (1 + repeats), caught.value


@on_stores("fault", SINGLE)
def test_a_fault_at_each_request(fault: Fault, store: FaultyStore) -> None:
    cell = Cell(fault.name, store)
    number, step = (0, 1) if TORTURE else (1, 5) if fault.changes_only else (5, 15)
    while try_at(fault, number, store, cell):
        number += step
    cell.write()


@on_stores("when", ["before recovery", "after recovery", "never", "after another"])
def test_a_record_that_is_not_answered_may_be_put_later(when: str, store: FaultyStore) -> None:
    """Its files are kept until a commit has its number: else it could never be completed."""
    dataset = Dataset.new(store.server)
    injection = Injection(LATE_RECORD, 0, store.server.scheme)
    with store.following(injection):
        assert dataset.merge(MERGED, hasty(store.server, repeats=False)) == "unknown"
    put = injection.late[0]
    if when == "after recovery":
        assert not dataset.recover()
    if when == "after another":
        assert dataset.merge(LATER) == "succeeded"
    if when != "never":
        put()
    assert dataset.merge(LATER) == "succeeded"
    dataset.recover()
    merged = MERGED if when in ("before recovery", "after recovery") else {}
    assert dataset.plain_rows() == sorted_rows(OLD, merged, LATER) == dataset.our_rows()
    dataset.assert_tidy()


class InterruptedRecord:
    """Sends Ctrl-C to this process when a record is on its way, and puts it later, or never."""

    def __init__(self, *, is_put: bool) -> None:
        self._is_put = is_put
        self._interrupted = threading.Event()
        self.goes_on = threading.Event()
        self.ended = threading.Event()

    def __call__(self, request: Request, answer: Answer) -> Response:
        is_record = is_change(request) and "/commits/0000000001.json" in names_in(request)
        if not is_record:
            return answer()
        if not self._interrupted.is_set():
            self._interrupted.set()
            os.kill(os.getpid(), signal.SIGINT)
        assert self.goes_on.wait(60)
        response = answer() if self._is_put else hang_up(request)
        self.ended.set()
        return response


@on_stores("is_put", [True, False, True, False])
def test_ctrl_c_while_the_record_is_on_its_way(is_put: bool, store: FaultyStore) -> None:
    """The client goes on with the request in a thread of its own."""
    dataset = Dataset.new(store.server)
    rule = InterruptedRecord(is_put=is_put)
    with store.following(rule):
        with pytest.raises(KeyboardInterrupt) as caught:
            dataset.merge(MERGED, hasty(store.server, repeats=False))
        rule.goes_on.set()
        assert rule.ended.wait(60)
    (note,) = caught.value.__notes__
    assert "nobody knows whether commit 1 is recorded" in note
    assert dataset.merge(LATER) == "succeeded"
    dataset.recover()
    found = dataset.plain_rows()
    assert found == dataset.our_rows()
    without = [] if is_put else [sorted_rows(OLD, LATER)]  # clients may repeat it after all
    assert found in [sorted_rows(OLD, MERGED, LATER), *without]
    dataset.assert_tidy()


@on_stores("fault", PERIODIC if TORTURE else PERIODIC[1::3])
def test_a_fault_at_every_third_fifth_or_seventh_request(fault: Fault, store: FaultyStore) -> None:
    cell = Cell(fault.name, store)
    assert fault.every is not None
    for number in range(fault.every if TORTURE else 1):
        assert try_at(fault, number, store, cell)
    cell.write()


@on_stores("fault", [EXPIRED])
def test_credentials_that_expire_at_each_request(fault: Fault, store: FaultyStore) -> None:
    cell = Cell(fault.name, store)
    number = 0
    while try_at(fault, number, store, cell):
        number += 1 if TORTURE else 9
    cell.write()


@on_stores("hours", [*CLOCKS])
def test_a_store_whose_clock_is_an_hour_off(hours: int, store: FaultyStore) -> None:
    """What others stage, or let arrive, just now is not old; and a fault leaves what it left."""
    cell = Cell(CLOCKS[hours], store)
    dataset = Dataset.new(store.server)
    with store.following(clock_off_by(hours)):
        storage, filesystem = dataset.storage(), patient(store.server)
        arriving = storage.control.at("incoming", "query", "0000000001", "part.staged")
        staged = storage.control.at(f".staging_{'0' * 32}", "part.staged")
        for path in (arriving, staged):
            filesystem.pipe_file(path, b"rows")
        when = storage.backend.modified_below(storage.control.path)
        assert {round((at or 0) - time.time(), -2) for at in when.values()} == {hours * 3600}
        outcome = dataset.merge(MERGED)
        dataset.recover()
        for path in (arriving, staged):
            assert storage.backend.discard(path)
        true = judge(dataset, outcome)
        cell.count(outcome, true=true)
        number = 0
        while try_at(CUT, number, store, cell):
            number += 1 if TORTURE else 9
    cell.write()
    assert outcome == "succeeded"


HOSTS = ("host-a", "host-b")


@contextmanager
def hosts(store: FaultyStore) -> Iterator[Merging]:
    """Starts processes that merge into a store, and seem to be on hosts of their own."""
    merging = Merging(store.kind, store.server)
    yield merging
    merging.close()


@on_stores("held", [*TAKEN_OVER])
def test_a_writer_on_another_host_that_is_paused_and_taken_over(
    held: bool, store: FaultyStore
) -> None:
    """It goes on when another has merged; a change that it had sent may be done only then."""
    cell = Cell(TAKEN_OVER[held], store)
    with hosts(store) as merging:
        number = 1 if held else 0
        while take_over(merging, number, store, cell, held=held):
            number += 1 if TORTURE else 6
    cell.write()


def take_over(merging: Merging, number: int, store: FaultyStore, cell: Cell, *, held: bool) -> bool:
    """Merge while a writer is paused at a change; False if it has no change of this number."""
    dataset = Dataset.new(store.server)
    pausing = Pausing(number, held=held)
    with store.following(pausing):
        pausing.process = merging.start(dataset.path, 0, 1, writers=2, host=HOSTS[0])
        end: list[int] = []
        waiting = threading.Thread(target=lambda: end.append(merging.ask("wait")))
        waiting.start()
        while waiting.is_alive() and not pausing.is_paused.wait(0.05):
            pass
        if not pausing.is_paused.is_set():
            waiting.join()
            return False
        theirs = changes(0, 1, 2)
        taken = dataset.merge(theirs, lock_timeout=0.3)
        pausing.goes_on.set()
        os.kill(pausing.process, signal.SIGCONT)
        waiting.join()
    outcome = OUTCOMES[end[0]]
    assert taken == "succeeded", (number, taken, outcome)
    dataset.recover(lock_timeout=0.3)
    mine = changes(0, 0, 2)
    new, old = sorted_rows(OLD, theirs, mine), sorted_rows(OLD, theirs)
    found = dataset.plain_rows()
    true = found == (old if outcome == "unchanged" else new) or (
        outcome == "unknown" and found in (old, new)
    )
    cell.count(outcome, true=true and found == dataset.our_rows())
    assert true, (number, outcome, found)
    dataset.assert_tidy()
    return True


@on_stores("fault", [TWO_HOSTS])
def test_two_hosts_merge_at_once(fault: str, store: FaultyStore) -> None:
    cell = Cell(fault, store)
    merges = 4
    with hosts(store) as merging:
        for run in range(20 if TORTURE else 1):
            dataset = Dataset.new(store.server)
            for writer, host in enumerate(HOSTS):
                merging.start(dataset.path, 0, merges, writer, 2, host=host)
            ends = [OUTCOMES[merging.ask("wait")] for _ in HOSTS]
            expected = sorted_rows(state(merges, 0, 2), state(merges, 1, 2))
            true = dataset.plain_rows() == expected == dataset.our_rows()
            cell.count("succeeded", true=true)
            assert ends == ["succeeded"] * 2, run
            assert true, run
            dataset.assert_tidy()
    cell.write()
