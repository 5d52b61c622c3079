"""Filesystems without locks and renames: in memory, behind pyarrow, on an object store."""

from __future__ import annotations

import json
import logging
import os
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow as pa
import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import fs as arrow_fs
from pyarrow.fs import LocalFileSystem
from tests.storage.checks import read_consistently, read_plainly
from tests.storage.figures import count
from tests.storage.scenario import (
    FLAT,
    IN_PLACE,
    PARTITIONED,
    fresh,
    parquet_bytes,
    put,
    stage_change,
)

from fsspeckit.datasets.registry import open_engine
from fsspeckit.errors import CommitPendingError, ConcurrentModificationError, LostFileError
from fsspeckit.storage import (
    FileChanges,
    commit,
    history,
    history_of,
    open_storage,
    read_range,
    recover_storage,
    stable_files,
    staging,
    take_snapshot,
)
from fsspeckit.storage.commit import lock, recovery
from fsspeckit.storage.commit.lock import state_of, this_process
from fsspeckit.storage.commit.log import list_records
from fsspeckit.storage.fs import syscalls
from fsspeckit.storage.fs.backends import TEMPORARY_PREFIX
from fsspeckit.testing.conformance.stores import (
    OBJECT_STORES,
    TORTURE,
    killed_object_stores,
    object_store,
)
from fsspeckit.testing.object_stores import REGION, moto

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.storage.conftest import ForkServer
    from tests.storage.scenario import Scenario

    from fsspeckit.storage import Call, Storage

SCENARIOS = pytest.mark.parametrize(
    "scenario", [FLAT, PARTITIONED, IN_PLACE], ids=lambda item: item.name
)


def build_remote(scenario: Scenario, storage: Storage) -> None:
    for name, start in scenario.files.items():
        storage.root.filesystem.makedirs(storage.path(name).rpartition("/")[0], exist_ok=True)
        storage.root.filesystem.pipe_file(storage.path(name), parquet_bytes(start, "old"))


@pytest.fixture
def memory() -> Iterator[str]:
    place = f"memory://{uuid.uuid4().hex}"
    yield f"{place}/lake/data"
    fsspec.filesystem("memory").rm(place, recursive=True)


def change_it(scenario: Scenario, storage: Storage) -> Any:
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        return commit(storage, snapshot, stage, stage_change(scenario, storage, stage))


def assert_no_leftovers(storage: Storage) -> None:
    assert storage.backend.names(storage.control.path) in ([], ["commits"])
    found = storage.root.filesystem.find(storage.control.path, detail=True)
    files = [name for name, info in found.items() if info["type"] == "file"]
    # Where nobody knows who writes a record, one that is not whole stays for days.
    files = [name for name in files if not name.rpartition("/")[2].startswith(TEMPORARY_PREFIX)]
    assert not [name for name in files if not name.endswith(".json")]


@SCENARIOS
def test_a_commit_in_memory(memory: str, scenario: Scenario) -> None:
    storage = open_storage(memory)
    build_remote(scenario, storage)
    outcome = change_it(scenario, storage)
    assert outcome.published == "plain"
    assert len(outcome.missing) == 5
    assert any("no kernel lock" in sentence for sentence in outcome.missing)
    assert read_consistently(storage) == scenario.new()
    assert history(memory)[0].complete
    assert_no_leftovers(storage)


def test_a_commit_through_a_directory_filesystem(memory: str) -> None:
    lake = memory.removesuffix("/data")
    outer = DirFileSystem(lake.removeprefix("memory:/"), fsspec.filesystem("memory"))
    storage = open_storage("data", outer)
    build_remote(PARTITIONED, storage)
    change_it(PARTITIONED, storage)
    assert read_consistently(open_storage(memory)) == PARTITIONED.new()
    assert storage.root.to_user_path(storage.root.path) == "data"


class WithoutTimes(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """A filesystem that reports sizes alone."""

    protocol = "timeless"

    def info(self, path: str, **options: Any) -> Any:
        return {**super().info(path, **options), "created": None}

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        found = super().ls(path, detail=True, **options)
        sizes = [{**info, "created": None} for info in found]
        return sizes if detail else [info["name"] for info in sizes]

    def find(self, path: str, **options: Any) -> Any:
        found = AbstractFileSystem.find(self, path, **{**options, "detail": True})
        return found if options.get("detail") else list(found)


def test_a_merge_where_no_times_are_known() -> None:
    """A file of which nothing but its size is known is replaced all the same."""
    filesystem, path = WithoutTimes(), f"/{uuid.uuid4().hex}/data"
    with open_engine("pyarrow", filesystem=filesystem) as io:
        io.write_dataset(rows(1, 2, 3), path)
        merged = io.merge(rows(2, v="new"), path, "upsert", ["id"])
        assert read_ids(io, path) == [(1, "old"), (2, "new"), (3, "old")]
    assert merged.metrics["commit"]["notes"] == []
    filesystem.rm(path, recursive=True)


class Death(BaseException):
    """The process is dead: nothing that it would still do happens."""


class DyingAtTheMark:
    """Dies when everything is done but the mark that says so."""

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        if self._is_dead or call.paths[-1].endswith(".done.json"):
            self._is_dead = True
            raise Death
        yield

    _is_dead = False


class Dying:
    def __init__(self, at: int, *, after: bool) -> None:
        self.count = 0
        self._at = at
        self._after = after

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        index = self.count
        self.count += 1
        if index > self._at or (index == self._at and not self._after):
            raise Death
        yield
        if index == self._at:
            raise Death


@pytest.mark.slow
@SCENARIOS
def test_death_at_every_call_in_memory(memory: str, scenario: Scenario) -> None:
    die_everywhere(
        scenario, "memory", lambda name: open_storage(f"{memory}-{name}", lock_timeout=0.0)
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*killed_object_stores(), "hdfs"])
@pytest.mark.parametrize(
    "scenario", [FLAT, PARTITIONED, IN_PLACE] if TORTURE else [FLAT], ids=lambda item: item.name
)
def test_death_at_every_call_on_another_machine(kind: str, scenario: Scenario) -> None:
    server = object_store(kind)
    bucket = server.make_bucket(versioned=server.keeps_versions)

    def opened(name: str) -> Storage:
        place = server.at(bucket, f"{name}/data")
        return open_storage(place, storage_options=server.options, lock_timeout=0.0)

    die_everywhere(scenario, kind, opened, step=1 if TORTURE else 12 if kind == "hdfs" else 4)


def die_everywhere(
    scenario: Scenario, where: str, opened: Callable[[str], Storage], step: int = 1
) -> None:
    """Die at each call that changes something, before and after it; each time in a new place."""
    index = 0
    finished = False
    while not finished:
        for after in (False, True):
            storage = opened(f"{index}-{after}")
            build_remote(scenario, storage)
            dying = Dying(index, after=after)
            with suppress(Death), syscalls.observed(dying):
                change_it(scenario, storage)
            finished = dying.count <= index
            committed = bool(list_records(storage).recorded)
            expected = scenario.new() if committed else scenario.old()
            assert read_consistently(storage) == expected
            recover_storage(storage)
            assert read_consistently(storage) == expected
            assert sorted(storage.root.filesystem.find(storage.root.path)) == [
                file.path for file in take_snapshot(storage).listing.files
            ]
            assert_no_leftovers(storage)
            count(f"killed at every call, {where}, {scenario.name}", tried=1, losses=0)
        index += step


@pytest.mark.slow
@SCENARIOS
def test_death_at_every_call_behind_pyarrow(
    fork_server: ForkServer, quick_disk: str, scenario: Scenario
) -> None:
    """A real process dies on a filesystem that has neither locks nor renames."""
    root = f"{quick_disk}/x/data"
    filesystem = ArrowFSWrapper(LocalFileSystem())
    index = 0
    while True:
        fresh(scenario, f"{quick_disk}/x")
        answer = fork_server.run("commit", root, scenario=scenario.name, generic=True, kill=index)
        storage = open_storage(root, filesystem)
        committed = bool(list_records(storage).recorded)
        recover_storage(storage)
        assert read_plainly(root) == (scenario.new() if committed else scenario.old())
        assert_no_leftovers(storage)
        count(f"killed at every call, behind pyarrow, {scenario.name}", tried=1, losses=0)
        if answer["exit"] == 0:
            break
        index += 1


def test_staging_of_a_living_owner_is_left_alone(memory: str) -> None:
    storage = open_storage(memory)
    build_remote(FLAT, storage)
    with staging(storage) as stage:
        put(storage, stage.new_file(), parquet_bytes(0, "new"))
        report = recover_storage(storage)
        assert not report
        assert storage.backend.names(stage.path)


def described(**differences: Any) -> bytes:
    """The owner file of a process that is this one, but for some differences."""
    return json.dumps({**this_process(), "id": "another", **differences}).encode()


LONG_AGO, YEARS_AHEAD = "2020-01-01T00:00:00+00:00", "2999-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("owner", "gone"),
    [
        (described(namespace="elsewhere", time=LONG_AGO), True),
        (described(namespace="elsewhere", time=YEARS_AHEAD), False),
        (described(time=LONG_AGO), False),
        (described(pid=999999999, time=YEARS_AHEAD), True),
        (described(begun=1, time=YEARS_AHEAD), True),
        (described(namespace="elsewhere", pid=999999999), False),
        (described(namespace="elsewhere"), False),
        (b"garbage", False),
        (None, False),
    ],
    ids=[
        "forgotten",
        "young",
        "running",
        "dead",
        "its number was given to another",
        "another container with the same host name",
        "another container with the same host name and process number",
        "garbage",
        "no owner",
    ],
)
def test_staging_of_an_owner_elsewhere(memory: str, owner: bytes | None, gone: bool) -> None:
    storage = open_storage(memory)
    storage.prepare()
    name = f".staging_{'0' * 32}"
    storage.root.filesystem.pipe_file(storage.control.at(name, "x.staged"), b"x")
    if owner is not None:
        storage.root.filesystem.pipe_file(storage.control.at(name, "owner.json"), owner)
    report = recover_storage(storage)
    assert (name in report.discarded) is gone
    assert bool(storage.backend.names(storage.control.at(name))) is not gone


def test_a_process_that_is_hidden_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user may not see the processes of others in /proc, but they exist."""
    owner = this_process()
    monkeypatch.setattr(lock, "_start_of", lambda process: None)
    assert state_of(owner) == "unknown"
    assert state_of({**owner, "pid": 999999999}) == "gone"


class Interfering:
    """Another writer completes a commit, and commits on top, before the n-th request."""

    def __init__(self, at: int, act: Callable[[], object]) -> None:
        self._left = at
        self._act = act

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        self._left -= 1
        if self._left == 0:
            self._act()
        yield


@pytest.mark.parametrize("at", range(1, 14))
def test_a_commit_that_others_completed_is_not_abandoned(
    memory: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(memory, lock_timeout=0.0)
    build_remote(FLAT, storage)
    with pytest.raises(Death), syscalls.observed(DyingAtTheMark()):
        change_it(FLAT, storage)
    assert list_records(storage).recorded == [1]
    monkeypatch.setattr(recovery, "owner_state", lambda storage, name: "unknown")

    def complete_and_go_on() -> None:
        recover_storage(storage)
        snapshot = take_snapshot(storage)
        with staging(storage) as stage:
            added = put(storage, stage.new_file(), parquet_bytes(900, "later"))
            commit(storage, snapshot, stage, FileChanges([added]))

    interfering = Interfering(at, complete_and_go_on)
    with suppress(ConcurrentModificationError), syscalls.observed(interfering):
        recover_storage(storage, abandon=True)
    if interfering._left <= 0:
        assert read_consistently(storage) == sorted([*FLAT.new(), (900, "later"), (901, "later")])
    assert not any(entry.abandoned for entry in history_of(storage))


def test_a_way_out_where_files_of_both_states_are_lost(memory: str) -> None:
    """There is no trash on such a filesystem: neither state can be restored."""
    storage = open_storage(memory, lock_timeout=0.0)
    build_remote(FLAT, storage)
    with pytest.raises(Death), syscalls.observed(DyingAtTheMark()):
        change_it(FLAT, storage)
    filesystem = storage.root.filesystem
    added = [path for path in filesystem.find(storage.root.path) if "/part-" in path]
    filesystem.rm_file(added[0])
    for act in (recover_storage, stable_files):
        with pytest.raises(LostFileError, match="abandon=True"):
            act(storage)
    report = recover_storage(storage, abandon=True)
    assert report.completed[0].abandoned
    assert len(stable_files(storage).files) == len(added) - 1 + len(FLAT.preserved())


def test_a_forked_process_is_another_owner() -> None:
    """A child must not take what its parent stages for its own leftovers."""
    mine = this_process()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, json.dumps(this_process()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        theirs = json.loads(answer.read())
    os.waitpid(child, 0)
    assert theirs["id"] != mine["id"]
    assert (state_of(mine), state_of(theirs)) == ("running", "gone")


@pytest.fixture(params=OBJECT_STORES)
def bucket(request: pytest.FixtureRequest) -> Callable[[str], Storage]:
    """Opens datasets in a bucket of an object store."""
    server = object_store(request.param)
    name = server.make_bucket()
    options = {**server.options, "use_listings_cache": True}
    return lambda path: open_storage(server.at(name, path), storage_options=options)


@pytest.mark.slow
@SCENARIOS
def test_a_commit_on_an_object_store(bucket: Callable[[str], Storage], scenario: Scenario) -> None:
    storage = bucket(f"{scenario.name}/data")
    build_remote(scenario, storage)
    outcome = change_it(scenario, storage)
    assert len(outcome.missing) == 4
    assert read_consistently(storage) == scenario.new()
    assert_no_leftovers(storage)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["pyarrow", "duckdb"])
def test_small_files_on_an_object_store_behind_pyarrow(engine: str) -> None:
    server = moto()
    filesystem = arrow_fs.S3FileSystem(
        access_key=server.credentials["key"],
        secret_key=server.credentials["secret"],
        endpoint_override=server.url,
        region=REGION,
    )
    path = f"{server.make_bucket()}/lake/data"
    with open_engine(engine, filesystem=filesystem) as io:
        io.write_dataset(rows(1, 2, 3), path)
        plan = io.plan_merge(rows(2, 4, v="new"), path, "upsert", ["id"])
        assert [file.decision for file in plan.files] == ["affected"]
        merged = io.merge(rows(2, 4, v="new"), path, "upsert", ["id"])
        assert (merged.updated, merged.inserted) == (1, 1)
        expected = [(1, "old"), (2, "new"), (3, "old"), (4, "new")]
        assert read_ids(io, path) == expected
        io.write_dataset(rows(7), path, mode="overwrite")
        assert read_ids(io, path) == [(7, "old")]
    assert len(history(path, filesystem=filesystem)) == 3


def rows(*keys: int, v: str = "old") -> pa.Table:
    return pa.table({"id": list(keys), "v": [v] * len(keys)})


def read_ids(io: Any, path: str) -> list[tuple[int, str]]:
    return sorted((row["id"], row["v"]) for row in io.read_dataset(path).to_pylist())


def test_a_range_of_no_bytes_is_not_requested() -> None:
    root = open_storage("memory://nowhere/data").root
    assert read_range(root, f"{root.path}/missing.parquet", 0, 0) == b""


@pytest.mark.slow
def test_two_writers_on_an_object_store(bucket: Callable[[str], Storage]) -> None:
    """Both want the same number; the conditional put lets one of them have it."""
    storage = bucket("two/data")
    build_remote(FLAT, storage)
    snapshot = take_snapshot(storage)
    with staging(storage) as first, staging(storage) as second:
        one = put(storage, first.new_file(), parquet_bytes(700, "one"))
        two = put(storage, second.new_file(), parquet_bytes(800, "two"))

        class Overtaking:
            done = False

            @contextmanager
            def __call__(self, call: Call) -> Iterator[None]:
                if not self.done and call.paths[-1].endswith("0000000001.json"):
                    self.done = True
                    commit(storage, snapshot, second, FileChanges([two]))
                yield

        with syscalls.observed(Overtaking()), pytest.raises(ConcurrentModificationError):
            commit(storage, snapshot, first, FileChanges([one]))
    rows = read_consistently(storage)
    assert rows == sorted([*FLAT.old(), (800, "two"), (801, "two")])
    assert len(history_of(storage)) == 1
    assert_no_leftovers(storage)


@pytest.mark.slow
def test_credentials_are_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="fsspeckit")
    options = moto().opened_with({"key": "AKIA-LOUD-KEY", "secret": "hush-hush"})
    place = f"s3://{moto().make_bucket()}/secrets/data"
    storage = open_storage(place, storage_options=options)
    build_remote(FLAT, storage)
    change_it(FLAT, storage)

    class Failing:
        @contextmanager
        def __call__(self, call: Call) -> Iterator[None]:
            yield
            if call.paths[-1].endswith("0000000002.json"):
                raise OSError("the line is dead")

    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        file = put(storage, stage.new_file(), parquet_bytes(0, "x"))
        with syscalls.observed(Failing()), pytest.raises(CommitPendingError) as caught:
            commit(storage, snapshot, stage, FileChanges([file]))
    report = recover_storage(storage)
    texts = [repr(storage), repr(storage.root), str(caught.value), str(report), repr(report)]
    texts += [repr(history_of(storage)), caplog.text]
    filesystem = storage.root.filesystem
    texts += [filesystem.cat_file(path).decode() for path in filesystem.find(storage.control.path)]
    assert report.completed
    for text in texts:
        assert "hush" not in text
        assert "LOUD" not in text


def test_a_remote_file_where_a_directory_should_be(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "data"), ArrowFSWrapper(LocalFileSystem()))
    assert storage.backend.stat(str(tmp_path)) is None
    assert storage.backend.names(str(tmp_path / "nothing")) == []
    assert storage.backend.discard(str(tmp_path / "nothing")) is False


def test_what_is_not_there_is_named_with_its_scheme() -> None:
    with pytest.raises(
        FileNotFoundError, match=r"its control directory 'memory:///x/\.y\.fsspeckit'"
    ):
        open_storage("memory://x/y").check_exists()
