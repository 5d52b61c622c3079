"""One canonical root for every way to spell it, and one control directory derived from it."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from pyarrow import fs as arrow_fs
from tests.storage.checks import read_plainly
from tests.storage.scenario import FLAT, ONE_PARTITION, build, run_commit

from fsspeckit.errors import CorruptRecordError, InvalidArgumentError, UnsupportedLayoutError
from fsspeckit.storage import (
    DataFile,
    check_mergeable,
    list_files,
    open_root,
    open_storage,
    read_range,
    read_tail,
    take_snapshot,
)
from fsspeckit.storage.fs import syscalls
from fsspeckit.storage.listing import is_data_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspeckit.storage import Call


@pytest.fixture
def root(tmp_path: Path) -> str:
    path = str(tmp_path / "lake" / "data")
    build(FLAT, path)
    return path


def spellings(root: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Ways to name the same dataset: path, filesystem."""
    lake = os.path.dirname(root)
    monkeypatch.chdir(lake)
    monkeypatch.setenv("HOME", lake)
    os.symlink(root, f"{lake}/linked")
    return [
        (root, None),
        (f"{root}/", None),
        (f"file://{root}", None),
        (f"local://{root}", None),
        ("data", None),
        ("./data/../data", None),
        ("~/data", None),
        (f"{lake}/linked", None),
        (Path(root), None),
        (root, LocalFileSystem()),
        (root, arrow_fs.LocalFileSystem()),
        ("data", arrow_fs.SubTreeFileSystem(lake, arrow_fs.LocalFileSystem())),
        ("data", DirFileSystem(lake, LocalFileSystem())),
        ("/", DirFileSystem(root, LocalFileSystem())),
        ("data", DirFileSystem("lake", DirFileSystem(os.path.dirname(lake), LocalFileSystem()))),
        (root, arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(LocalFileSystem()))),
    ]


def test_every_spelling_is_one_root(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    control = f"{os.path.dirname(root)}/.data.fsspeckit"
    for path, filesystem in spellings(root, monkeypatch):
        storage = open_storage(path, filesystem)
        assert storage.root.path == root, (path, filesystem)
        assert storage.control.path == control
        assert len(take_snapshot(storage).by_path) == 6


def test_a_commit_by_every_spelling(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (path, filesystem) in enumerate(spellings(root, monkeypatch), 1):
        storage = open_storage(path, filesystem)
        if number == 1:
            run_commit(FLAT, path, filesystem=filesystem)
        assert take_snapshot(storage).number == 1
    assert read_plainly(root) == FLAT.new()


def test_memory_urls() -> None:
    storage = open_storage("memory://bucket/lake/data/")
    assert storage.root.path == "/bucket/lake/data"
    assert storage.root.to_user_path(storage.root.path) == "memory:///bucket/lake/data"
    assert storage.control.path == "/bucket/lake/.data.fsspeckit"


def test_a_generic_filesystem_stays_generic(root: str) -> None:
    storage = open_storage(root, ArrowFSWrapper(arrow_fs.LocalFileSystem()))
    assert not storage.root.is_local
    assert len(storage.capabilities.missing()) == 7


def test_an_arrow_filesystem_without_a_counterpart() -> None:
    mocked = arrow_fs._MockFileSystem()
    assert isinstance(open_root("x/y", mocked).filesystem, ArrowFSWrapper)


@pytest.mark.parametrize(
    ("path", "filesystem", "message"),
    [
        ("", None, "non-empty"),
        ("  ", None, "non-empty"),
        ("a\0b", None, "NUL"),
        ("x", object(), "fsspec or pyarrow filesystem, got object"),
    ],
)
def test_wrong_arguments(path: str, filesystem: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        open_root(path, filesystem)


def test_a_wrong_publish_mode(root: str) -> None:
    with pytest.raises(ValueError, match="publish must be one of 'auto', 'plain', got 'fast'"):
        open_storage(root, publish="fast")  # type: ignore[arg-type]


def test_the_root_of_a_filesystem_needs_a_control_directory() -> None:
    with pytest.raises(InvalidArgumentError, match="Hint: pass control_dir="):
        open_storage("/")
    with pytest.raises(InvalidArgumentError, match="no parent"):
        open_storage("memory://")


def test_a_control_directory_elsewhere(root: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    outcome = run_commit(FLAT, root, control_dir=elsewhere)
    assert outcome.number == 1
    assert sorted(os.listdir(elsewhere)) == ["commits", "dataset.json", "lock", "trash"]
    pointed = open_storage(root)
    assert pointed.control.path == str(elsewhere)
    assert take_snapshot(pointed).number == 1
    assert os.listdir(f"{os.path.dirname(root)}/.data.fsspeckit") == ["location.json"]


def test_writers_must_agree_about_the_control_directory(root: str, tmp_path: Path) -> None:
    run_commit(FLAT, root, control_dir=tmp_path / "one")
    with pytest.raises(InvalidArgumentError, match="leave control_dir out"):
        open_storage(root, control_dir=tmp_path / "two")


def test_a_control_directory_cannot_move_once_there_are_commits(root: str, tmp_path: Path) -> None:
    run_commit(FLAT, root)
    with pytest.raises(InvalidArgumentError, match=r"not where other writers"):
        open_storage(root, control_dir=tmp_path / "late")
    default = f"{os.path.dirname(root)}/.data.fsspeckit"
    assert open_storage(root, control_dir=default).default_control is None


def test_a_control_directory_serves_one_dataset(root: str, tmp_path: Path) -> None:
    run_commit(FLAT, root, control_dir=tmp_path / "shared")
    build(FLAT, str(tmp_path / "other"))
    with pytest.raises(InvalidArgumentError, match="belongs to"):
        run_commit(FLAT, str(tmp_path / "other"), control_dir=tmp_path / "shared")


def test_a_control_directory_inside_of_the_dataset(root: str) -> None:
    with pytest.raises(InvalidArgumentError, match="outside of the dataset"):
        open_storage(root, control_dir=f"{root}/.control")


def test_a_damaged_pointer(root: str) -> None:
    pointer = Path(os.path.dirname(root), ".data.fsspeckit", "location.json")
    pointer.parent.mkdir()
    for text in ("{", '{"format": "other", "version": 1}', '["list"]'):
        pointer.write_text(text)
        with pytest.raises(CorruptRecordError, match=r"location\.json"):
            open_storage(root)


def test_nobody_can_write_beside_the_dataset(root: str, tmp_path: Path) -> None:
    class Refusing:
        @contextmanager
        def __call__(self, call: Call) -> Iterator[None]:
            if ".data.fsspeckit" in call.paths[-1]:
                raise PermissionError(errno.EACCES, "not here", call.paths[-1])
            yield

    with syscalls.observed(Refusing()):
        outcome = run_commit(FLAT, root, control_dir=tmp_path / "mine")
    assert "every writer must pass the same control_dir" in outcome.notes[0]
    assert read_plainly(root) == FLAT.new()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.parquet", True),
        ("p=1/a.PQ", True),
        ("a.parq", True),
        ("_a.parquet", False),
        (".staging/a.parquet", False),
        ("p=1/_temporary/a.parquet", False),
        ("a.parquet.crc", False),
        ("a.json", False),
    ],
)
def test_what_is_data(name: str, data: bool) -> None:
    assert is_data_path(name) is data


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("_delta_log/0.json", "Delta"),
        (".hoodie/x", "Hudi"),
        ("metadata/v1.metadata.json", "Iceberg"),
        ("_metadata", "summary file"),
        ("p=1/_metadata", "summary file"),
        ("_p=1/a.parquet", "hidden for PyArrow"),
    ],
)
@pytest.mark.parametrize("place", ["local", "memory"])
def test_layouts_that_are_refused(tmp_path: Path, name: str, words: str, place: str) -> None:
    url = str(tmp_path / "data") if place == "local" else f"memory://layouts{tmp_path}/data"
    with fsspec.open(f"{url}/{name}", "wb", auto_mkdir=True) as file:
        file.write(b"x")
    root = open_root(url)
    with pytest.raises(UnsupportedLayoutError, match=words):
        check_mergeable(list_files(root), root)


def test_a_file_is_not_a_dataset(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(NotADirectoryError):
        list_files(open_root(tmp_path / "file"))
    with fsspec.open("memory://single/file", "wb") as file:
        file.write(b"x")
    with pytest.raises(NotADirectoryError):
        list_files(open_root("memory://single/file"))


def test_links_that_lead_back_up_end(root: str) -> None:
    os.symlink(root, f"{root}/again")
    os.symlink(f"{root}/nowhere", f"{root}/dangling.parquet")
    assert len(list_files(open_root(root)).files) == 6


def test_a_linked_partition_is_published_plainly(root: str, tmp_path: Path) -> None:
    base = str(tmp_path / "linked" / "data")
    build(ONE_PARTITION, base)
    os.rename(f"{base}/p=1", str(tmp_path / "elsewhere"))
    os.symlink(tmp_path / "elsewhere", f"{base}/p=1")
    outcome = run_commit(ONE_PARTITION, base)
    assert outcome.published == "plain"
    assert "symbolic link" in outcome.notes[0]
    assert os.path.islink(f"{base}/p=1")
    assert read_plainly(base) == ONE_PARTITION.new()


def test_no_message_has_a_password() -> None:
    root = open_root("http://user:hush@127.0.0.1:9/lake/data")
    assert "hush" not in repr(root)
    assert root.display_path == "http://127.0.0.1:9/lake/data"


@pytest.mark.parametrize("where", ["disk", "memory"])
def test_parts_of_files(tmp_path: Path, where: str) -> None:
    url = str(tmp_path) if where == "disk" else "memory://parts-of-files"
    opened = open_root(url)
    path = f"{opened.path}/x"
    opened.filesystem.pipe_file(path, b"0123456789")
    assert read_range(opened, path, 2, 3) == b"234"
    assert read_range(opened, path, 8, 30) == b"89"
    assert read_tail(opened, DataFile(path, 10), 4) == (b"6789", 10)
    assert read_tail(opened, DataFile(path, 10), 40) == (b"0123456789", 10)
