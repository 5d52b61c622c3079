"""The single steps of a merge for callers: read metadata, prune files, replace files.

The merge itself uses the functions behind these classes. Merges publish files under new names;
:class:`IncrementalFileManager` replaces files under their own names, with the same commit.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.keys import as_names, canonical_keys, common_type, key_column, keys_table
from fsspeckit.core.planning import (
    ColumnBounds,
    FileFooter,
    KeyOverlap,
    constant_bounds,
    key_bounds,
    parse_hive_partition_path,
    partition_values,
    read_footers,
    statistics_bounds,
    trusted_overlap,
)
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage import (
    CommitFacts,
    FileChanges,
    Root,
    Stage,
    Storage,
    check_data_name,
    commit,
    create_stage,
    list_files,
    open_root,
    open_storage,
    staging,
    take_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.core.keys import KeyColumn


@dataclass
class ParquetFileMetadata:
    """The metadata of one data file."""

    path: str
    """The file."""

    row_group_count: int
    """The number of its row groups."""

    total_rows: int
    """The number of its rows."""

    column_stats: dict[str, dict[str, Any]]
    """By column ``min``, ``max`` and ``null_count``, each only if every row group has it."""

    partition_values: dict[str, Any] | None = None
    """The values in the path as text, None for NULL; None if nothing is known."""

    footer: FileFooter | None = None
    """The footer that was read, with statistics for each row group."""


def list_dataset_files(dataset_path: str, filesystem: Any = None) -> list[str]:
    """List the data files of a dataset, sorted.

    Data files end in ``.parquet``, ``.pq`` or ``.parq``; neither they nor a directory below the
    root start with ``.`` or ``_``.

    Args:
        dataset_path: The dataset's directory, path or URL.
        filesystem: An fsspec or pyarrow filesystem; None to find it from the path.

    Returns:
        Paths that the same filesystem understands; none if there is no such directory.
    """
    root = open_root(dataset_path, filesystem)
    return [root.to_user_path(file.path) for file in list_files(root).files]


class ParquetMetadataAnalyzer:
    """Reads the footers of a dataset."""

    def analyze_dataset_files(
        self, dataset_path: str, filesystem: Any = None
    ) -> list[ParquetFileMetadata]:
        """Read the footers of all data files of a dataset.

        A file that cannot be read has no statistics, and its ``footer.error`` says why.
        """
        root = open_root(dataset_path, filesystem)
        footers = read_footers(root, list_files(root).files, None)
        return [
            ParquetFileMetadata(
                root.to_user_path(footer.file.path),
                len(footer.row_groups),
                footer.rows,
                {name: stats for name in footer.leaves if (stats := _column_stats(footer, name))},
                parse_hive_partition_path(root.relative(footer.file.path)),
                footer,
            )
            for footer in footers
        ]


def _column_stats(footer: FileFooter, name: str) -> dict[str, Any]:
    """Return the statistics of a column over all row groups, each only if every one has it."""
    stats: dict[str, Any] = {}
    counts = [group.columns[name].null_count for group in footer.row_groups]
    if counts and None not in counts:
        stats["null_count"] = sum(count for count in counts if count is not None)
    try:
        column = key_column(name, footer.leaves[name].type)
    except ValueError:
        return stats  # a type without an order
    if (ends := statistics_bounds(column, [footer]).ends()) is not None:
        with suppress(ValueError, OverflowError):  # Python has no value for the bound
            stats["min"], stats["max"] = column.original(ends).to_pylist()
    return stats


class PartitionPruner:
    """Finds candidate files by the partition values in their paths."""

    def identify_candidate_files(
        self,
        file_metadata: list[ParquetFileMetadata],
        key_columns: str | Sequence[str],
        source_keys: Sequence[Any],
        partition_schema: pa.Schema | None = None,
    ) -> list[str]:
        """Return the files whose partition may contain one of the keys.

        Only key columns that are partition columns can rule a file out. A value that is missing,
        or is not valid for its type, rules nothing out.

        Args:
            file_metadata: The files.
            key_columns: The key columns.
            source_keys: Scalars for one key column, tuples for several, or an Arrow array or table.
            partition_schema: The types of the partition columns; by default those of the keys.
        """
        key_columns = as_names(key_columns)
        keys = keys_table(source_keys, key_columns)
        types = {field.name: field.type for field in (*keys.schema, *(partition_schema or ()))}
        columns = [
            key_column(name, types[name])
            for name in key_columns
            if any(_has_partition(file, name) for file in file_metadata)
        ]
        if not columns:
            return [file.path for file in file_metadata]
        bounds = [_partition_bounds(column, file_metadata) for column in columns]
        may_contain = KeyOverlap(canonical_keys(keys, columns), bounds).may_contain
        return [file.path for file, hit in zip(file_metadata, may_contain, strict=True) if hit]


class ConservativeMembershipChecker:
    """Checks by statistics whether a file can be ruled out."""

    def file_might_contain_keys(
        self,
        file_metadata: ParquetFileMetadata,
        key_columns: str | Sequence[str],
        source_keys: Sequence[Any],
    ) -> bool:
        """Return whether the file may contain one of the keys; False only if proved not to.

        Args:
            file_metadata: The file. With its footer, the statistics of each row group are compared;
                without, those of the whole file.
            key_columns: The key columns.
            source_keys: Scalars for one key column, tuples for several, or an Arrow array or table.

        Raises:
            SchemaMismatchError: If the keys cannot be compared with the file's. A key that the
                file's type cannot represent is not in the file.
        """
        key_columns = as_names(key_columns)
        keys = keys_table(source_keys, key_columns)
        footer = file_metadata.footer
        if footer is not None and footer.error is not None:
            return True
        if footer is None:
            bounds = [_whole_file_bounds(file_metadata, name, keys) for name in key_columns]
            overlap = KeyOverlap(canonical_keys(keys, [each.column for each in bounds]), bounds)
            return bool(overlap.may_contain.any())
        if not footer.rows:
            return False
        stored = {name: leaf.type for name, leaf in footer.leaves.items()}
        columns = [
            key_column(field.name, common_type(stored.get(field.name, field.type), field.type))
            for field in keys.schema
        ]
        in_path = {
            column.name: partition_values(column, [file_metadata.partition_values])
            for column in columns
            if _has_partition(file_metadata, column.name) and column.name not in footer.leaves
        }
        bounds = key_bounds([footer], columns, in_path)
        canonical = canonical_keys(keys, columns)
        _, overlap = trusted_overlap([footer], canonical, bounds, lambda known: known.raw)
        return bool(overlap.may_contain.any())


def _has_partition(file: ParquetFileMetadata, name: str) -> bool:
    return file.partition_values is not None and name in file.partition_values


def _partition_bounds(column: KeyColumn, files: Sequence[ParquetFileMetadata]) -> ColumnBounds:
    """Return the bounds of a partition column, each file as one row group."""
    values = partition_values(column, [file.partition_values for file in files])
    return constant_bounds(column, values.values, values.known, [1] * len(files))


def _whole_file_bounds(file: ParquetFileMetadata, name: str, keys: pa.Table) -> ColumnBounds:
    """Return the bounds of a column from the statistics of the whole file, as one row group."""
    if _has_partition(file, name):
        return _partition_bounds(key_column(name, keys.schema.field(name).type), [file])
    stats = file.column_stats.get(name, {})
    ends = [stats.get("min"), stats.get("max")]
    known = None not in ends and all(end == end for end in ends)
    wanted = keys.schema.field(name).type
    values = keys_table(ends, [name]).column(name) if known else pa.nulls(2, wanted)
    column = key_column(name, common_type(values.type, wanted))
    canonical = column.canonical(values).combine_chunks()
    if known and canonical[0].as_py() > canonical[1].as_py():
        canonical = pa.nulls(2, canonical.type)  # impossible bounds are unknown
    nulls = stats.get("null_count")
    return ColumnBounds(
        column,
        canonical[:1],
        canonical[1:],
        np.array([nulls is None or nulls != file.total_rows]),
        np.array([nulls != 0]),
    )


class IncrementalFileManager:
    """Stages files for a dataset and replaces files of it, completely or not at all."""

    def __init__(self) -> None:
        self._stages: list[Stage] = []

    def create_staging_directory(self, base_path: str) -> str:
        """Create a staging directory for a dataset; no reader of the dataset sees it.

        Args:
            base_path: The dataset.

        Returns:
            Its path, in the form of ``base_path``. Its last part is ``.staging_<uuid>``.
        """
        storage = open_storage(base_path)
        stage = create_stage(storage)
        self._stages.append(stage)
        return storage.root.to_user_path(stage.path)

    def atomic_replace_files(
        self,
        source_files: list[str],
        target_files: list[str],
        filesystem: Any = None,
    ) -> None:
        """Replace each target by the source at the same index, and delete the source.

        A target that does not exist is created. If this is interrupted after the replacement was
        recorded, the next writer or ``recover()`` completes it.

        Args:
            source_files: Complete files, usually in a staging directory.
            target_files: Data files of one dataset.
            filesystem: The fsspec or pyarrow filesystem of all these paths.

        Raises:
            ValueError: If the lists differ in length, or a target is named twice.
            FileNotFoundError: If a source does not exist; nothing was changed.
            CommitPendingError: If the replacement is recorded but could not be completed.
        """
        _check_file_lists(source_files, target_files)
        if not source_files:
            return
        sources = [_canonical_path(path, filesystem)[1] for path in source_files]
        targets = [_canonical_path(path, filesystem)[1] for path in target_files]
        storage = self._storage(targets, target_files[0], filesystem)
        _replace_files(storage, sources, targets)

    def cleanup_staging_files(self) -> None:
        """Remove the staging directories that this manager has created."""
        while self._stages:
            self._stages.pop().discard()

    def _storage(self, targets: Sequence[str], path: str, filesystem: Any) -> Storage:
        """Return the dataset of all targets: one with a staging directory, or their own."""
        for stage in self._stages:
            base = f"{stage.storage.root.path}/"
            if all(target.startswith(base) for target in targets):
                return stage.storage
        parent = os.path.commonpath([os.path.dirname(target) for target in targets])
        while "=" in os.path.basename(parent):
            parent = os.path.dirname(parent)  # a partition is not a dataset of its own
        root = _canonical_path(path, filesystem)[0]
        return open_storage(parent, root.filesystem)


def _check_file_lists(sources: Sequence[str], targets: Sequence[str]) -> None:
    if len(sources) != len(targets):
        raise InvalidArgumentError(
            "source_files and target_files must have the same length, "
            f"got {len(sources)} and {len(targets)}."
        )
    if twice := sorted({target for target in targets if targets.count(target) > 1}):
        raise InvalidArgumentError(f"target_files must not repeat a file, got {twice!r} twice.")


def _canonical_path(path: str, filesystem: Any) -> tuple[Root, str]:
    """Return the directory of a file and the file's canonical path; a link to a file stays one."""
    directory, _, name = os.fspath(path).rpartition("/")
    if not directory:
        directory = "/" if path.startswith("/") else "."
    root = open_root(directory, filesystem)
    return root, f"{root.path.rstrip('/')}/{name}"


def _replace_files(storage: Storage, sources: Sequence[str], targets: Sequence[str]) -> None:
    disk = storage.backend
    for source in sources:
        if disk.stat(source) is None:
            raise FileNotFoundError(f"the source file {source!r} does not exist.")
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        adds = []
        for source, target in zip(sources, targets, strict=True):
            file = stage.new_copy(check_data_name(storage.root.relative(target)))
            disk.keep_copy(source, file.path)
            found = disk.stat(file.path)
            adds.append(replace(file, size=None if found is None else found.size))
        removes = [file.final for file in adds if file.final in snapshot.by_path]
        commit(storage, snapshot, stage, FileChanges(adds, removes), CommitFacts("", "replace"))
    for source in sources:
        disk.discard(source)
