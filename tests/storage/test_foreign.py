"""Other programs know nothing of our lock: what they do meanwhile is neither lost nor undone."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.storage.checks import assert_tidy, read_plainly
from tests.storage.figures import count
from tests.storage.scenario import (
    FLAT,
    PARTITIONED,
    fresh,
    parquet_bytes,
    rewrite,
    run_commit,
)

from fsspeckit.errors import CommitPendingError, ConcurrentModificationError
from fsspeckit.storage import (
    DataFile,
    open_storage,
    recover,
    recover_storage,
    stable_files,
)
from fsspeckit.storage.commit.log import Remove
from fsspeckit.storage.fs import syscalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession
    from tests.storage.scenario import Scenario

    from fsspeckit.storage import Call

BOTH = pytest.mark.parametrize("publish", ["auto", "plain"])
THEIRS = parquet_bytes(900, "theirs")


class At:
    """Does something once, before the k-th call that changes the disk."""

    def __init__(self, index: int, action: Callable[[], None]) -> None:
        self.count = 0
        self.acted = False
        self._index = index
        self._action = action

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        if self.count == self._index:
            self.acted = True
            self._action()
        self.count += 1
        yield


def committed(scenario: Scenario, root: str, at: At, publish: Any) -> bool:
    """Commit while something happens; whether the change was made, after recovery."""
    try:
        with syscalls.observed(at):
            run_commit(scenario, root, publish=publish)
    except ConcurrentModificationError:
        return False
    except CommitPendingError:
        recover(root)
    return True


def every_step(
    scenario: Scenario, base: str, publish: Any, action: Callable[[str], None]
) -> Iterator[tuple[str, bool]]:
    """Commit again and again, with the action at each step; gives root and whether committed."""
    index = 0
    while True:
        root = fresh(scenario, base)
        at = At(index, lambda where=root: action(where))  # type: ignore[misc]
        done = committed(scenario, root, at, publish)
        if not at.acted:
            return
        yield root, done
        assert_tidy(root)
        index += 1


def replace_file(path: str, data: bytes) -> None:
    """Replace a file as careful programs do: under another name first."""
    temporary = f"{os.path.dirname(path)}/.theirs.tmp"
    Path(temporary).write_bytes(data)
    os.replace(temporary, path)


def append(name: str) -> Callable[[str], None]:
    def action(root: str) -> None:
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        replace_file(path, THEIRS)

    return action


@BOTH
@pytest.mark.parametrize(
    ("scenario", "name"),
    [
        (FLAT, "theirs.parquet"),
        (PARTITIONED, "p=0/theirs.parquet"),
        (PARTITIONED, "p=7/theirs.parquet"),
        (PARTITIONED, "p=9/theirs.parquet"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
@pytest.mark.slow
def test_a_file_appended_at_every_step(
    quick_disk: str, scenario: Scenario, name: str, publish: Any
) -> None:
    theirs = [(900, "theirs"), (901, "theirs")]
    for root, done in every_step(scenario, f"{quick_disk}/x", publish, append(name)):
        expected = sorted([*(scenario.new() if done else scenario.old()), *theirs])
        assert Path(root, name).read_bytes() == THEIRS
        assert read_plainly(root) == expected
        count(f"foreign append at every step, {publish}", tried=1, losses=0, **_state(done))


def _state(done: bool) -> dict[str, int]:
    return {"new" if done else "old": 1}


@BOTH
@pytest.mark.parametrize("name", ["f5.parquet", "f0.parquet"], ids=["preserved", "replaced"])
@pytest.mark.slow
def test_a_file_deleted_at_every_step(quick_disk: str, name: str, publish: Any) -> None:
    def delete(root: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(root, name))

    for root, done in every_step(FLAT, f"{quick_disk}/x", publish, delete):
        assert not os.path.exists(os.path.join(root, name))
        state = FLAT.new() if done else FLAT.old()
        gone = set() if done and name in FLAT.replaced else {FLAT.files[name], FLAT.files[name] + 1}
        assert read_plainly(root) == [row for row in state if row[0] not in gone]
        count(f"foreign deletion at every step, {publish}", tried=1, losses=0, **_state(done))


def overwrite(path: str, data: bytes) -> None:
    """Replace a file as careless programs do: the same file gets other bytes."""
    with open(path, "r+b") as file:
        file.truncate(0)
        file.write(data)


@BOTH
@pytest.mark.parametrize("name", ["f5.parquet", "f0.parquet"], ids=["preserved", "replaced"])
@pytest.mark.parametrize("way", [replace_file, overwrite])
@pytest.mark.slow
def test_a_file_replaced_at_every_step(
    quick_disk: str, name: str, way: Callable[[str, bytes], None], publish: Any
) -> None:
    missed: list[str] = []

    def action(root: str) -> None:
        path = os.path.join(root, name)
        missed[:] = [] if os.path.exists(path) else [path]
        if not missed:
            way(path, THEIRS)

    for root, done in every_step(FLAT, f"{quick_disk}/x", publish, action):
        if missed:
            continue  # the file was gone already: a new one would be an append
        assert Path(root, name).read_bytes() == THEIRS
        expected = dict(FLAT.old())
        if done:
            expected.update(FLAT.new())
        if not done or name == "f5.parquet":
            del expected[FLAT.files[name]], expected[FLAT.files[name] + 1]
        rows = sorted([*expected.items(), (900, "theirs"), (901, "theirs")])
        assert read_plainly(root) == rows
        count(f"foreign replacement at every step, {publish}", tried=1, losses=0, **_state(done))


def test_a_foreign_file_that_got_the_inode_of_a_replaced_one_is_kept(tmp_path: Path) -> None:
    """Disks give a number that is free again to the next file, which may have the same size."""
    root = Path(fresh(FLAT, str(tmp_path / "x")))
    path = root / "f0.parquet"
    inode, size = path.stat().st_ino, path.stat().st_size

    def refuse_removals(call: Call) -> AbstractContextManager[None]:
        if str(path) in call.paths:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return nullcontext()

    with pytest.raises(CommitPendingError), syscalls.observed(refuse_removals):
        run_commit(FLAT, str(root), publish="plain")
    theirs = THEIRS.ljust(size, b"\0")[:size]
    for _ in range(50):
        replace_file(str(path), theirs)
        if path.stat().st_ino == inode:
            break
    else:
        pytest.skip("this disk does not use the number of a deleted file again soon")
    assert str(path) in {pinned.file.path for pinned in stable_files(open_storage(root)).files}
    recover_storage(open_storage(root))
    assert path.read_bytes() == theirs


@pytest.mark.parametrize(
    ("found", "still"),
    [
        (DataFile("x", 9, 5, 1, birth_ns=2), True),
        (DataFile("x", 9, 6, 1, birth_ns=2), True),  # touched
        (DataFile("x", 9, 5, 7, birth_ns=8), True),  # restored from a copy
        (DataFile("x", 9, 5, 1, birth_ns=8), True),  # copied by an overlay filesystem
        (DataFile("x", 9, 6, 1, birth_ns=8), False),  # another file that got the inode
        (DataFile("x", 9, 6, 7, birth_ns=8), False),
        (DataFile("x", 8, 5, 1, birth_ns=2), False),
        (DataFile("x", 9, 6, 1), True),  # no times of creation here: the inode decides
    ],
)
def test_how_a_file_is_recognised_that_a_commit_removes(found: DataFile, still: bool) -> None:
    assert Remove("x", 9, 5, 1, birth_ns=2).is_still(found) is still


@BOTH
@pytest.mark.slow
def test_a_writer_with_an_open_file_goes_on_undisturbed(quick_disk: str, publish: Any) -> None:
    """It opens before the k-th step, and closes after the commit is long complete."""
    half = len(THEIRS) // 2
    opened: list[Any] = []

    def begin(root: str) -> None:
        opened.append(open(os.path.join(root, "_theirs.part"), "wb"))  # noqa: SIM115
        opened[-1].write(THEIRS[:half])
        opened[-1].flush()

    for root, done in every_step(FLAT, f"{quick_disk}/x", publish, begin):
        with opened.pop() as file:
            file.write(THEIRS[half:])
        os.rename(os.path.join(root, "_theirs.part"), os.path.join(root, "theirs.parquet"))
        theirs = [(900, "theirs"), (901, "theirs")]
        assert read_plainly(root) == sorted([*(FLAT.new() if done else FLAT.old()), *theirs])
        count(f"foreign open file across the commit, {publish}", tried=1, losses=0, **_state(done))


@pytest.mark.slow
def test_a_process_that_holds_the_directory(quick_disk: str) -> None:
    """What it creates through its handle is visible in the end, or creating it fails."""
    handles: list[int] = []
    created: list[bool] = []

    def create(root: str) -> None:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        try:
            file = os.open("theirs.parquet", flags, dir_fd=handles[-1])
        except FileNotFoundError:
            created.append(False)
            return
        os.write(file, THEIRS)
        os.close(file)
        created.append(True)

    index = 0
    while True:
        root = fresh(FLAT, f"{quick_disk}/x")
        handles.append(os.open(root, os.O_RDONLY))
        at = At(index, lambda: create(root))  # noqa: B023 - it runs within this turn
        committed(FLAT, root, at, "auto")
        os.close(handles.pop())
        if not at.acted:
            break
        recover(root)
        assert os.path.exists(os.path.join(root, "theirs.parquet")) == created[-1]
        assert_tidy(root)
        count("foreign directory handle at every step", tried=1, losses=0)
        index += 1
    assert {*created} == {True, False}


class Job:
    """A job that writes as Spark does: into ``_temporary``, renamed when it commits."""

    def __init__(self) -> None:
        self.root = ""
        self.failed = False

    def start(self, root: str) -> None:
        self.root, self.failed = root, False
        os.makedirs(os.path.join(root, "_temporary/0/task"))
        Path(root, "_temporary/0/task/part-theirs.parquet").write_bytes(THEIRS)

    def finish(self) -> None:
        try:
            os.rename(
                os.path.join(self.root, "_temporary/0/task/part-theirs.parquet"),
                os.path.join(self.root, "part-theirs.parquet"),
            )
        except FileNotFoundError:
            self.failed = True
        shutil.rmtree(os.path.join(self.root, "_temporary"), ignore_errors=True)


@BOTH
@pytest.mark.slow
def test_a_job_that_starts_at_every_step(quick_disk: str, publish: Any) -> None:
    job = Job()
    for root, done in every_step(FLAT, f"{quick_disk}/x", publish, job.start):
        job.finish()
        assert not job.failed
        theirs = [(900, "theirs"), (901, "theirs")]
        assert read_plainly(root) == sorted([*(FLAT.new() if done else FLAT.old()), *theirs])
        count(f"foreign job across the commit, {publish}", tried=1, losses=0, **_state(done))


@pytest.mark.slow
def test_a_job_that_runs_from_one_step_to_the_next(quick_disk: str) -> None:
    """It may fail if it overlaps an exchange; if it does not, its rows are there."""
    failures = 0
    for index in range(200):
        root = fresh(FLAT, f"{quick_disk}/x")
        job = Job()
        steps = At(index, lambda: job.start(root))  # noqa: B023 - it runs within this turn
        ends = At(index + 1, job.finish)

        @contextmanager
        def both(call: Call, first: At = steps, last: At = ends) -> Iterator[None]:
            with first(call), last(call):
                yield

        try:
            with syscalls.observed(both):
                run_commit(FLAT, root)
        except ConcurrentModificationError:
            pass
        if not ends.acted:
            break
        recover(root)
        failures += job.failed
        rows = [row for row in read_plainly(root) if row[0] >= 900]
        assert rows == ([] if job.failed else [(900, "theirs"), (901, "theirs")])
        count("foreign job within the commit", tried=1, losses=0, jobs_failed=int(job.failed))
    else:
        pytest.fail("the commit never ended")


@pytest.mark.slow
@pytest.mark.spark
def test_spark_appends_while_we_commit(spark: SparkSession, tmp_path: Path) -> None:
    root = fresh(FLAT, str(tmp_path / "x"))
    done = threading.Event()
    appended: list[int] = []
    failed: list[Exception] = []

    def append_rows() -> None:
        for number in range(6):
            start = 5000 + 10 * number
            frame = spark.createDataFrame(
                [(start, "spark"), (start + 1, "spark")], "id long, version string"
            )
            try:
                frame.coalesce(1).write.mode("append").parquet(root)
                appended.append(start)
            except Exception as error:  # whatever Spark makes of a directory that was swapped
                failed.append(error)
        done.set()

    thread = threading.Thread(target=append_rows)
    thread.start()
    commits = 0
    while not done.is_set():
        with suppress(ConcurrentModificationError):
            rewrite(root, f"v{commits}")
            commits += 1
    thread.join()
    recover_storage(open_storage(root))
    rows = [row for row, _ in read_plainly(root)]
    assert len(rows) == len(set(rows))
    assert {row for row, _ in FLAT.old()} <= set(rows)
    assert {start + offset for start in appended for offset in (0, 1)} <= set(rows)
    assert commits > 0
    assert appended
    count(
        "Spark appends while we commit",
        tried=6,
        losses=0,
        commits=commits,
        jobs_failed=len(failed),
    )
