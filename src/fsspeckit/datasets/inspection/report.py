"""What a dataset looks like: files, columns and key ranges, from paths and footers alone.

It asks the planning of the merge itself, so that what it says about pruning, and about files that
disagree on columns and types, is what a merge would do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.keys import (
    as_names,
    check_names,
    common_type,
    family,
    key_column,
    plain_type,
    python_value,
)
from fsspeckit.core.planning import key_bounds, read_footers, read_target, trusted_overlap
from fsspeckit.core.schema_conform import conform_table
from fsspeckit.datasets.pipeline import partition_schema, run_with_retries
from fsspeckit.display import plain
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError
from fsspeckit.storage import history_of, list_snapshot, open_storage, pending_numbers

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping, Sequence

    from fsspeckit.core.planning import ColumnBounds, FileFooter, Target
    from fsspeckit.storage import History, Snapshot, Storage

SMALL_BYTES = 8 * 1024 * 1024
"""Files below this size cost more to open than to read."""

_MIN_SMALL_FILES = 16
_MAX_PROBES = 256


@dataclass(frozen=True)
class InspectedFile:
    """One data file."""

    path: str
    """Below the dataset's directory."""

    rows: int
    bytes: int
    row_groups: int
    created_by: str
    """The program that wrote it, as its footer says."""

    partition_values: Mapping[str, str | None]
    error: str | None = None
    """Why it cannot be read."""


@dataclass(frozen=True)
class InspectedColumn:
    """One column over all files."""

    name: str
    type: str
    """Of all files; several, with commas, where they differ."""

    is_partition: bool
    is_key: bool
    low: str | None
    high: str | None
    """The least and the greatest value, if every row group has statistics."""

    nulls: int | None
    """How many values are NULL; None if a footer does not say."""

    known_row_groups: int
    """Row groups with bounds that a merge can rely on."""

    bloom_row_groups: int
    """Row groups with a bloom filter."""


@dataclass(frozen=True)
class KeyPruning:
    """In how many files a key may be, as far as paths and statistics say."""

    columns: tuple[str, ...]
    probes: int
    """How many keys were tried: low ends of row groups, spread over the dataset."""

    files_of_one_key: float
    """In how many files one key may be, on average."""

    most_files_of_one_key: int
    """In how many at the worst; 1 if the ranges of no two files overlap."""


@dataclass(frozen=True)
class SmallFiles:
    """Files that are small enough to be a burden."""

    files: int
    bytes: int
    limit: int
    """Below how many bytes a file counts as small."""


@dataclass(frozen=True)
class TypeDifference:
    """A column that does not have the same type in all files."""

    column: str
    types: tuple[str, ...]
    """All of them, that of the first file first."""

    files: tuple[str, ...]
    """The files that do not have the type of the first one, below the dataset's directory."""

    convertible: bool
    """Whether one of the types can be written to all files, as far as values fit. If not, no
    merge can change rows in all of them."""


@dataclass(frozen=True)
class Inspection:
    """What a dataset looks like."""

    path: str
    files: tuple[InspectedFile, ...]
    columns: tuple[InspectedColumn, ...]
    partition_columns: tuple[str, ...]
    partitions: int
    """How many different partitions have files."""

    key_columns: tuple[str, ...]
    """Those asked for, or those of the last merge."""

    key_pruning: KeyPruning | None
    small_files: SmallFiles | None
    """None if there are too few of them to matter."""

    obstacles: tuple[str, ...]
    """Why a merge would refuse the dataset, one paragraph each."""

    type_differences: tuple[TypeDifference, ...]
    """Columns whose types differ from file to file."""

    pending_commits: tuple[int, ...]
    """Commits that recovery has to complete."""

    commits: int

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and totals, by name, as values that ``json`` can write."""
        totals = {"rows": self.rows, "bytes": self.bytes, "row_groups": self.row_groups}
        return {**plain(self), **totals}

    @property
    def rows(self) -> int:
        """The rows of all files that can be read."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.bytes for file in self.files)

    @property
    def row_groups(self) -> int:
        """The row groups of all files."""
        return sum(file.row_groups for file in self.files)


def inspect_dataset(
    path: str | os.PathLike[str],
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    key_columns: str | Sequence[str] | None = None,
    control_dir: str | os.PathLike[str] | None = None,
) -> Inspection:
    """Describe a dataset: files, columns, ranges of keys and their overlap; changes nothing.

    Args:
        path: The dataset's directory, path or URL.
        filesystem: An fsspec or pyarrow filesystem; None to find it from the path.
        storage_options: What fsspec needs to open the filesystem of the path.
        key_columns: Whose ranges to compare; by default those of the last merge.
        control_dir: The control directory, where it is not beside the dataset.

    Raises:
        FileNotFoundError: If there is no such dataset.
        InvalidArgumentError: If a key column is in no file.

    Examples:
        >>> import pyarrow as pa
        >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
        >>> _ = PyarrowDatasetIO().write_dataset(
        ...     pa.table({"id": range(6)}), "memory://doc-inspect", max_rows_per_file=2
        ... )
        >>> found = inspect_dataset("memory://doc-inspect", key_columns=["id"])
        >>> found.rows, len(found.files), found.key_pruning.files_of_one_key
        (6, 3, 1.0)
    """
    storage = open_storage(path, filesystem, storage_options, control_dir=control_dir)
    if key_columns is not None:
        key_columns = as_names(key_columns)
        check_names("key_columns", key_columns)
    storage.check_exists()
    surveyed = survey(storage, key_columns)
    return inspection_of(surveyed)


def inspection_of(surveyed: Survey) -> Inspection:
    """Describe a dataset that was surveyed."""
    root, target = surveyed.storage.root, surveyed.target
    footers = target.footers
    obstacles = surveyed.obstacles
    if odd := odd_files(target):
        obstacles += (
            f"{len(odd):,} file(s) do not have the columns of the first one, such as "
            f"{root.relative(odd[0].file.path)!r}. Hint: rewrite the files so that all have the "
            "same columns.",
        )
    return Inspection(
        path=root.display_path,
        files=tuple(
            InspectedFile(
                root.relative(footer.file.path),
                footer.rows,
                footer.file.size,
                len(footer.row_groups),
                footer.created_by,
                texts,
                footer.error,
            )
            for footer, texts in zip(footers, target.partition_texts, strict=True)
        ),
        columns=tuple(
            _column(target, name, name in surveyed.key_columns) for name in all_columns(target)
        ),
        partition_columns=tuple(part.name for part in target.partition_columns),
        partitions=len({tuple(texts.items()) for texts in target.partition_texts if texts}),
        key_columns=surveyed.key_columns,
        key_pruning=surveyed.pruning,
        small_files=small_files(footers),
        obstacles=obstacles,
        type_differences=type_differences(target),
        pending_commits=surveyed.pending,
        commits=len(surveyed.history),
    )


@dataclass(frozen=True)
class Survey:
    """The parts of a dataset that descriptions are made of."""

    storage: Storage
    target: Target
    obstacles: tuple[str, ...]
    """Why a merge by the key would refuse the dataset, each with a hint."""

    key_columns: tuple[str, ...]
    bounds: tuple[ColumnBounds, ...]
    """What is known of each key column in every row group, doubtful bounds left out."""

    pruning: KeyPruning | None
    pending: tuple[int, ...]
    history: History


def survey(storage: Storage, key_columns: Sequence[str] | None) -> Survey:
    """Read everything that can be known without reading data."""
    run = partial(_survey_snapshot, storage, key_columns)
    return run_with_retries(storage, run, lambda storage: list_snapshot(storage)[0])


def _survey_snapshot(
    storage: Storage, key_columns: Sequence[str] | None, snapshot: Snapshot
) -> Survey:
    root, files = storage.root, snapshot.listing.files
    entries = history_of(storage)
    keys = key_columns
    if keys is None:
        keys = next((entry.key_columns for entry in reversed(entries) if entry.key_columns), ())
    parts = partition_schema([root.relative(file.path) for file in files])
    # Footers with every column: what they say about others than the keys is shown, too.
    target = read_target(
        root, files, (), parts, read=lambda root, files, _: read_footers(root, files, None)
    )
    columns = all_columns(target)
    known = tuple(name for name in keys if name in columns)
    is_readable = any(footer.error is None for footer in target.footers)
    if key_columns is not None and is_readable and len(known) < len(keys):
        missing = [name for name in keys if name not in columns]
        raise InvalidArgumentError.missing_columns("key_columns", missing, columns)
    problems = {name: problem for name in known if (problem := key_problem(target, name, parts))}
    bounds, pruning = _pruning(target, known, problems)
    return Survey(
        storage,
        target,
        (*problems.values(), *snapshot.listing.obstacles),
        known,
        tuple(bounds),
        pruning,
        tuple(pending_numbers(storage)[1]),
        entries,
    )


def small_files(footers: Sequence[FileFooter]) -> SmallFiles | None:
    """The small files, if there are enough of them to matter."""
    small = [footer.file.size for footer in footers if footer.file.size < SMALL_BYTES]
    if len(small) < _MIN_SMALL_FILES or 2 * len(small) < len(footers):
        return None
    return SmallFiles(len(small), sum(small), SMALL_BYTES)


def _column(target: Target, name: str, is_key: bool) -> InspectedColumn:
    parts = {part.name: part for part in target.partition_columns}
    stored = [footer.schema.field(name).type for footer in target.footers if _has(footer, name)]
    types = list(dict.fromkeys(map(str, stored))) or [str(parts[name].type)]
    chunks = [
        group.columns.get(name)
        for footer in target.footers
        if _has(footer, name)
        for group in footer.row_groups
    ]
    counts = [None if chunk is None else chunk.null_count for chunk in chunks]
    if name in parts:
        texts = target.partition_texts
        counts = [
            footer.rows if values.get(name) is None else 0
            for footer, values in zip(target.footers, texts, strict=True)
        ]
    bounds = _bounds(target, name)
    known = 0 if bounds is None else int(np.asarray(bounds.low.is_valid()).sum())
    low, high = (None, None) if bounds is None else _ends(bounds)
    return InspectedColumn(
        name,
        ", ".join(types),
        name in parts,
        is_key,
        low,
        high,
        None if None in counts else sum(count for count in counts if count is not None),
        known,
        sum(chunk is not None and chunk.bloom_offset is not None for chunk in chunks),
    )


def _has(footer: FileFooter, name: str) -> bool:
    # Not ``in schema.names``: that makes a list of all names, and this is asked for every column.
    return bool(footer.schema.get_all_field_indices(name))


def _bounds(target: Target, name: str) -> ColumnBounds | None:
    """What is known of a column in every row group; None where values have no order."""
    for part in target.partition_columns:
        if part.name == name:
            return key_bounds(target.footers, [part], target.partitions)[0]
    try:
        shared = pa.null()
        for footer in target.footers:
            if name in footer.leaves:
                shared = common_type(shared, footer.leaves[name].type)
        if pa.types.is_null(shared):
            return None
        return key_bounds(target.footers, [key_column(name, shared)], {})[0]
    except SchemaMismatchError:
        return None


def _ends(bounds: ColumnBounds) -> tuple[str | None, str | None]:
    """Least and greatest value as text, if they are known."""
    ends = bounds.ends()
    try:
        found = [] if ends is None else bounds.column.original(ends)
    except pa.ArrowInvalid:  # a bound cut in the middle of a character
        found = []
    low, high = (str(python_value(value)) for value in found) if len(found) else (None, None)
    return low, high


def _pruning(
    target: Target, keys: Sequence[str], problems: Collection[str]
) -> tuple[list[ColumnBounds], KeyPruning | None]:
    """Prune with keys that are spread over the dataset, and count the files of each."""
    found = [_bounds(target, name) for name in keys if name not in problems]
    columns = [bounds for bounds in found if bounds is not None]
    if not keys or len(columns) < len(keys):
        return columns, None
    probes = _probes(columns)
    if not len(probes):
        return columns, KeyPruning(tuple(keys), 0, float(len(target.footers)), len(target.footers))
    bounds, overlap = trusted_overlap(target.footers, probes, columns, lambda footer: footer.raw)
    files = np.zeros(probes.num_rows, np.int64)
    start = 0
    for footer in target.footers:
        end = start + len(footer.row_groups)
        alive = [group for group in range(start, end) if overlap.may_contain[group]]
        inside = [overlap.inside(group) for group in alive]
        files[np.unique(np.concatenate([*inside, np.empty(0, np.intp)]))] += 1
        start = end
    return bounds, KeyPruning(
        tuple(keys), probes.num_rows, round(float(files.mean()), 2), int(files.max())
    )


def _probes(bounds: Sequence[ColumnBounds]) -> pa.Table:
    """Return keys at the low ends of row groups, at most ``_MAX_PROBES``."""
    known = np.logical_and.reduce([np.asarray(each.low.is_valid()) for each in bounds])
    groups = np.flatnonzero(known)
    if len(groups) > _MAX_PROBES:
        groups = groups[np.linspace(0, len(groups) - 1, _MAX_PROBES).astype(int)]
    where = pa.array(groups)
    return pa.table({each.column.name: each.low.take(where) for each in bounds})


# Where the files of a dataset disagree


def all_columns(target: Target) -> list[str]:
    """The columns of all files and paths, each once."""
    names = [name for footer in target.footers for name in footer.schema.names]
    return list(dict.fromkeys([*names, *(part.name for part in target.partition_columns)]))


def key_problem(target: Target, name: str, parts: pa.Schema) -> str | None:
    """Why a merge could not use a column as a key, in its own words."""
    files = [footer.file for footer in target.footers]
    try:
        for footer in target.footers:
            if name in footer.schema.names and name not in footer.leaves:
                key_column(name, footer.schema.field(name).type)  # it is nested there
        read_target(target.root, files, [name], parts, read=lambda *_: list(target.footers))
    except SchemaMismatchError as error:
        return " ".join(str(error).split())
    return None


def odd_files(target: Target) -> list[FileFooter]:
    """The files that do not have the columns of the first one."""
    parts = {part.name for part in target.partition_columns}
    readable = [footer for footer in target.footers if footer.error is None]
    names = [parts.union(footer.schema.names) for footer in readable]
    return [footer for footer, each in zip(readable, names, strict=True) if each != names[0]]


def type_differences(target: Target) -> tuple[TypeDifference, ...]:
    """The columns whose types differ from file to file."""
    if len({id(footer.schema) for footer in target.footers if footer.error is None}) < 2:
        return ()  # footers that say the same share one
    parts = {part.name for part in target.partition_columns}
    names = [name for name in all_columns(target) if name not in parts]
    return tuple(each for name in names if (each := _difference(target, name)) is not None)


def _difference(target: Target, name: str) -> TypeDifference | None:
    holding = [footer for footer in target.footers if _has(footer, name)]
    kinds = [_stored(footer.schema.field(name).type) for footer in holding]
    distinct = list(dict.fromkeys(kinds))
    if len(distinct) < 2:
        return None
    odd = [footer for footer, kind in zip(holding, kinds, strict=True) if kind != distinct[0]]
    return TypeDifference(
        name,
        tuple(map(str, distinct)),
        tuple(target.root.relative(footer.file.path) for footer in odd),
        any(all(_fits(name, one, other) for other in distinct) for one in distinct),
    )


def _stored(data_type: pa.DataType) -> pa.DataType:
    """A type as readers other than Arrow see it: all texts are texts."""
    return pa.string() if family(data_type) == "string" else plain_type(data_type)


def _fits(name: str, source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of one type may be written as values of another."""
    try:
        conform_table(pa.schema([(name, source)]).empty_table(), pa.schema([(name, target)]))
    except SchemaMismatchError:
        return False
    return True
