"""Files are replaced under their own names, all or nothing."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import pytest

from fsspeckit.core.incremental.building_blocks import IncrementalFileManager
from fsspeckit.errors import CommitPendingError
from fsspeckit.storage import history, recover
from fsspeckit.storage.fs import syscalls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspeckit.storage.fs.syscalls import Call


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    for name in ("p=1/a.parquet", "p=2/b.parquet"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_bytes(b"old " + name.encode())
    return root


def stage(manager: IncrementalFileManager, dataset: Path) -> list[str]:
    directory = manager.create_staging_directory(str(dataset))
    sources = [f"{directory}/new-{number}" for number in (1, 2)]
    for source in sources:
        Path(source).write_bytes(b"new " + source[-1].encode())
    return sources


def targets(dataset: Path) -> list[str]:
    return [str(dataset / "p=1/a.parquet"), str(dataset / "p=2/b.parquet")]


def contents(dataset: Path) -> list[bytes]:
    return [Path(path).read_bytes() for path in targets(dataset)]


def test_the_staging_directory_is_beside_the_dataset(dataset: Path) -> None:
    manager = IncrementalFileManager()
    directory = Path(manager.create_staging_directory(str(dataset)))
    assert directory.is_dir()
    assert directory.name.startswith(".staging_")
    assert len(directory.name) == len(".staging_") + 32
    assert dataset not in directory.parents
    manager.cleanup_staging_files()
    assert not directory.exists()


def test_files_are_replaced_and_sources_consumed(dataset: Path) -> None:
    manager = IncrementalFileManager()
    sources = stage(manager, dataset)
    manager.atomic_replace_files(sources, targets(dataset))
    assert contents(dataset) == [b"new 1", b"new 2"]
    assert not any(map(os.path.exists, sources))
    assert Path(sources[0]).parent.is_dir()
    assert history(dataset)[0].strategy == "replace"
    manager.cleanup_staging_files()
    manager.cleanup_staging_files()


def test_the_control_directory_is_not_made_inside_of_the_dataset(dataset: Path) -> None:
    source = dataset.parent / "anywhere"
    source.write_bytes(b"new")
    IncrementalFileManager().atomic_replace_files([str(source)], targets(dataset)[:1])
    assert contents(dataset)[0] == b"new"
    assert sorted(os.listdir(dataset.parent)) == [".data.fsspeckit", "data"]


def test_a_target_that_does_not_exist_is_created(dataset: Path) -> None:
    source = dataset.parent / "anywhere"
    source.write_bytes(b"new")
    IncrementalFileManager().atomic_replace_files([str(source)], [str(dataset / "p=3/c.parquet")])
    assert (dataset / "p=3/c.parquet").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("sources", "names", "message"),
    [(["a"], [], "same length, got 1 and 0"), (["a", "b"], ["x", "x"], "must not repeat")],
)
def test_wrong_lists(sources: list[str], names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        IncrementalFileManager().atomic_replace_files(sources, names)


def test_nothing_to_replace() -> None:
    IncrementalFileManager().atomic_replace_files([], [])


def test_a_missing_source_changes_nothing(dataset: Path) -> None:
    manager = IncrementalFileManager()
    sources = stage(manager, dataset)
    os.unlink(sources[1])
    before = contents(dataset)
    with pytest.raises(FileNotFoundError, match="new-2"):
        manager.atomic_replace_files(sources, targets(dataset))
    assert contents(dataset) == before
    assert os.path.exists(sources[0])
    manager.cleanup_staging_files()
    assert not os.path.exists(os.path.dirname(sources[0]))


def test_a_name_that_is_not_a_data_file_is_refused(dataset: Path) -> None:
    manager = IncrementalFileManager()
    sources = stage(manager, dataset)
    with pytest.raises(ValueError, match="must end in"):
        manager.atomic_replace_files(sources[:1], [str(dataset / "_hidden.parquet")])
    manager.cleanup_staging_files()


def test_interrupted_after_the_record_it_is_completed_by_recovery(dataset: Path) -> None:
    class Failing:
        @contextmanager
        def __call__(self, call: Call) -> Iterator[None]:
            if call.name == "exchange":
                raise PermissionError(errno.EACCES, "no", call.paths[0])
            if call.name == "rename" and call.paths[-1].endswith("b.parquet"):
                raise PermissionError(errno.EACCES, "no", call.paths[0])
            yield

    manager = IncrementalFileManager()
    sources = stage(manager, dataset)
    with syscalls.observed(Failing()), pytest.raises(CommitPendingError, match="is committed"):
        manager.atomic_replace_files(sources, targets(dataset))
    assert recover(dataset).completed[0].number == 1
    assert contents(dataset) == [b"new 1", b"new 2"]
    manager.cleanup_staging_files()


def test_on_another_filesystem() -> None:
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe({"/manager/data/a.parquet": b"old", "/manager/new": b"new"})
    IncrementalFileManager().atomic_replace_files(
        ["/manager/new"], ["/manager/data/a.parquet"], filesystem
    )
    assert filesystem.cat_file("/manager/data/a.parquet") == b"new"
    assert not filesystem.exists("/manager/new")
    manager = IncrementalFileManager()
    directory = manager.create_staging_directory("memory://manager/data")
    assert directory.startswith("memory://")
    manager.cleanup_staging_files()
    filesystem.rm("/manager", recursive=True)
