"""Whole merges on an object store that fails: at each request, in every way a network fails.

moto answers on a real port; rules refuse requests, cut connections, or leave the client waiting.
After each fault the outcome that the merge has reported must be true, and so must the rows.

With FSSPECKIT_TORTURE=1 every request fails once in every way, and the figures go into the
documentation.
"""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3fs
from tests.storage.figures import write_line
from tests.storage.merging import KEYS, changes, table
from tests.storage.test_killed_merges import Merging, state

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import CommitPendingError, CommitUnknownError
from fsspeckit.storage import history, list_files, open_storage, recover
from fsspeckit.storage.storage import RecordNames
from fsspeckit.testing.conformance.stores import TORTURE
from fsspeckit.testing.object_stores import Moto, asked_by, moto, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.storage.merging import Rows
    from werkzeug.wrappers import Request, Response

    from fsspeckit.storage import Storage
    from fsspeckit.testing.object_stores import Answer

pytestmark = [pytest.mark.slow, pytest.mark.untraced]
PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "what-survives-what.md"
CHANGES = ("PutObject", "CopyObject", "DeleteObject", "DeleteObjects")
READ_TIMEOUT = 0.4
OLD: Rows = dict.fromkeys(range(KEYS), -1)
MERGED: Rows = {0: 1, 5: 1, 100: 1}
"""Changes two of four files, and adds one."""

LATER: Rows = {1: 2, 5: 2, 200: 2}
Outcome = Literal["succeeded", "unchanged", "pending", "unknown"]
OUTCOMES: tuple[Outcome, ...] = ("succeeded", "unchanged", "pending", "unknown")
"""By the exit code of a process that merges."""

COLUMNS = ("tried", "succeeded", "unchanged", "pending", "unknown", "lost or doubled")


def hang_up(request: Request) -> Response:
    """Cut the connection: whatever is answered does not arrive."""
    request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    return refusal(500, "NotSent", "the connection is cut")


@dataclass
class Fault:
    """Something that a store or a network does instead of answering a request."""

    name: str
    """What the table calls it."""

    does: Callable[[Request, Answer, list[Answer]], Response]
    """Answers; it may leave what is to be done when the client has given up."""

    changes_only: bool = False
    """Whether it befalls only requests that change something."""

    lasting: bool = False
    """Whether a repeated request fails as well, so that the merge sees it; or each one from then
    on, if it is about credentials."""

    every: int | None = None
    """How often it comes again; None if it comes once."""

    def befalls(self, number: int, seen: int, request: Request, hit: set[str]) -> bool:
        """Whether a request fails that is the ``seen``-th, if the ``number``-th is to fail."""
        if self.every is not None:
            return seen % self.every == number % self.every
        if seen == number:
            hit.add(request.method + request.full_path)
            return True
        return self.lasting and request.method + request.full_path in hit


def _busy(request: Request, answer: Answer, late: list[Answer]) -> Response:
    return refusal(503, "SlowDown", "Please reduce your request rate.")


def _broken(request: Request, answer: Answer, late: list[Answer]) -> Response:
    return refusal(500, "InternalError", "We encountered an internal error.")


def _silent(request: Request, answer: Answer, late: list[Answer]) -> Response:
    time.sleep(2 * READ_TIMEOUT)
    return hang_up(request)


def _delayed(request: Request, answer: Answer, late: list[Answer]) -> Response:
    request.environ["wsgi.input"] = io.BytesIO(request.get_data())
    late.append(answer)
    return hang_up(request)


def _before(request: Request, answer: Answer, late: list[Answer]) -> Response:
    return hang_up(request)


def _after(request: Request, answer: Answer, late: list[Answer]) -> Response:
    answer()
    return hang_up(request)


def _expired(request: Request, answer: Answer, late: list[Answer]) -> Response:
    return refusal(400, "ExpiredToken", "The provided token has expired.")


SINGLE = [
    Fault("503 SlowDown, once", _busy),
    Fault("503 SlowDown, repeats too", _busy, lasting=True),
    Fault("500 InternalError, once", _broken),
    Fault("500 InternalError, repeats too", _broken, lasting=True),
    Fault("no answer, once", _silent),
    Fault("no answer, repeats too", _silent, lasting=True),
    Fault("connection cut before a change, once", _before, changes_only=True),
    Fault("connection cut before a change, repeats too", _before, changes_only=True, lasting=True),
    Fault("connection cut after a change, once", _after, changes_only=True),
    Fault("connection cut after a change, repeats too", _after, changes_only=True, lasting=True),
    Fault("change done after the client gave up", _delayed, changes_only=True, lasting=True),
]
EVERY = {
    "503 SlowDown": _busy,
    "500 InternalError": _broken,
    "no answer": _silent,
    "connection cut before it": _before,
}


@dataclass
class Injection:
    """A rule for moto that lets a fault befall requests."""

    fault: Fault
    number: int
    hits: int = 0
    late: list[Answer] = field(default_factory=list)
    _seen: int = -1
    _hit: set[str] = field(default_factory=set)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: Request, answer: Answer) -> Response:
        if self.fault.changes_only and asked_by(request).action not in CHANGES:
            return answer()
        with self._turn:
            self._seen += 1
            befallen = self.fault.befalls(self.number, self._seen, request, self._hit)
            self.hits += befallen
        return self.fault.does(request, answer, self.late) if befallen else answer()


@dataclass(frozen=True)
class Dataset:
    """A dataset of four files on moto."""

    path: str
    bucket: str

    @classmethod
    def new(cls, server: Moto) -> Dataset:
        """Put it there, without a commit."""
        bucket = server.make_bucket()
        client = server.client()
        for start in range(0, KEYS, 3):
            data = io.BytesIO()
            pq.write_table(table(dict.fromkeys(range(start, start + 3), -1)), data)
            name = f"lake/data/{start}.parquet"
            client.put_object(Bucket=bucket, Key=name, Body=data.getvalue())
        return cls(server.at(bucket, "lake/data"), bucket)

    def storage(self, lock_timeout: float = 0.0) -> Storage:
        return open_storage(self.path, patient(), lock_timeout=lock_timeout)

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
        with PyarrowDatasetIO(filesystem=patient()) as io:
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


def patient() -> s3fs.S3FileSystem:
    """A client that repeats what fails."""
    return s3fs.S3FileSystem(**moto().options, use_listings_cache=False)


def hasty(*, repeats: bool) -> s3fs.S3FileSystem:
    """A client that does not wait for long, and repeats once what fails, or not at all."""
    settings = {"read_timeout": READ_TIMEOUT, "retries": {"max_attempts": 1 if repeats else 0}}
    options = {**moto().options, "config_kwargs": settings, "use_listings_cache": False}
    filesystem = s3fs.S3FileSystem(**options)
    filesystem.retries = 5 if repeats else 1
    return filesystem


def outcome_of(path: str, rows: Rows, filesystem: Any, lock_timeout: float = 0.0) -> Outcome:
    """Merge; what the merge says of itself."""
    try:
        with PyarrowDatasetIO(filesystem=filesystem, lock_timeout=lock_timeout) as io:
            io.merge(table(rows), path, "upsert", ["id"])
    except CommitUnknownError:
        return "unknown"
    except CommitPendingError:
        return "pending"
    except Exception:  # any other error says that nothing was changed
        return "unchanged"
    return "succeeded"


class Matrix:
    """Counts of one fault, for the table."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.counts: Counter[str] = Counter()

    def count(self, outcome: str, *, true: bool) -> None:
        self.counts.update(["tried", outcome] if true else ["tried", outcome, "lost or doubled"])

    def write(self) -> None:
        """Print the counts; put them into the page if every request had its turn."""
        line = (self.fault, *(f"{self.counts[column]:,}" for column in COLUMNS))
        sys.stdout.write(" | ".join(line) + "\n")
        if TORTURE:
            write_line(PAGE, "faults", line)
        assert self.counts["tried"]
        assert not self.counts["lost or doubled"]


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
    recover(dataset.path, patient(), lock_timeout=0.0)
    if dataset.plain_rows() != before:
        return False
    assert outcome_of(dataset.path, LATER, patient()) == "succeeded"
    recover(dataset.path, patient(), lock_timeout=0.0)
    dataset.assert_tidy(orphans=orphans)
    states = [entry.state for entry in history(dataset.path, patient())]
    assert len(states) == 1 + (before == new)
    return dataset.plain_rows() == sorted_rows(dict(before), LATER)


def try_at(fault: Fault, number: int, matrix: Matrix) -> bool:
    """Merge while a fault befalls a request; False if there is no request of this number."""
    server = moto()
    dataset = Dataset.new(server)
    injection = Injection(fault, number)
    filesystem = hasty(repeats=not fault.lasting)
    with server.following(injection):
        outcome = outcome_of(dataset.path, MERGED, filesystem)
    for answer in injection.late:
        answer()
    if not injection.hits:
        return False
    true = judge(dataset, outcome, orphans=bool(injection.late))
    matrix.count(outcome, true=true)
    assert true, (fault.name, number, outcome, dataset.plain_rows())
    return True


@pytest.mark.parametrize("fault", SINGLE, ids=lambda fault: fault.name)
def test_a_fault_at_each_request(fault: Fault) -> None:
    matrix = Matrix(fault.name)
    number, step = (0, 1) if TORTURE else (1, 5) if fault.changes_only else (5, 15)
    while try_at(fault, number, matrix):
        number += step
    matrix.write()


@dataclass
class OfTheRecord(Fault):
    """A fault of each request that puts the record."""

    def befalls(self, number: int, seen: int, request: Request, hit: set[str]) -> bool:
        return request.path.endswith("/commits/0000000001.json") and request.method == "PUT"


@pytest.mark.parametrize("when", ["before recovery", "after recovery", "never", "after another"])
def test_a_record_that_is_not_answered_may_be_put_later(when: str) -> None:
    """Its files are kept until a commit has its number: else it could never be completed."""
    dataset = Dataset.new(moto())
    injection = Injection(OfTheRecord("record", _delayed, changes_only=True), 0)
    with moto().following(injection):
        assert outcome_of(dataset.path, MERGED, hasty(repeats=False)) == "unknown"
    put = injection.late[0]
    if when == "after recovery":
        assert not recover(dataset.path, patient(), lock_timeout=0.0)
    if when == "after another":
        assert outcome_of(dataset.path, LATER, patient()) == "succeeded"
    if when != "never":
        put()
    assert outcome_of(dataset.path, LATER, patient()) == "succeeded"
    recover(dataset.path, patient(), lock_timeout=0.0)
    merged = MERGED if when in ("before recovery", "after recovery") else {}
    assert dataset.plain_rows() == sorted_rows(OLD, merged, LATER) == dataset.our_rows()
    dataset.assert_tidy()


@pytest.mark.parametrize("period", [3, 5, 7] if TORTURE else [5])
@pytest.mark.parametrize("kind", EVERY)
def test_a_fault_at_every_third_fifth_or_seventh_request(kind: str, period: int) -> None:
    fault = Fault(f"{kind}, one request in {period}", EVERY[kind], every=period)
    matrix = Matrix(fault.name)
    for number in range(period if TORTURE else 1):
        assert try_at(fault, number, matrix)
    matrix.write()


def test_credentials_that_expire_at_each_request() -> None:
    matrix = Matrix("credentials that expire")
    number = 0
    while try_at(ExpiredFrom("credentials", _expired, lasting=True), number, matrix):
        number += 1 if TORTURE else 9
    matrix.write()


@dataclass
class ExpiredFrom(Fault):
    """All requests fail from one on."""

    def befalls(self, number: int, seen: int, request: Request, hit: set[str]) -> bool:
        return seen >= number


_TIME_IN_LISTING = re.compile(r"<LastModified>([^<]*)</LastModified>")


def clock_off_by(hours: int) -> Callable[[Request, Answer], Response]:
    """A rule: the clock of the store is not that of the writers."""
    skew = timedelta(hours=hours)

    def in_listing(found: re.Match[str]) -> str:
        when = datetime.fromisoformat(found[1]) + skew
        text = when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        return f"<LastModified>{text}</LastModified>"

    def rule(request: Request, answer: Answer) -> Response:
        response = answer()
        for name in ("Last-Modified", "Date"):
            if name in response.headers:
                when = parsedate_to_datetime(response.headers[name]) + skew
                response.headers[name] = format_datetime(when.astimezone(UTC), usegmt=True)
        if asked_by(request).action == "ListObjectsV2":
            response.set_data(_TIME_IN_LISTING.sub(in_listing, response.get_data(as_text=True)))
        return response

    return rule


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_store_whose_clock_is_an_hour_off(hours: int) -> None:
    """What others stage, or let arrive, just now is not old; and a fault leaves what it left."""
    matrix = Matrix(f"clock of the store an hour {'ahead' if hours > 0 else 'behind'}")
    server = moto()
    dataset = Dataset.new(server)
    with server.following(clock_off_by(hours)):
        control = dataset.storage().control
        arriving = control.at("incoming", "query", "0000000001", "part.staged")
        staged = control.at(f".staging_{'0' * 32}", "part.staged")
        for path in (arriving, staged):
            patient().pipe_file(path, b"rows")
        outcome = outcome_of(dataset.path, MERGED, patient())
        recover(dataset.path, patient())
        assert patient().exists(arriving)
        assert patient().exists(staged)
        patient().rm([arriving, staged])
        true = judge(dataset, outcome)
        matrix.count(outcome, true=true)
        cut = Fault("cut", _after, changes_only=True, lasting=True)
        number = 0
        while try_at(cut, number, matrix):
            number += 1 if TORTURE else 9
    matrix.write()
    assert outcome == "succeeded"


HOSTS = ("host-a", "host-b")


class Pausing:
    """A rule: stops a process at one of its changes, and goes on when another has merged."""

    def __init__(self, number: int, *, held: bool) -> None:
        self._number = number
        self._held = held
        self._seen = -1
        self._turn = threading.Lock()
        self.process = 0
        self.is_paused = threading.Event()
        self.goes_on = threading.Event()

    def __call__(self, request: Request, answer: Answer) -> Response:
        with self._turn:
            if asked_by(request).action in CHANGES and not self.is_paused.is_set():
                self._seen += 1
                is_turn = self._seen == self._number
            else:
                is_turn = False
            if is_turn:
                # The client sends the bytes of a put only when it is asked to go on.
                request.environ["wsgi.input"] = io.BytesIO(request.get_data())
                os.kill(self.process, signal.SIGSTOP)
        if not is_turn:
            return answer()
        if not self._held:
            response = answer()
            self.is_paused.set()
            return response
        self.is_paused.set()
        self.goes_on.wait(60)
        return answer()


@contextmanager
def hosts() -> Iterator[Merging]:
    """Starts processes that merge into moto, and seem to be on hosts of their own."""
    merging = Merging("moto", moto())
    yield merging
    merging.close()


@pytest.mark.parametrize("held", [False, True], ids=["after a change", "before a change"])
def test_a_writer_on_another_host_that_is_paused_and_taken_over(held: bool) -> None:
    """It goes on when another has merged; a change that it had sent may be done only then."""
    matrix = Matrix(f"writer paused {'before' if held else 'after'} a change and taken over")
    with hosts() as merging:
        number = 1 if held else 0
        while take_over(merging, number, matrix, held=held):
            number += 1 if TORTURE else 6
    matrix.write()


def take_over(merging: Merging, number: int, matrix: Matrix, *, held: bool) -> bool:
    """Merge while a writer is paused at a change; False if it has no change of this number."""
    dataset = Dataset.new(moto())
    pausing = Pausing(number, held=held)
    with moto().following(pausing):
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
        taken = outcome_of(dataset.path, theirs, patient(), lock_timeout=0.3)
        pausing.goes_on.set()
        os.kill(pausing.process, signal.SIGCONT)
        waiting.join()
    outcome = OUTCOMES[end[0]]
    assert taken == "succeeded", (number, taken, outcome)
    recover(dataset.path, patient(), lock_timeout=0.3)
    mine = changes(0, 0, 2)
    new, old = sorted_rows(OLD, theirs, mine), sorted_rows(OLD, theirs)
    found = dataset.plain_rows()
    true = found == (old if outcome == "unchanged" else new) or (
        outcome == "unknown" and found in (old, new)
    )
    matrix.count(outcome, true=true and found == dataset.our_rows())
    assert true, (number, outcome, found)
    dataset.assert_tidy()
    return True


def test_two_hosts_merge_at_once() -> None:
    matrix = Matrix("two hosts merge at once")
    merges = 4
    with hosts() as merging:
        for run in range(20 if TORTURE else 1):
            dataset = Dataset.new(moto())
            for writer, host in enumerate(HOSTS):
                merging.start(dataset.path, 0, merges, writer, 2, host=host)
            ends = [OUTCOMES[merging.ask("wait")] for _ in HOSTS]
            expected = sorted_rows(state(merges, 0, 2), state(merges, 1, 2))
            true = dataset.plain_rows() == expected == dataset.our_rows()
            matrix.count("succeeded", true=true)
            assert ends == ["succeeded"] * 2, run
            assert true, run
            dataset.assert_tidy()
    matrix.write()
