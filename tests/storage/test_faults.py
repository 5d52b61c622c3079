"""Disks that are full, refuse, or lose files: the outcome is told by type, and nothing is lost."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.storage.checks import assert_tidy, assert_untouched, read_plainly, remember
from tests.storage.conftest import REPOSITORY
from tests.storage.figures import count
from tests.storage.scenario import (
    FLAT,
    IN_PLACE,
    ONE_PARTITION,
    PARTITIONED,
    fresh,
    parquet_bytes,
    put,
    run_commit,
    stage_change,
)

from fsspeckit.errors import (
    CommitPendingError,
    CommitUnknownError,
    LockTimeoutError,
    LostFileError,
    UnreadableFileError,
)
from fsspeckit.storage import (
    DataFile,
    FileChanges,
    commit,
    history,
    open_storage,
    recover,
    recover_storage,
    stable_files,
    staging,
    take_snapshot,
)
from fsspeckit.storage.commit.lock import hold_lock
from fsspeckit.storage.commit.log import list_records, read_record
from fsspeckit.storage.commit.staging import staging_paths
from fsspeckit.storage.fs import syscalls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from tests.storage.conftest import ForkServer
    from tests.storage.scenario import Scenario

    from fsspeckit.storage import Call

STEP = 1 if os.environ.get("TORTURE") else 4
BOTH = pytest.mark.parametrize("publish", ["auto", "plain"])
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can mount")


class Refusing:
    """A disk that answers some calls with an error."""

    def __init__(self, names: set[str], code: int, part: str = "", *, once: bool = False) -> None:
        self._names = names
        self._code = code
        self._part = part
        self._once = once
        self.refused = 0

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        hit = call.name in self._names and any(self._part in path for path in call.paths)
        if hit and not (self._once and self.refused):
            self.refused += 1
            raise OSError(self._code, os.strerror(self._code), call.paths[0])
        yield


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Any]:
    """Mounts small disks in memory, and takes them away again."""
    places: list[str] = []

    def mount(name: str, options: str = "size=256k") -> str:
        place = tmp_path / name
        place.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("mounting is not allowed here")
        places.append(str(place))
        return str(place)

    yield mount
    for place in reversed(places):
        # Lazily: a thread of pyarrow may hold a file for a moment longer.
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(place: str, left: int) -> None:
    """Leave only so many bytes on a disk."""
    status = os.statvfs(place)
    with open(f"{place}/filling", "wb") as file:
        file.write(b"\0" * max(0, status.f_bavail * status.f_frsize - left))


@AS_ROOT
@BOTH
@pytest.mark.parametrize("left", range(0, 65536, 4096))
def test_a_full_disk(mounted: Any, left: int, publish: Any) -> None:
    """Whatever fits and whatever does not: the state is the old or the new one."""
    place = mounted("disk")
    root = fresh(FLAT, f"{place}/x")
    fill(place, left)
    try:
        run_commit(FLAT, root, publish=publish)
        outcome, expected = "new", FLAT.new()
    except CommitPendingError:
        outcome, expected = "new", FLAT.new()
    except OSError:
        outcome, expected = "old", FLAT.old()
        assert read_plainly(root) == expected
    os.unlink(f"{place}/filling")
    recover(root)
    assert read_plainly(root) == expected
    assert_tidy(root)
    count(f"full disk, {publish}", tried=1, losses=0, **{outcome: 1})


@BOTH
@pytest.mark.parametrize(
    ("where", "outcome"),
    [(".shadow_", "done"), ("commits/.new_", "unchanged"), (".done.json", "pending")],
    ids=["shadow", "record", "completion"],
)
def test_a_disk_that_is_full_at_a_step(
    tmp_path: Path, where: str, outcome: str, publish: Any
) -> None:
    root = fresh(FLAT, str(tmp_path / "x"))
    refusing = Refusing({"create", "write", "mkdir", "link", "rename"}, errno.ENOSPC, where)
    with syscalls.observed(refusing):
        assert _outcome(FLAT, root, publish) == outcome
    if outcome == "unchanged":
        assert read_plainly(root) == FLAT.old()
        return
    recover(root)
    assert read_plainly(root) == FLAT.new()
    assert_tidy(root)


def _outcome(scenario: Scenario, root: str, publish: Any) -> str:
    try:
        run_commit(scenario, root, publish=publish)
    except CommitPendingError:
        return "pending"
    except OSError:
        return "unchanged"
    return "done"


@pytest.mark.parametrize("code", [errno.EPERM, errno.EMLINK, errno.EXDEV, errno.ENOTSUP])
def test_hard_links_refused(tmp_path: Path, code: int) -> None:
    root = fresh(PARTITIONED, str(tmp_path / "x"))
    seen = remember(PARTITIONED, root)
    with syscalls.observed(Refusing({"link"}, code)):
        outcome = run_commit(PARTITIONED, root)
    assert outcome.published == "plain"
    assert "published without exchange" in outcome.notes[0]
    assert read_plainly(root) == PARTITIONED.new()
    assert_untouched(seen, root)
    assert_tidy(root)


def test_a_disk_without_renames_that_refuse_to_overwrite(tmp_path: Path) -> None:
    root = fresh(FLAT, str(tmp_path / "x"))
    with syscalls.observed(Refusing({"rename_new", "exchange"}, errno.EINVAL)):
        outcome = run_commit(FLAT, root)
    assert outcome.published == "plain"
    assert read_plainly(root) == FLAT.new()
    assert_tidy(root)


def test_a_disk_that_knows_neither_links_nor_flags(tmp_path: Path) -> None:
    root = fresh(FLAT, str(tmp_path / "x"))
    with syscalls.observed(Refusing({"rename_new", "exchange", "link"}, errno.EPERM)):
        assert run_commit(FLAT, root).published == "plain"
    assert read_plainly(root) == FLAT.new()
    assert_tidy(root)


def test_in_place_on_a_disk_without_links(tmp_path: Path) -> None:
    root = fresh(IN_PLACE, str(tmp_path / "x"))
    with syscalls.observed(Refusing({"link", "exchange"}, errno.EPERM)):
        assert run_commit(IN_PLACE, root).published == "plain"
    assert read_plainly(root) == IN_PLACE.new()
    assert_tidy(root)


def test_a_disk_without_locks(tmp_path: Path) -> None:
    root = fresh(FLAT, str(tmp_path / "x"))
    with syscalls.observed(Refusing({"flock"}, errno.ENOTSUP)):
        assert run_commit(FLAT, root).published == "plain"
    recover(root)
    assert read_plainly(root) == FLAT.new()
    assert_tidy(root)


def test_a_lock_that_fails_is_an_error(tmp_path: Path) -> None:
    root = fresh(FLAT, str(tmp_path / "x"))
    with syscalls.observed(Refusing({"flock"}, errno.EIO)), pytest.raises(OSError, match="error"):
        run_commit(FLAT, root)
    assert read_plainly(root) == FLAT.old()


def test_the_exchange_is_refused_after_the_commit_point(tmp_path: Path) -> None:
    root = fresh(PARTITIONED, str(tmp_path / "x"))
    with syscalls.observed(Refusing({"exchange"}, errno.EBUSY)):
        outcome = run_commit(PARTITIONED, root)
    assert outcome.published == "plain"
    assert read_plainly(root) == PARTITIONED.new()
    assert_tidy(root)


@AS_ROOT
@BOTH
def test_a_root_that_is_a_mount_point(mounted: Any, publish: Any) -> None:
    """The control directory is on another disk: files are copied, and there is no trash."""
    root = mounted("x/data", "size=4m")
    for name, start in PARTITIONED.files.items():
        path = Path(root, name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(parquet_bytes(start, "old"))
    outcome = run_commit(PARTITIONED, root, publish=publish)
    assert outcome.published == "plain"
    assert read_plainly(root) == PARTITIONED.new()
    leftovers = [name for _, _, names in os.walk(root) for name in names if name[0] == "."]
    assert leftovers == []
    assert_tidy(root)


@AS_ROOT
@pytest.mark.slow
def test_death_at_calls_on_a_mount_point(fork_server: ForkServer, mounted: Any) -> None:
    root = mounted("x/data", "size=8m")
    control = open_storage(root).control.path
    index = 0
    while True:
        for name in os.listdir(root):
            subprocess.run(["rm", "-rf", f"{root}/{name}"], check=True)
        subprocess.run(["rm", "-rf", control], check=True)
        for name, start in FLAT.files.items():
            Path(root, name).write_bytes(parquet_bytes(start, "old"))
        answer = fork_server.run("commit", root, scenario="flat", kill=index)
        committed = bool(list_records(open_storage(root)).recorded)
        recover(root)
        expected = FLAT.new() if committed else FLAT.old()
        assert read_plainly(root) == expected
        names = {name for name in os.listdir(root) if not name.endswith(".parquet")}
        assert names == set()
        count("killed, root on a disk of its own", tried=1, losses=0)
        if answer["exit"] == 0:
            break
        index += STEP


@AS_ROOT
def test_a_disk_mounted_below_the_root(mounted: Any, tmp_path: Path) -> None:
    root = fresh(PARTITIONED, str(tmp_path / "x"))
    mounted("x/data/p=5 of mine")
    outcome = run_commit(PARTITIONED, root)
    assert outcome.published == "plain"
    assert read_plainly(root) == PARTITIONED.new()


def run_as_nobody(code: str) -> subprocess.CompletedProcess[str]:
    """Run Python code as a user without rights."""
    drop = "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
    return subprocess.run(
        [sys.executable, "-c", "import pyarrow.parquet, tests.storage.scenario\n" + drop + code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


_COMMIT_AS_NOBODY = """
from tests.storage.scenario import SCENARIOS, run_commit
outcome = run_commit(SCENARIOS['flat'], {root!r}, publish={publish!r})
print(outcome.published)
"""


@AS_ROOT
@BOTH
def test_permission_denied_before_anything(quick_disk: str, publish: str) -> None:
    root = fresh(FLAT, f"{quick_disk}/x")
    os.chmod(quick_disk, 0o755)
    result = run_as_nobody(_COMMIT_AS_NOBODY.format(root=root, publish=publish))
    assert "PermissionError" in result.stderr
    control = open_storage(root).control.path
    assert f"preparing to write in the control directory '{control}'" in result.stderr
    assert "control_dir=" in result.stderr
    assert read_plainly(root) == FLAT.old()


@pytest.mark.parametrize(
    ("name", "part", "phase"),
    [("mkdir", ".opening_", "staging"), ("create", "/lock", "locking")],
    ids=["staging", "lock"],
)
@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_control_directory_that_cannot_be_written(
    tmp_path: Path, name: str, part: str, phase: str, code: int
) -> None:
    root = fresh(FLAT, str(tmp_path / "x"))
    control = open_storage(root).control.path
    told = f"{phase} in the control directory '{control}': {os.strerror(code)}"
    refusing = Refusing({name}, code, part)
    with syscalls.observed(refusing), pytest.raises(OSError, match=re.escape(told)) as caught:
        run_commit(FLAT, root)
    assert caught.value.errno == code
    assert "Hint: let this process write there, or pass control_dir=" in str(caught.value)
    assert read_plainly(root) == FLAT.old()


@AS_ROOT
@BOTH
def test_a_dataset_that_cannot_be_written(quick_disk: str, publish: str) -> None:
    """The control directory can be written, the dataset cannot: told before the commit."""
    root = fresh(FLAT, f"{quick_disk}/x")
    os.chmod(quick_disk, 0o755)
    os.chmod(f"{quick_disk}/x", 0o777)
    result = run_as_nobody(_COMMIT_AS_NOBODY.format(root=root, publish=publish))
    assert "PermissionError" in result.stderr
    recover(root)
    assert read_plainly(root) == FLAT.old()
    assert_tidy(root)


_CALL_AS_NOBODY = """
from fsspeckit.storage import recover
print(recover({root!r}, abandon={abandon}))
"""


@AS_ROOT
@pytest.mark.parametrize("abandon", [False, True])
def test_recovery_of_a_dataset_that_cannot_be_written(quick_disk: str, abandon: bool) -> None:
    """Told by the name of the directory, with nothing changed; works once it can be written."""
    root = fresh(FLAT, f"{quick_disk}/x")
    with syscalls.observed(Vanishing(lose=abandon)), pytest.raises(CommitPendingError):
        run_commit(FLAT, root, publish="plain")
    before = sorted(os.listdir(root))
    subprocess.run(["chown", "-R", "65534", f"{quick_disk}/x"], check=True)
    os.chmod(quick_disk, 0o755)
    os.chmod(root, 0o555)
    code = _CALL_AS_NOBODY.format(root=root, abandon=abandon)
    result = run_as_nobody(code)
    assert "PermissionError" in result.stderr
    assert f"the commit would change this directory, which is not writable: '{root}'" in (
        result.stderr
    )
    assert sorted(os.listdir(root)) == before
    os.chmod(root, 0o755)
    done = run_as_nobody(code)
    assert ("abandoned commit 1" if abandon else "completed commit 1") in done.stdout, done.stderr
    assert read_plainly(root) == (FLAT.old() if abandon else FLAT.new())


@BOTH
def test_permission_denied_half_way(tmp_path: Path, publish: Any) -> None:
    """Rights are taken away after the commit point: committed, but pending."""
    root = fresh(FLAT, str(tmp_path / "x"))
    refusing = Refusing({"exchange", "rename_new"}, errno.EACCES, f"{root}/part-")
    exchanging = Refusing({"exchange"}, errno.EACCES)

    @contextmanager
    def both(call: Call) -> Iterator[None]:
        with refusing(call), exchanging(call):
            yield

    with syscalls.observed(both), pytest.raises(CommitPendingError, match="Permission denied"):
        run_commit(FLAT, root, publish=publish)
    assert refusing.refused == 1
    with syscalls.observed(both), pytest.raises(PermissionError, match="Permission denied"):
        recover(root)
    recover(root)
    assert read_plainly(root) == FLAT.new()
    assert_tidy(root)


@AS_ROOT
def test_files_of_other_owners_are_published_plainly(quick_disk: str) -> None:
    root = fresh(FLAT, f"{quick_disk}/x")
    for place in (quick_disk, f"{quick_disk}/x", root):
        os.chmod(place, 0o777)
    result = run_as_nobody(_COMMIT_AS_NOBODY.format(root=root, publish="auto"))
    assert result.stdout.strip() == "plain", result.stderr
    assert read_plainly(root) == FLAT.new()


def test_a_staged_file_that_vanishes_before_the_commit(tmp_path: Path) -> None:
    storage = open_storage(fresh(FLAT, str(tmp_path / "x")))
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        change = stage_change(FLAT, storage, stage)
        os.unlink(change.adds[2].path)
        with pytest.raises(FileNotFoundError, match="not there"):
            commit(storage, snapshot, stage, change)
    assert read_plainly(storage.root.path) == FLAT.old()
    assert_tidy(storage.root.path)


class Vanishing:
    """Deletes a staged file right after the record was written, and fails what follows."""

    def __init__(self, *, lose: bool = True) -> None:
        self._lose = lose

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        yield
        if call.name == "rename_new" and call.paths[-1].endswith("0000000001.json"):
            control = Path(call.paths[-1]).parents[1]
            if self._lose:
                next(control.glob(".staging_*/*.staged")).unlink()
            raise OSError(errno.EIO, "the disk is gone")


@pytest.mark.parametrize("scenario", [FLAT, IN_PLACE], ids=lambda item: item.name)
def test_a_staged_file_that_vanishes_after_the_commit(tmp_path: Path, scenario: Scenario) -> None:
    root = fresh(scenario, str(tmp_path / "x"))
    with syscalls.observed(Vanishing()), pytest.raises(CommitPendingError):
        run_commit(scenario, root, publish="plain")
    with pytest.raises(LostFileError, match="abandon=True"):
        recover(root)
    for name in scenario.files:
        assert Path(root, name).exists()
    report = recover(root, abandon=True)
    assert report.completed[0].abandoned
    assert "abandoned commit 1" in str(report)
    assert read_plainly(root) == scenario.old()
    assert history(root)[0].abandoned
    assert_tidy(root)


def test_an_unknown_outcome_deletes_nothing(tmp_path: Path) -> None:
    """Neither writing the record nor looking for it worked."""
    root = fresh(FLAT, str(tmp_path / "x"))
    storage = open_storage(root, publish="plain")
    snapshot = take_snapshot(storage)
    directory = Path(storage.control.record(1))
    with staging(storage) as stage:
        change = stage_change(FLAT, storage, stage)

        class Blinding:
            @contextmanager
            def __call__(self, call: Call) -> Iterator[None]:
                if call.name == "rename_new" and call.paths[-1] == str(directory):
                    directory.mkdir()  # neither absent nor readable
                    raise OSError(errno.EIO, "no answer")
                yield

        with syscalls.observed(Blinding()), pytest.raises(CommitUnknownError, match="did not tell"):
            commit(storage, snapshot, stage, change)
    assert all(Path(file.path).exists() for file in change.adds)
    directory.rmdir()
    recover(root)
    assert read_plainly(root) == FLAT.old()
    assert_tidy(root)


def test_a_staged_file_that_is_not_parquet(tmp_path: Path) -> None:
    storage = open_storage(fresh(FLAT, str(tmp_path / "x")))
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        torn = put(storage, stage.new_file(), parquet_bytes(0, "new")[:-20])
        with pytest.raises(UnreadableFileError, match="not readable as Parquet"):
            commit(storage, snapshot, stage, FileChanges([torn]))
    assert read_plainly(storage.root.path) == FLAT.old()


@pytest.mark.parametrize(("field", "value"), [("rows", 3), ("size", 5)])
def test_a_staged_file_that_is_not_what_its_writer_said(
    tmp_path: Path, field: str, value: int
) -> None:
    storage = open_storage(fresh(FLAT, str(tmp_path / "x")))
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        file = put(storage, stage.new_file(), parquet_bytes(0, "new"))
        wrong = replace(file, rows=value) if field == "rows" else replace(file, size=value)
        with pytest.raises(UnreadableFileError, match=f"instead of {value}"):
            commit(storage, snapshot, stage, FileChanges([wrong]))


class Interrupting:
    """Somebody presses Ctrl-C, before or after a call."""

    def __init__(self, at: int, when: str) -> None:
        self.count = 0
        self._at = at
        self._when = when

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        index = self.count
        self.count += 1
        if index == self._at and self._when == "before":
            raise KeyboardInterrupt
        try:
            yield
        finally:
            if index == self._at:
                raise KeyboardInterrupt


@BOTH
@pytest.mark.slow
def test_an_interrupt_says_what_it_left(quick_disk: str, publish: Any) -> None:
    """With its note the change is committed; without it nothing was changed."""
    index = 0
    while True:
        for when in ("before", "after"):
            root = fresh(FLAT, f"{quick_disk}/x")
            interrupting = Interrupting(index, when)
            try:
                with syscalls.observed(interrupting):
                    run_commit(FLAT, root, publish=publish)
            except KeyboardInterrupt as interrupt:
                committed = "commit 1 is committed" in "".join(getattr(interrupt, "__notes__", []))
            else:
                assert interrupting.count <= index
                return
            assert stable_files(open_storage(root)).number == int(committed)
            recover(root)
            assert read_plainly(root) == (FLAT.new() if committed else FLAT.old())
            assert_tidy(root)
            state = "new" if committed else "old"
            count(f"interrupted at every call, {publish}", tried=1, losses=0, **{state: 1})
        index += 1


@pytest.mark.parametrize("where", ["record", "publish"])
def test_an_interrupt_between_the_calls_after_the_record(tmp_path: Path, where: str) -> None:
    """The staged files belong to the record by then: the commit is completed by recovery."""
    root = fresh(FLAT, str(tmp_path / "x"))

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if event == "call" and frame.f_code.co_name == "_phase" and frame.f_locals["name"] == where:
            sys.settrace(None)
            raise KeyboardInterrupt
        return None

    before = sys.gettrace()
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            _commit_traced(root, trace)
    finally:
        sys.settrace(before)
    if where == "record":
        assert "commit 1 is committed" in caught.value.__notes__[0]
        assert getattr(caught.value, "committed", None) == 1
    assert list_records(open_storage(root)).recorded == [1]
    recover(root)
    assert read_plainly(root) == FLAT.new()
    assert_tidy(root)


def _commit_traced(root: str, trace: Any) -> None:
    sys.settrace(trace)
    run_commit(FLAT, root, publish="plain")


def test_the_lock_says_who_holds_it(tmp_path: Path) -> None:
    root = fresh(FLAT, str(tmp_path / "x"))
    storage = open_storage(root, lock_timeout=0.05)
    storage.prepare()
    with hold_lock(storage), pytest.raises(LockTimeoutError, match=f"process {os.getpid()} on"):
        run_commit(FLAT, root, lock_timeout=0.05)
    with hold_lock(storage):
        Path(storage.control.lock).write_bytes(b"garbage")
        with pytest.raises(LockTimeoutError, match="did not say"):
            run_commit(FLAT, root, lock_timeout=0.05)
    recover_storage(storage)
    assert read_plainly(root) == FLAT.old()
    assert_tidy(root)


@pytest.mark.parametrize("change", ["restored from a copy", "touched"])
def test_files_of_a_pending_commit_that_look_different(
    tmp_path: Path, fork_server: ForkServer, change: str
) -> None:
    """They are the replaced files all the same: a replacement has another number and time."""
    root = fresh(FLAT, str(tmp_path / "x"))
    fork_server.run("commit", root, scenario="flat", publish="plain", kill=40)
    assert list_records(open_storage(root)).recorded == [1]
    if change == "touched":
        for name in FLAT.replaced:
            if os.path.exists(f"{root}/{name}"):
                os.utime(f"{root}/{name}")
    else:
        subprocess.run(["cp", "-a", str(tmp_path / "x"), str(tmp_path / "y")], check=True)
        root = str(tmp_path / "y" / "data")
    recover(root)
    assert read_plainly(root) == FLAT.new()


def test_a_record_of_a_writer_without_times_of_creation(
    tmp_path: Path, fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever recovers a commit may know more, or less, of its files than their writer."""
    root = fresh(FLAT, str(tmp_path / "x"))
    fork_server.run("commit", root, scenario="flat", publish="plain", kill=40)
    monkeypatch.setattr(syscalls, "_statx", None)
    recover(root)
    assert read_plainly(root) == FLAT.new()


def test_a_file_without_a_time_of_creation_is_compared_by_the_rest() -> None:
    file = DataFile("x", 1, 2, 3)
    born = file._replace(birth_ns=4)
    assert file.is_same_file(born)
    assert born.is_same_file(file)
    assert not born.is_same_file(file._replace(birth_ns=5))


def killed_while_publishing(fork_server: ForkServer, base: Path) -> str:
    """A dataset whose writer was killed when some of its new files were published."""
    for kill in range(20, 60):
        root = fresh(FLAT, str(base))
        fork_server.run("commit", root, scenario="flat", publish="plain", kill=kill)
        if list_records(open_storage(root)).recorded and any(
            "part-" in name for name in os.listdir(root)
        ):
            return root
    raise AssertionError("no call of a commit comes after the first published file")


def test_abandoning_keeps_what_another_program_wrote(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    root = killed_while_publishing(fork_server, tmp_path / "x")
    storage = open_storage(root)
    record = read_record(storage, 1)
    published = next(add for add in record.adds if os.path.exists(storage.path(add.final)))
    Path(storage.path(published.final)).write_bytes(parquet_bytes(5000, "theirs", rows=50))
    for place in staging_paths(storage, record.staging):
        for name in os.listdir(place):
            os.unlink(f"{place}/{name}")
    report = recover(root, abandon=True)
    assert "was replaced by another program" in " ".join(report.completed[0].notes)
    assert (5000, "theirs") in read_plainly(root)


@AS_ROOT
def test_a_full_disk_is_named_and_holds_no_half_copies(mounted: Any, tmp_path: Path) -> None:
    """New files of a partition on a disk of its own are copied there."""
    root = fresh(ONE_PARTITION, str(tmp_path / "x"))
    (Path(root) / "p=1").rename(tmp_path / "p=1")
    place = mounted("x/data/p=1", "size=64k")
    shutil.copy(tmp_path / "p=1" / "a.parquet", place)
    fill(place, 0)
    with pytest.raises(CommitPendingError, match=r"No space left on device: '.*p=1"):
        run_commit(ONE_PARTITION, root)
    assert not [name for name in os.listdir(place) if name.endswith(".incoming")]
    recover(root, abandon=True)
    os.unlink(f"{place}/filling")
    assert read_plainly(root) == ONE_PARTITION.old()


def test_a_disk_without_locks_and_a_lost_file(tmp_path: Path, fork_server: ForkServer) -> None:
    """Nobody can know whether the owner is alive; that must not be waited for again and again."""
    root = killed_while_publishing(fork_server, tmp_path / "x")
    storage = open_storage(root, lock_timeout=0.1)
    for place in staging_paths(storage, read_record(storage, 1).staging):
        for name in os.listdir(place):
            if name.endswith(".staged"):
                os.unlink(f"{place}/{name}")
    with (
        syscalls.observed(Refusing({"flock"}, errno.EOPNOTSUPP)),
        pytest.raises(LostFileError),
    ):
        recover_storage(storage)
