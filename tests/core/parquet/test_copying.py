"""Copying parts of files, by every way there is."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

from fsspeckit.core.parquet.format.layout import Range
from fsspeckit.core.parquet.splice.assembler import BUFFER_BYTES, open_original, open_sink
from fsspeckit.errors import ConcurrentModificationError
from fsspeckit.storage.roots import Root, open_root

if TYPE_CHECKING:
    from pathlib import Path

DATA = bytes(range(256)) * 64
PARTS = [Range(100, 5000), Range(0, 1), Range(16000, 384)]


def _copied(root: Root, old: str, new: str, buffer_bytes: int = BUFFER_BYTES) -> tuple[int, bytes]:
    with open_original(root, old) as original, open_sink(root, new, buffer_bytes) as sink:
        sink.write(b"head")
        for part in PARTS:
            sink.copy(original, part)
        sink.write(memoryview(b"tail"))
        return sink.position, b"head" + b"".join(DATA[p.start : p.end] for p in PARTS) + b"tail"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old"
    path.write_bytes(DATA)
    return path


def _refuse(number: int) -> Any:
    def refuse(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize("refused", [(), ("copy_file_range",), ("copy_file_range", "sendfile")])
@pytest.mark.parametrize("number", [errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
def test_every_way_of_copying_gives_the_same(
    tmp_path: Path,
    old: Path,
    monkeypatch: pytest.MonkeyPatch,
    refused: tuple[str, ...],
    number: int,
) -> None:
    for name in refused:
        monkeypatch.setattr(os, name, _refuse(number))
    position, expected = _copied(open_root(tmp_path), str(old), str(tmp_path / "new"))
    assert (tmp_path / "new").read_bytes() == expected
    assert position == len(expected)


def test_a_way_that_was_refused_is_not_tried_again(
    tmp_path: Path, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def refuse(*arguments: Any) -> int:
        tried.append(arguments)
        raise OSError(errno.EXDEV, "refused")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    _copied(open_root(tmp_path), str(old), str(tmp_path / "new"))
    assert len(tried) == 1


def test_a_full_disk_is_an_error_and_not_a_refusal(
    tmp_path: Path, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "copy_file_range", _refuse(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        _copied(open_root(tmp_path), str(old), str(tmp_path / "new"))


@pytest.mark.parametrize("refused", [(), ("copy_file_range",), ("copy_file_range", "sendfile")])
def test_a_part_beyond_the_end_is_an_error(
    tmp_path: Path, old: Path, monkeypatch: pytest.MonkeyPatch, refused: tuple[str, ...]
) -> None:
    for name in refused:
        monkeypatch.setattr(os, name, _refuse(errno.EXDEV))
    root = open_root(tmp_path)
    with (
        open_original(root, str(old)) as original,
        open_sink(root, str(tmp_path / "new")) as sink,
        pytest.raises(OSError, match="the file ends before byte 20,000"),
    ):
        sink.copy(original, Range(0, 20_000))


def test_other_filesystems_are_read_and_written_in_pieces() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/copying/old", DATA)
    root = open_root("memory://copying")
    position, expected = _copied(root, "/copying/old", "/copying/new", 1000)
    assert memory.cat_file("/copying/new") == expected
    assert position == len(expected)
    with (
        open_original(root, "/copying/old") as original,
        open_sink(root, "/copying/new", 1000) as sink,
        pytest.raises(OSError, match="the file ends before"),
    ):
        sink.copy(original, Range(0, 20_000))


def test_a_file_that_changes_meanwhile_is_noticed(tmp_path: Path, old: Path) -> None:
    with open_original(open_root(tmp_path), str(old)) as original:
        original.check_unchanged()
        old.write_bytes(DATA + b"more")
        with pytest.raises(ConcurrentModificationError, match="Hint: repeat"):
            original.check_unchanged()


def test_a_remote_file_that_changes_meanwhile_is_noticed() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/copying/old", DATA)
    with open_original(open_root("memory://copying"), "/copying/old") as original:
        original.check_unchanged()
        memory.pipe("/copying/old", DATA + b"more")
        with pytest.raises(ConcurrentModificationError):
            original.check_unchanged()
