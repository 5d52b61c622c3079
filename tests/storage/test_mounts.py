"""Datasets that lie on several mounts, and directories whose files cannot be removed.

A mount of the same disk is another one to the kernel: nothing can be renamed or linked across.
What a commit replaces must leave the dataset all the same, or the call must raise.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.storage.checks import read_plainly
from tests.storage.conftest import REPOSITORY
from tests.storage.scenario import FLAT, PARTITIONED, fresh, run_commit

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import CommitIncompleteError, LostFileError
from fsspeckit.storage import history, open_storage, pending_numbers, recover
from fsspeckit.storage.commit import publish as publish_module
from fsspeckit.storage.fs import syscalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can mount")
BOTH = pytest.mark.parametrize("publish", ["auto", "plain"])
NOBODY = 65534


@pytest.fixture
def bind() -> Iterator[Callable[[Path, Path], None]]:
    """Mounts a directory at a second place, and takes it away again."""
    places: list[Path] = []

    def mount(source: Path, place: Path) -> None:
        source.mkdir(parents=True, exist_ok=True)
        place.mkdir(parents=True, exist_ok=True)
        command = ["mount", "--bind", str(source), str(place)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("mounting is not allowed here")
        places.append(place)

    yield mount
    for place in reversed(places):
        subprocess.run(["umount", "--lazy", place], check=True)


def merge_three_times(root: Path, **options: Any) -> None:
    """Merge the same keys again and again, then replace everything."""
    path = str(root)
    old = pa.table({"id": [1, 2, 3], "p": ["a", "a", "b"], "v": [0, 0, 0]})
    with PyarrowDatasetIO(**options) as io:
        io.write_dataset(old, path, mode="overwrite", partition_by=["p"])
        for version in (1, 2, 3):
            new = pa.table({"id": [1, 3], "p": ["a", "b"], "v": [version, version]})
            io.merge(new, path, "upsert", ["id"])
        assert read_rows(root) == [(1, 3), (2, 0), (3, 3)]
        io.merge(pa.table({"id": [3], "p": ["b"], "v": [4]}), path, "full_merge", ["id"])
        assert read_rows(root) == [(3, 4)]
        io.write_dataset(old, path, mode="overwrite", partition_by=["p"])
    assert read_rows(root) == [(1, 0), (2, 0), (3, 0)]


def read_rows(root: Path) -> list[tuple[int, int]]:
    """Read as a program does that knows nothing of us."""
    table = pq.ParquetDataset(root).read()
    return sorted(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))


@BOTH
def test_a_root_that_is_a_bind_mount_of_its_parents_disk(
    tmp_path: Path, bind: Any, publish: Any
) -> None:
    bind(tmp_path / "elsewhere", tmp_path / "lake" / "data")
    merge_three_times(tmp_path / "lake" / "data", publish=publish)


@BOTH
@pytest.mark.parametrize("kind", ["bind mount", "link", "link to another disk"])
def test_a_partition_on_another_mount(
    tmp_path: Path, bind: Any, publish: Any, quick_disk: str, kind: str
) -> None:
    root = tmp_path / "lake" / "data"
    root.mkdir(parents=True)
    if kind == "bind mount":
        bind(tmp_path / "elsewhere", root / "p=a")
    else:
        target = Path(quick_disk) if kind == "link to another disk" else tmp_path / "elsewhere"
        target.mkdir(exist_ok=True)
        (root / "p=a").symlink_to(target)
    merge_three_times(root, publish=publish)


@BOTH
def test_a_control_directory_on_a_bind_mount(tmp_path: Path, bind: Any, publish: Any) -> None:
    bind(tmp_path / "elsewhere", tmp_path / "control")
    merge_three_times(tmp_path / "data", publish=publish, control_dir=tmp_path / "control")


@BOTH
def test_the_trash_keeps_what_is_on_its_own_disk(tmp_path: Path, bind: Any, publish: Any) -> None:
    """Whether a file can be kept is decided file by file."""
    root = Path(fresh(PARTITIONED, str(tmp_path / "x")))
    os.rename(root / "p=0", tmp_path / "elsewhere")
    bind(tmp_path / "elsewhere", root / "p=0")
    run_commit(PARTITIONED, str(root), publish=publish)
    assert read_plainly(str(root)) == PARTITIONED.new()
    trash = Path(open_storage(root).control.trash, "0000000001")
    kept = {str(path.relative_to(trash)) for path in trash.rglob("*.trash")}
    assert kept == {"p=1/a.parquet.trash", "p=2/a.parquet.trash"}


@BOTH
def test_files_of_a_lower_layer_of_an_overlay(tmp_path: Path, publish: Any) -> None:
    """As in an image: to move a file, the kernel copies it up, and its time of creation changes."""
    lower, merged = tmp_path / "lower", tmp_path / "merged"
    for name in ("lower/data", "upper", "work", "merged"):
        (tmp_path / name).mkdir(parents=True)
    old = pa.table({"id": [1, 2, 3], "v": [0, 0, 0]})
    pq.write_table(old, lower / "data" / "a.parquet")
    places = f"lowerdir={lower},upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    command = ["mount", "-t", "overlay", "overlay", "-o", places, str(merged)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("overlays cannot be mounted here")
    try:
        new = pa.table({"id": [1], "v": [1]})
        with PyarrowDatasetIO(publish=publish) as io:
            io.merge(new, str(merged / "data"), "upsert", ["id"])
            assert read_rows(merged / "data") == [(1, 1), (2, 0), (3, 0)]
            io.write_dataset(new, str(merged / "data"), mode="overwrite")
        assert read_rows(merged / "data") == [(1, 1)]
    finally:
        subprocess.run(["umount", "--lazy", merged], check=True)


_MERGE_AGAIN = """
import sys
import pyarrow as pa
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
for version in range(4):
    key = int(sys.argv[2])
    table = pa.table({"id": [key, key + 10], "v": [version, version]})
    PyarrowDatasetIO().merge(table, sys.argv[1], "upsert", ["id"])
"""


def test_one_volume_that_two_containers_write(tmp_path: Path, bind: Any) -> None:
    """Each has a control directory of its own; what both see is the volume itself."""
    places = [tmp_path / name / "data" for name in ("one", "two")]
    for place in places:
        bind(tmp_path / "volume", place)
    pq.write_table(pa.table({"id": list(range(20)), "v": [-1] * 20}), places[0] / "a.parquet")
    writers = [
        subprocess.Popen([sys.executable, "-c", _MERGE_AGAIN, str(place), str(key)])
        for key, place in enumerate(places)
    ]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    expected = {key: 3 if key in (0, 1, 10, 11) else -1 for key in range(20)}
    assert read_rows(tmp_path / "volume") == sorted(expected.items())


def test_a_dataset_that_is_a_mount_point_says_so(tmp_path: Path, bind: Any) -> None:
    """What is interrupted can only be completed where its control directory is."""
    bind(tmp_path / "volume", tmp_path / "data")
    pq.write_table(pa.table({"id": [1], "v": [0]}), tmp_path / "data" / "a.parquet")
    new = pa.table({"id": [1], "v": [1]})
    result = PyarrowDatasetIO().merge(new, str(tmp_path / "data"), "upsert", ["id"])
    assert any("is a mount point" in note for note in result.metrics["commit"]["notes"])


def test_a_data_file_that_is_a_mount_point_is_refused(tmp_path: Path) -> None:
    root = fresh(FLAT, str(tmp_path / "x"))
    other = tmp_path / "other.parquet"
    other.write_bytes(Path(root, "f1.parquet").read_bytes())
    command = ["mount", "--bind", str(other), f"{root}/f1.parquet"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(OSError, match="which is a mount point"):
            run_commit(FLAT, root)
        assert history(root) == []
    finally:
        subprocess.run(["umount", "--lazy", f"{root}/f1.parquet"], check=True)


def lock_file(path: str) -> None:
    if subprocess.run(["chattr", "+i", path], capture_output=True, check=False).returncode:
        pytest.skip("files cannot be made immutable here")


@pytest.fixture
def immutable() -> Iterator[Callable[[str], None]]:
    """Makes files immutable, and changes that back."""
    paths: list[str] = []

    def change(path: str) -> None:
        lock_file(path)
        paths.append(path)

    yield change
    for path in paths:
        subprocess.run(["chattr", "-i", path], capture_output=True, check=False)


@BOTH
@pytest.mark.parametrize("name", ["f1.parquet", "."], ids=["file", "directory"])
def test_an_immutable_file_is_refused_before_the_commit_point(
    tmp_path: Path, immutable: Any, publish: Any, name: str
) -> None:
    root = fresh(FLAT, str(tmp_path / "x"))
    immutable(os.path.normpath(f"{root}/{name}"))
    with pytest.raises(PermissionError, match=r"immutable|not writable"):
        run_commit(FLAT, root, publish=publish)
    assert read_plainly(root) == FLAT.old()
    assert history(root) == []


def test_an_immutable_file_that_stays_does_not_matter(tmp_path: Path, immutable: Any) -> None:
    root = fresh(FLAT, str(tmp_path / "x"))
    immutable(f"{root}/f5.parquet")
    run_commit(FLAT, root)
    assert read_plainly(root) == FLAT.new()


_COMMIT = """
import os, sys
import pyarrow.parquet, tests.storage.scenario as scenario
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    print(scenario.run_commit(scenario.FLAT, sys.argv[1], publish=sys.argv[2]).published)
except PermissionError as error:
    print(error.strerror, os.path.basename(error.filename))
"""


def commit_as_nobody(root: str, publish: str) -> str:
    command = [sys.executable, "-c", _COMMIT, root, publish]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@BOTH
@pytest.mark.parametrize("owner", ["another", "own"])
def test_files_in_a_sticky_directory(quick_disk: str, publish: str, owner: str) -> None:
    """Only its owner may remove a file there, whatever the permissions of the directory."""
    root = fresh(FLAT, f"{quick_disk}/x")
    for place in (quick_disk, f"{quick_disk}/x", root):
        os.chmod(place, 0o1777)
    for name in (*FLAT.files, ".f0.parquet.crc") if owner == "own" else ():
        os.chown(f"{root}/{name}", NOBODY, NOBODY)
    answer = commit_as_nobody(root, publish)
    if owner == "own":
        assert answer == "plain"
        assert read_plainly(root) == FLAT.new()
    else:
        assert "only its owner may do" in answer
        assert answer.endswith("f0.parquet")
        assert read_plainly(root) == FLAT.old()
        assert history(root) == []


def test_a_replaced_file_that_stays_is_an_error(tmp_path: Path) -> None:
    """Whatever the reason: success is reported only if its rows are no longer there."""
    root = fresh(FLAT, str(tmp_path / "x"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publish_module, "_move_to_trash", lambda *_: True)
        with pytest.raises(CommitIncompleteError, match=r"still there: 'f0\.parquet'"):
            run_commit(FLAT, root, publish="plain")
    assert pending_numbers(open_storage(root))[1] == [1]
    recover(root)
    assert read_plainly(root) == FLAT.new()


def leave_pending(root: str, immutable: Any) -> None:
    """Commit, and make the last file that goes immutable as soon as that is recorded."""

    @contextmanager
    def interfere(call: Any) -> Iterator[None]:
        yield
        if call.paths[-1].endswith("0000000001.json"):
            immutable(f"{root}/f3.parquet")

    with syscalls.observed(interfere), pytest.raises(Exception, match="is committed"):
        run_commit(FLAT, root, publish="plain")


def test_a_commit_whose_file_cannot_be_removed_can_be_abandoned(
    tmp_path: Path, immutable: Any
) -> None:
    """Files that were moved to the trash come back, and the new ones go."""
    root = fresh(FLAT, str(tmp_path / "x"))
    leave_pending(root, immutable)
    with pytest.raises(PermissionError, match="immutable"):
        recover(root)
    report = recover(root, abandon=True)
    assert [commit.abandoned for commit in report.completed] == [True]
    assert read_plainly(root) == FLAT.old()
    subprocess.run(["chattr", "-i", f"{root}/f3.parquet"], check=True)
    run_commit(FLAT, root)
    assert read_plainly(root) == FLAT.new()


def test_a_commit_whose_file_can_be_removed_again_is_completed(
    tmp_path: Path, immutable: Any
) -> None:
    root = fresh(FLAT, str(tmp_path / "x"))
    leave_pending(root, immutable)
    subprocess.run(["chattr", "-i", f"{root}/f3.parquet"], check=True)
    recover(root)
    assert read_plainly(root) == FLAT.new()


def test_a_commit_cannot_be_abandoned_without_what_it_replaced(
    tmp_path: Path, immutable: Any
) -> None:
    """Nothing is changed then; the way forward stays open."""
    root = fresh(FLAT, str(tmp_path / "x"))
    leave_pending(root, immutable)
    subprocess.run(["rm", "-r", open_storage(root).control.trash], check=True)
    with pytest.raises(LostFileError, match="cannot be abandoned"):
        recover(root, abandon=True)
    subprocess.run(["chattr", "-i", f"{root}/f3.parquet"], check=True)
    recover(root)
    assert read_plainly(root) == FLAT.new()
