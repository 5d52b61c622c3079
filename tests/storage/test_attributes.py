"""New files follow their directory; files that replace others follow those."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

import pytest
from tests.storage.checks import read_plainly
from tests.storage.scenario import PARTITIONED, fresh, parquet_bytes, put, run_commit

from fsspeckit.storage import FileChanges, commit, open_storage, staging, take_snapshot
from fsspeckit.storage.fs.attributes import follow_directory, follow_file

if TYPE_CHECKING:
    from pathlib import Path

BOTH = pytest.mark.parametrize("publish", ["auto", "plain"])
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser gives files away")


@pytest.fixture
def root(tmp_path: Path) -> str:
    return fresh(PARTITIONED, str(tmp_path / "x"))


def mode(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def add(root: str, directory: str, publish: Any, like: str | None = None) -> str:
    storage = open_storage(root, publish=publish)
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        files = [
            put(storage, stage.new_file(directory, like=like), parquet_bytes(start, "x"))
            for start in (700, 800)
        ]
        return commit(storage, snapshot, stage, FileChanges(files)).added[0]


@BOTH
@pytest.mark.parametrize("bits", [0o700, 0o750, 0o755, 0o777])
def test_a_new_file_has_the_mode_of_its_directory(root: str, bits: int, publish: Any) -> None:
    os.chmod(f"{root}/p=0", bits)
    assert mode(add(root, "p=0", publish)) == bits & 0o666
    assert mode(f"{root}/p=0") == bits


@BOTH
def test_a_new_partition_is_like_the_directory_it_is_in(root: str, publish: Any) -> None:
    os.chmod(root, 0o2770)
    path = add(root, "p=7/q=1", publish)
    assert mode(os.path.dirname(path)) == 0o2770
    assert mode(path) == 0o660
    assert mode(root) == 0o2770


@BOTH
def test_a_file_that_replaces_another_has_its_mode(root: str, publish: Any) -> None:
    os.chmod(f"{root}/p=0/a.parquet", 0o604)
    assert mode(add(root, "p=0", publish, like="p=0/a.parquet")) == 0o604


@AS_ROOT
@BOTH
def test_the_superuser_does_not_keep_new_files(root: str, publish: Any) -> None:
    os.chown(f"{root}/p=0", 1234, 4321)
    status = os.stat(add(root, "p=0", publish))
    assert (status.st_uid, status.st_gid) == (1234, 4321)
    os.chown(f"{root}/p=1/a.parquet", 1111, 2222)
    status = os.stat(add(root, "p=1", publish, like="p=1/a.parquet"))
    assert (status.st_uid, status.st_gid) == (1111, 2222)


@AS_ROOT
def test_directories_keep_everything_across_an_exchange(root: str) -> None:
    os.chown(f"{root}/p=3", 1234, 4321)
    os.chmod(f"{root}/p=3", 0o2711)
    os.setxattr(f"{root}/p=3", "user.note", b"mine")
    os.symlink("p=3/a.parquet", f"{root}/_link")
    os.symlink("nowhere", f"{root}/_dangling")
    os.mkfifo(f"{root}/_pipe")
    before = os.lstat(f"{root}/_link")
    outcome = run_commit(PARTITIONED, root)
    assert outcome.published == "exchange"
    status = os.stat(f"{root}/p=3")
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1234, 4321, 0o2711)
    assert os.getxattr(f"{root}/p=3", "user.note") == b"mine"
    assert os.readlink(f"{root}/_link") == "p=3/a.parquet"
    assert os.lstat(f"{root}/_link").st_mtime_ns == before.st_mtime_ns
    assert os.readlink(f"{root}/_dangling") == "nowhere"
    assert stat.S_ISFIFO(os.stat(f"{root}/_pipe").st_mode)
    assert read_plainly(root) == PARTITIONED.new()


_ACL = bytes.fromhex("0200000001000700ffffffff04000500ffffffff20000000ffffffff")


@BOTH
def test_a_default_access_list_is_followed(root: str, publish: Any) -> None:
    try:
        os.setxattr(f"{root}/p=0", "system.posix_acl_default", _ACL)
    except OSError:
        pytest.skip("this disk knows no access lists")
    path = add(root, "p=0", publish)
    assert mode(path) == 0o750
    access = os.listxattr(path)
    assert access == [] or "system.posix_acl_access" in access
    follower = add(root, "p=0", publish, like=os.path.relpath(path, root))
    assert mode(follower) == 0o750


def test_what_is_gone_cannot_be_followed(root: str) -> None:
    file = f"{root}/p=3/a.parquet"
    before = mode(file)
    assert not follow_file(file, f"{root}/gone.parquet")
    assert not follow_directory(file, f"{root}/gone")
    assert not follow_directory(file, f"{root}/_SUCCESS")
    assert mode(file) == before
