"""HDFS through hdfs-native: a name node, a data node, and what a commit relies on."""

from __future__ import annotations

import errno
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from fsspeckit.datasets.registry import open_engine
from fsspeckit.storage import open_storage, recover_storage, take_snapshot
from fsspeckit.storage.fs.attributes import capabilities_of
from fsspeckit.storage.fs.backends import TEMPORARY_PREFIX
from fsspeckit.storage.fs.hdfs import translated
from fsspeckit.storage.roots import open_root
from fsspeckit.testing.conformance.stores import object_store

if TYPE_CHECKING:
    from fsspeckit.storage import Storage

WRITERS, ROUNDS = 6, 20


@pytest.fixture
def dataset() -> str:
    """The URL of a dataset that does not exist yet; skips the test where there is no HDFS."""
    server = object_store("hdfs")
    return server.at(server.make_bucket(), "lake/data")


def prepared(path: str) -> Storage:
    storage = open_storage(path)
    storage.prepare()
    return storage


@pytest.mark.slow
def test_a_process_that_has_used_it_may_be_forked(dataset: str) -> None:
    """A child that drops the client waits for threads that it does not have."""
    prepared(dataset)
    child = os.fork()
    if not child:
        os._exit(0)
    ended, deadline = 0, time.monotonic() + 20
    while not ended and time.monotonic() < deadline:
        ended, _ = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == child


@pytest.mark.slow
def test_one_of_many_writers_gets_a_name(dataset: str) -> None:
    """Its file is whole from the first moment, and nothing is left of the others."""
    storage, barrier = prepared(dataset), Barrier(WRITERS)
    control = storage.control.commits

    def create(round_: int, writer: int) -> int | None:
        barrier.wait()
        try:
            # Another backend for each, so that nothing but the name node decides.
            open_storage(dataset).backend.create(f"{control}/{round_}", b"%d" % writer * 100)
        except FileExistsError:
            seen = storage.backend.read(f"{control}/{round_}")
            assert len(seen) == 100
            return None
        return writer

    with ThreadPoolExecutor(WRITERS) as pool:
        for round_ in range(ROUNDS):
            answers = list(pool.map(create, [round_] * WRITERS, range(WRITERS)))
            (winner,) = [writer for writer in answers if writer is not None]
            assert storage.backend.read(f"{control}/{round_}") == b"%d" % winner * 100
    assert len(storage.backend.names(control)) == ROUNDS


@pytest.mark.slow
def test_a_move_replaces_only_where_it_should(dataset: str) -> None:
    storage = prepared(dataset)
    one, two, gone = (storage.control.at(name) for name in ("one", "two", "gone"))
    storage.backend.create(one, b"one")
    storage.backend.keep_copy(one, two)
    with pytest.raises(FileExistsError):
        storage.backend.move_new(one, two)
    with pytest.raises(FileNotFoundError):
        storage.backend.move_over(gone, two)
    storage.backend.overwrite(one, b"new")
    storage.backend.move_over(one, two)
    assert storage.backend.stat(one) is None
    assert storage.backend.read(two) == b"new"
    assert not storage.backend.discard_directory(storage.control.path)
    assert storage.backend.discard_tree(storage.control.path)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["pyarrow", "duckdb"])
def test_a_merge_on_hdfs(dataset: str, engine: str) -> None:
    with open_engine(engine) as io:
        io.write_dataset(pa.table({"id": range(4), "v": ["old"] * 4}), dataset, max_rows_per_file=2)
        changes = pa.table({"id": [3, 9], "v": ["new"] * 2})
        result = io.merge(changes, dataset, "upsert", ["id"])
        found = io.read_dataset(dataset).to_pylist()
    assert sorted((row["id"], row["v"]) for row in found) == [
        *((key, "old") for key in range(3)),
        *((3, "new"), (9, "new")),
    ]
    commit = result.metrics["commit"]
    missing = [sentence.partition(":")[0] for sentence in commit["missing"]]
    assert missing == ["no kernel lock", "no exchange of directories", "no trash", "no fsync"]
    assert commit["notes"] == []
    files = take_snapshot(open_storage(dataset)).listing.files
    assert all(file.mtime_ns for file in files)


@pytest.mark.slow
def test_a_record_that_nobody_finished_is_removed_after_days(dataset: str) -> None:
    storage = prepared(dataset)
    young, old = (f"{storage.control.commits}/{TEMPORARY_PREFIX}{name}" for name in ("a", "b"))
    for path in (young, old):
        storage.backend.create(path, b"half of a rec")
    storage.root.filesystem.client.set_times(old, 1, 1)
    recover_storage(storage)
    assert storage.backend.stat(young) is not None
    assert storage.backend.stat(old) is None


@pytest.mark.slow
def test_another_user_is_refused(dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = prepared(dataset)
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody-else")
    address = urlsplit(dataset)
    kind = type(storage.root.filesystem)
    filesystem = kind(address.hostname, address.port, skip_instance_cache=True)
    other = open_storage(address.path, filesystem)
    with pytest.raises(PermissionError, match="Permission denied"):
        other.backend.create(storage.control.at("x"), b"")
    with pytest.raises(PermissionError):
        other.backend.discard_tree(storage.control.path)


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ('RPCError("org.apache.hadoop.security.AccessControlException", "no")', errno.EACCES),
        ('RPCError("org.apache.hadoop.fs.PathIsNotEmptyDirectoryException")', errno.ENOTEMPTY),
        ('RPCError("org.apache.hadoop.ipc.StandbyException", "wait")', errno.EIO),
    ],
)
def test_errors_get_a_number(said: str, number: int) -> None:
    with pytest.raises(OSError, match="/x") as caught, translated("/x"):
        raise RuntimeError(said)
    assert caught.value.errno == number


def test_other_clients_promise_nothing() -> None:
    """Neither WebHDFS nor pyarrow's client can rename without replacing through fsspec."""
    capabilities = capabilities_of(open_root("webhdfs://127.0.0.1:9/x"))
    assert not capabilities.exclusive_create
    assert not capabilities.atomic_rename
