"""Replacing files under their own names, all or nothing: a thin door to the commit.

Merges publish new names (see :mod:`fsspeckit.storage.commit.transaction`). Some callers rewrite
files and want them back under the names they had. Journal, recovery and promises are the same.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage.commit.log import CommitFacts
from fsspeckit.storage.commit.recovery import take_snapshot
from fsspeckit.storage.commit.staging import Stage, create_stage, staging
from fsspeckit.storage.commit.transaction import Change, commit
from fsspeckit.storage.names import check_data_name
from fsspeckit.storage.roots import Root, open_root
from fsspeckit.storage.storage import Storage, open_storage

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["IncrementalFileManager"]


class IncrementalFileManager:
    """Stages files for a dataset and replaces files of it, completely or not at all."""

    def __init__(self) -> None:
        self._stages: list[Stage] = []

    def create_staging_directory(self, base_path: str) -> str:
        """Create a staging directory for a dataset; no reader of the dataset sees it.

        Args:
            base_path: The dataset.

        Returns:
            Its path, spelled like ``base_path``. Its last part is ``.staging_<uuid>``.
        """
        storage = open_storage(base_path)
        stage = create_stage(storage)
        self._stages.append(stage)
        return storage.root.spelled(stage.path)

    def atomic_replace_files(
        self,
        source_files: list[str],
        target_files: list[str],
        filesystem: Any = None,
    ) -> None:
        """Replace each target by the source at the same place in the list, and consume the source.

        A target that does not exist is created. Interrupted after it was recorded, the replacement
        is completed by the next writer or by ``recover()``.

        Args:
            source_files: Complete files, usually in a staging directory.
            target_files: Data files of one dataset.
            filesystem: The fsspec or pyarrow filesystem of all these paths.

        Raises:
            ValueError: If the lists differ in length, or a target is named twice.
            FileNotFoundError: If a source is not there; nothing was changed.
            CommitPendingError: If the replacement is recorded but could not be completed.
        """
        _check(source_files, target_files)
        if not source_files:
            return
        sources = [_canonical(path, filesystem)[1] for path in source_files]
        targets = [_canonical(path, filesystem)[1] for path in target_files]
        storage = self._storage(targets, target_files[0], filesystem)
        _replace(storage, sources, targets)

    def cleanup_staging_files(self) -> None:
        """Remove the staging directories that this manager has created."""
        while self._stages:
            self._stages.pop().discard()

    def _storage(self, targets: Sequence[str], spelling: str, filesystem: Any) -> Storage:
        """The dataset that holds all targets: one that was staged for, or their own directory."""
        for stage in self._stages:
            base = f"{stage.storage.root.path}/"
            if all(target.startswith(base) for target in targets):
                return stage.storage
        parent = os.path.commonpath([os.path.dirname(target) for target in targets])
        while "=" in os.path.basename(parent):
            parent = os.path.dirname(parent)  # a partition is not a dataset of its own
        root = _canonical(spelling, filesystem)[0]
        return open_storage(parent, root.filesystem)


def _check(sources: Sequence[str], targets: Sequence[str]) -> None:
    if len(sources) != len(targets):
        raise InvalidArgumentError(
            "source_files and target_files must have the same length, "
            f"got {len(sources)} and {len(targets)}."
        )
    twice = sorted({target for target in targets if targets.count(target) > 1})
    if twice:
        raise InvalidArgumentError(f"target_files must not repeat a file, got {twice!r} twice.")


def _canonical(path: str, filesystem: Any) -> tuple[Root, str]:
    """The directory of a file, and the file's own canonical path: a link to a file stays one."""
    directory, _, name = os.fspath(path).rpartition("/")
    if not directory:
        directory = "/" if path.startswith("/") else "."
    root = open_root(directory, filesystem)
    return root, f"{root.path.rstrip('/')}/{name}"


def _replace(storage: Storage, sources: Sequence[str], targets: Sequence[str]) -> None:
    disk = storage.disk
    for source in sources:
        if disk.look(source) is None:
            raise FileNotFoundError(f"the source file {source!r} is not there.")
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        adds = []
        for source, target in zip(sources, targets, strict=True):
            file = stage.new_copy(check_data_name(storage.root.relative(target)))
            disk.keep_copy(source, file.path)
            found = disk.look(file.path)
            adds.append(replace(file, size=None if found is None else found.size))
        removes = [file.final for file in adds if file.final in snapshot.by_path]
        commit(storage, snapshot, stage, Change(adds, removes), CommitFacts("", "replace"))
    for source in sources:
        disk.discard(source)
