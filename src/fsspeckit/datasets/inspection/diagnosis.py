"""How well merges on a key would prune, what stands in their way, and what to change about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fsspeckit.core.keys import as_names, check_names, key_column
from fsspeckit.core.planning import (
    check_partition_value,
    parse_hive_partition_path,
    parse_partition_values,
)
from fsspeckit.datasets.inspection.report import (
    KeyPruning,
    odd_files,
    small_files,
    survey,
    type_differences,
)
from fsspeckit.display import counted, plain
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError
from fsspeckit.storage import open_storage

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence, Sized

    from fsspeckit.core.planning import ColumnBounds, FileFooter
    from fsspeckit.datasets.inspection.report import Survey

Severity = Literal["error", "warning", "note"]

_MAX_GOOD_FRACTION = 0.1
"""One key in more than this share of the files is poor pruning."""


@dataclass(frozen=True)
class Finding:
    """One thing that a merge would suffer from."""

    severity: Severity
    """``error``: a merge would be refused. ``warning``: it would do more work than needed."""

    what: str
    """What was found."""

    advice: str
    """What to change."""

    files: tuple[str, ...] = ()
    """The files it is about, below the dataset's directory."""


@dataclass(frozen=True)
class Diagnosis:
    """How merges on a key would do."""

    path: str
    key_columns: tuple[str, ...]
    files: int
    pruning: KeyPruning
    findings: tuple[Finding, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and the verdict, by name, as values that ``json`` can write."""
        return {"verdict": self.verdict, **plain(self)}

    @property
    def verdict(self) -> Literal["refused", "poor", "good"]:
        """``refused`` if a merge would fail, ``poor`` if it would read much, else ``good``."""
        if any(finding.severity == "error" for finding in self.findings):
            return "refused"
        return "poor" if is_poor(self.pruning, self.files) else "good"


def is_poor(pruning: KeyPruning, files: int) -> bool:
    """Whether one key may be in too many files."""
    return pruning.files_of_one_key > max(2.0, _MAX_GOOD_FRACTION * files)


def diagnose_dataset(
    path: str | os.PathLike[str],
    key_columns: str | Sequence[str],
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    control_dir: str | os.PathLike[str] | None = None,
) -> Diagnosis:
    """Say how well merges on a key would prune, and what to change; nothing is written.

    Args:
        path: The dataset's directory, path or URL.
        key_columns: The key columns of the merges.
        filesystem: An fsspec or pyarrow filesystem; None to find it from the path.
        storage_options: What fsspec needs to open the filesystem of the path.
        control_dir: The control directory, where it is not beside the dataset.

    Raises:
        FileNotFoundError: If there is no such dataset.
        InvalidArgumentError: If a key column is in no file, or there are no files.

    Examples:
        >>> import pyarrow as pa
        >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
        >>> _ = PyarrowDatasetIO().write_dataset(
        ...     pa.table({"id": range(6)}), "memory://doc-diagnose", max_rows_per_file=2
        ... )
        >>> diagnose_dataset("memory://doc-diagnose", ["id"]).verdict
        'good'
    """
    key_columns = as_names(key_columns)
    check_names("key_columns", key_columns)
    storage = open_storage(path, filesystem, storage_options, control_dir=control_dir)
    storage.check_exists()
    found = survey(storage, key_columns)
    if not found.target.footers:
        raise InvalidArgumentError(
            f"{storage.root.display_path!r} holds no data files, so there is nothing to say "
            "about a key.\n"
            "Hint: write some rows first."
        )
    return diagnosis_of(found, key_columns)


def diagnosis_of(found: Survey, key_columns: Sequence[str]) -> Diagnosis:
    """Say how well merges on a key would prune in a dataset that was surveyed."""
    files = len(found.target.footers)
    return Diagnosis(
        found.storage.root.display_path,
        tuple(key_columns),
        files,
        # Where no file can be read, or the columns cannot be a key, a key may be in any file.
        found.pruning or KeyPruning(tuple(key_columns), 0, float(files), files),
        tuple(sorted(_findings(found), key=lambda finding: finding.severity != "error")),
    )


def _findings(found: Survey) -> Iterator[Finding]:
    yield from _obstacles(found)
    yield from _type_differences(found)
    for bounds in found.bounds:
        yield from _unknown_bounds(found, bounds)
        yield from _null_keys(found, bounds.column.name)
    yield from _overlap(found)
    yield from _partitions(found)
    small = small_files(found.target.footers)
    if small is not None:
        yield Finding(
            "warning",
            f"{small.files:,} files are smaller than {small.limit // 1024**2} MiB: opening them "
            "takes longer than reading them.",
            "rewrite the dataset with fewer and larger files.",
        )


def _obstacles(found: Survey) -> Iterator[Finding]:
    for obstacle in found.obstacles:
        what, _, advice = obstacle.partition(" Hint: ")
        yield Finding("error", what, advice or "merge into a directory of plain Parquet.")
    broken = _named(found, [footer for footer in found.target.footers if footer.error is not None])
    if broken:
        yield Finding(
            "error",
            f"{counted(len(broken), 'file')} cannot be read as Parquet.",
            "remove or restore them; a merge cannot rewrite what it cannot read.",
            broken,
        )
    yield from _contradictions(found)
    if found.pending:
        numbers = ", ".join(map(str, found.pending))
        yield Finding(
            "warning",
            f"commit {numbers} is not complete.",
            "call recover(); the next merge would do it, too.",
        )


def _contradictions(found: Survey) -> Iterator[Finding]:
    """Files that do not have the columns of the others, or not the values of their paths."""
    if odd := odd_files(found.target):
        yield Finding(
            "error",
            f"{_files(odd, 'does', 'do')} not have the columns of the first one.",
            "rewrite the files so that all have the same columns.",
            _named(found, odd),
        )
    for part in found.target.partition_columns:
        if odd := [
            footer for footer in found.target.footers if _contradicts_path(found, footer, part.name)
        ]:
            yield Finding(
                "error",
                f"{_files(odd, 'holds', 'hold')} other values of {part.name!r} than the path says.",
                "move them to the right directories, or drop the column from them.",
                _named(found, odd),
            )


def _contradicts_path(found: Survey, footer: FileFooter, part: str) -> bool:
    """Whether a file stores a partition column with other values than its path has."""
    if footer.error is not None or part not in footer.leaves:
        return False
    root = found.storage.root
    text = parse_hive_partition_path(root.relative(footer.file.path)).get(part)
    try:
        column = key_column(part, footer.leaves[part].type)
        values, known = parse_partition_values([text], column.type)
        check_partition_value(root, footer, column, text, values[0] if known[0] else None)
    except SchemaMismatchError:
        return True
    return False


def _type_differences(found: Survey) -> Iterator[Finding]:
    """Columns whose types differ; key columns that cannot be compared are obstacles already."""
    for difference in type_differences(found.target):
        if difference.convertible:
            trouble = "a merge is refused where a value does not fit the type of its file"
        elif difference.column in found.key_columns:
            continue
        else:
            trouble = "a merge is refused where it would change rows in these files"
        yield Finding(
            "warning",
            f"column {difference.column!r} is {' or '.join(difference.types)}, depending on the "
            f"file: {trouble}, and readers may refuse to read the dataset.",
            f"rewrite these files with {difference.types[0]}, as the others have it.",
            difference.files,
        )


def _unknown_bounds(found: Survey, bounds: ColumnBounds) -> Iterator[Finding]:
    """Row groups whose bounds are missing or doubtful, grouped by the reason."""
    if bounds.evidence == "partition":
        return
    unknown = ~np.asarray(bounds.low.is_valid()) & bounds.may_contain_values
    by_reason: dict[str, list[FileFooter]] = {}
    start = 0
    for footer in found.target.footers:
        for number, group in enumerate(footer.row_groups):
            if unknown[start + number] and group.rows:
                reason = _reason(footer, number, bounds.column.name)
                if footer not in by_reason.setdefault(reason, [])[-1:]:
                    by_reason[reason].append(footer)
        start += len(footer.row_groups)
    for reason, footers in by_reason.items():
        yield Finding(
            "warning",
            f"{_files(footers, 'has', 'have')} no usable statistics of {bounds.column.name!r}: "
            f"{reason}. Every merge reads {'it' if len(footers) == 1 else 'them'}.",
            _ADVICE.get(reason, "rewrite them with statistics of that column."),
            _named(found, footers),
        )


_INT96 = "it is stored as INT96, whose order is not defined"
_NONE = "the footer has none"
_CUT = "the bounds may be cut, or their order is not known"
_ADVICE = {
    _INT96: "write timestamps as INT64, for example with "
    "spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS.",
    _CUT: "rewrite the files with a writer that stores whole bounds.",
}


def _reason(footer: FileFooter, group: int, column: str) -> str:
    leaf = footer.leaves.get(column)
    if leaf is None or footer.row_groups[group].columns[column].low is None:
        return _INT96 if leaf is not None and leaf.physical == "INT96" else _NONE
    return _INT96 if leaf.physical == "INT96" else _CUT


def _null_keys(found: Survey, column: str) -> Iterator[Finding]:
    holding = [
        footer
        for footer in found.target.footers
        if any(
            column in group.columns and (group.columns[column].null_count or 0) > 0
            for group in footer.row_groups
        )
    ]
    if holding:
        yield Finding(
            "note",
            f"{_files(holding, 'holds', 'hold')} rows whose {column!r} is NULL; no source key "
            "matches them.",
            'give those rows a key, or merge with null_keys="match".',
            _named(found, holding),
        )


def _overlap(found: Survey) -> Iterator[Finding]:
    pruning, files = found.pruning, len(found.target.footers)
    if pruning is None or not is_poor(pruning, files):
        return
    keys = ", ".join(pruning.columns)
    what = (
        f"the ranges of {keys} overlap: one key may be in {pruning.files_of_one_key:g} of "
        f"{files:,} files on average."
    )
    blooms = all(
        any(
            name in group.columns and group.columns[name].bloom_offset is not None
            for name in pruning.columns
        )
        for footer in found.target.footers
        for group in footer.row_groups
    )
    if blooms:
        yield Finding("note", f"{what} Bloom filters rule most of them out.", "nothing to do.")
        return
    yield Finding("warning", what, _against_overlap(found, keys))


def _against_overlap(found: Survey, keys: str) -> str:
    parts = {part.name for part in found.target.partition_columns}
    stored = [name for name in found.key_columns if name not in parts]
    if not stored:
        return f"add a column to the key in which rows of the same {keys} differ."
    return (
        f"write the dataset sorted by {keys}; or partition it by a column that goes with the key; "
        f"or, for keys without order such as UUIDs, write bloom filters: bloom_columns="
        f'["{stored[0]}"].'
    )


def _partitions(found: Survey) -> Iterator[Finding]:
    parts = [part.name for part in found.target.partition_columns]
    outside = [name for name in parts if name not in found.key_columns]
    if outside:
        yield Finding(
            "note",
            f"the key does not name the partition columns {', '.join(outside)}: every merge looks "
            "for its keys in other partitions, too.",
            f"add {outside[0]!r} to the key if one key may live in several partitions, or merge "
            "with trust_partitions=True if keys never move.",
        )


def _files(files: Sized, one: str, many: str) -> str:
    """Return a number of files with the verb that fits it."""
    return f"{counted(len(files), 'file')} {one if len(files) == 1 else many}"


def _named(found: Survey, footers: Sequence[FileFooter]) -> tuple[str, ...]:
    return tuple(found.storage.root.relative(footer.file.path) for footer in footers)
