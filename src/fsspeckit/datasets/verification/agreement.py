"""Where files of a dataset disagree: columns, types, partitions, and what readers make of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from fsspeckit.core.keys import family, key_column, plain_type
from fsspeckit.core.planning import (
    check_partition_value,
    detect_partition_columns,
    parse_hive_partition_path,
    parse_partition_values,
    read_footers,
)
from fsspeckit.errors import FsspeckitError
from fsspeckit.storage import DATA_SUFFIXES, Findings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fsspeckit.core.parquet import VerifiedFooter
    from fsspeckit.storage import PinnedFile, StableFiles, Storage, VerifyFinding

_SAME_COLUMNS: Final = "rewrite the files so that all have the same columns and types."
_MAX_PLAIN_DIGITS: Final = 18


def check_layout(state: StableFiles, storage: Storage) -> list[VerifyFinding]:
    """Check the names of files and directories."""
    findings = Findings()
    for obstacle in state.obstacles:
        what, _, hint = obstacle.partition(" Hint: ")
        findings.error(what, hint or "make it a directory of plain Parquet files.")
    paths = [pinned.relative for pinned in state.files]
    try:
        detect_partition_columns(paths)
    except FsspeckitError as error:
        what, _, hint = str(error).partition("\nHint: ")
        findings.error(what, hint)
    _check_spelling(paths, findings)
    _check_hidden(storage, findings)
    return findings.found


def _check_spelling(paths: Sequence[str], findings: Findings) -> None:
    """Find partition values that have directories of different names."""
    spelled: dict[tuple[Any, ...], set[str]] = {}
    for path in paths:
        parent: tuple[Any, ...] = ()
        for part in path.split("/")[:-1]:
            values = parse_hive_partition_path(f"{part}/")
            value = [(name, _meant(text)) for name, text in values.items()] or part
            parent = (*parent, tuple(value))
            spelled.setdefault(parent, set()).add(part)
    for parent, names in spelled.items():
        if len(names) > 1:
            listed = " and ".join(map(repr, sorted(names)))
            findings.file = (
                "/".join(
                    "/".join(f"{name}={text}" for name, text in part)
                    for part in parent[:-1]
                    if isinstance(part[0], tuple)
                )
                or None
            )
            findings.warning(
                f"the directories {listed} are the same partition for readers that decode names "
                "and convert values, and different ones for others.",
                "move the files into one of the directories.",
            )
            findings.file = None


def _meant(text: str | None) -> str | None:
    """Return what Spark and others take a partition value for."""
    if not text:
        return None
    digits = text.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _MAX_PLAIN_DIGITS
    return str(int(text)) if is_number else text


def _check_hidden(storage: Storage, findings: Findings) -> None:
    """Find Parquet files that some readers skip as hidden and others read."""
    root = storage.root
    try:
        found = root.filesystem.find(root.path)
    except FileNotFoundError:
        return
    for path in sorted(found):
        relative = root.relative(path)
        directories = relative.split("/")
        is_partition = any(part.startswith("_") and "=" in part for part in directories[:-1])
        is_hidden = any(part.startswith((".", "_")) for part in directories)
        if is_hidden and not is_partition and relative.lower().endswith(DATA_SUFFIXES):
            findings.file = relative
            findings.error(
                "it is hidden for Spark, PyArrow and fsspeckit, and DuckDB and Polars read it as "
                "data.",
                "delete the file, or move it out of the dataset.",
            )
            findings.file = None


def check_schemas(footers: Mapping[str, VerifiedFooter]) -> list[VerifyFinding]:
    """Compare the columns of files, by path, with those that most of them have."""
    findings = Findings()
    kinds = {path: _shape(footer) for path, footer in footers.items()}
    counts = Counter(tuple(shape.items()) for shape in kinds.values())
    if not counts:
        return []
    usual = dict(counts.most_common(1)[0][0])
    for path, shape in kinds.items():
        if shape != usual:
            findings.file = path
            _compare(shape, usual, findings)
    _check_case(usual, findings)
    return findings.found


def _compare(shape: Mapping[str, _Kind], usual: Mapping[str, _Kind], findings: Findings) -> None:
    for name in usual.keys() - shape.keys():
        findings.error(
            "other files have this column and it has not: DuckDB and Polars refuse to read the "
            "files together, or lose the column.",
            _SAME_COLUMNS,
            column=name,
        )
    for name in shape.keys() - usual.keys():
        findings.error(
            "other files do not have this column: pyarrow, Spark and DuckDB lose it unless they "
            "read this file first, and Polars refuses to read the files together.",
            _SAME_COLUMNS,
            column=name,
        )
    for name in shape.keys() & usual.keys():
        if shape[name] != usual[name]:
            _compare_types(name, shape[name], usual[name], findings)


def _compare_types(name: str, found: _Kind, usual: _Kind, findings: Findings) -> None:
    what = f"it is {found} here and {usual} in other files: "
    if not _differ_in_units(found.type, usual.type):
        text = (
            f"{what}Spark and Polars refuse to read the files together, pyarrow and DuckDB refuse "
            "or change values, depending on which file they read first."
        )
        findings.error(text, _SAME_COLUMNS, column=name)
    elif found.is_int96 != usual.is_int96:
        # What a merge leaves where it rewrites one of the files.
        text = f"{what}the instants are the same, but Polars refuses to read the files together."
        findings.warning(text, _SAME_COLUMNS, column=name)
    else:
        text = (
            f"{what}Polars refuses to read the files together, and pyarrow if it reads a file "
            "first whose unit is too coarse for the values of another one."
        )
        findings.error(text, _SAME_COLUMNS, column=name)


def _differ_in_units(found: pa.DataType, usual: pa.DataType) -> bool:
    """Whether two types are the same, except for units of timestamps."""
    return bool(_without_units(found) == _without_units(usual))


def _without_units(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns", kind.tz)
    return _with_inner(kind, _without_units)


def _check_case(usual: Mapping[str, _Kind], findings: Findings) -> None:
    alike = Counter(name.lower() for name in usual)
    for name in usual:
        if alike[name.lower()] > 1:
            findings.file = None
            findings.error(
                "another column differs from it in upper and lower case only: Spark and DuckDB "
                "cannot tell them apart.",
                "rename one of the columns.",
                column=name,
            )


@dataclass(frozen=True)
class _Kind:
    """How a file stores a column."""

    type: pa.DataType
    is_int96: bool

    def __str__(self) -> str:
        return f"{self.type} as INT96" if self.is_int96 else str(self.type)


def _shape(footer: VerifiedFooter) -> dict[str, _Kind]:
    return {
        field.name: _Kind(_stored(field.type), field.name in footer.int96)
        for field in footer.schema or ()
    }


def _stored(kind: pa.DataType) -> pa.DataType:
    """Return a type as Parquet has it: without names of items, and whether NULL is allowed."""
    kind = _with_inner(plain_type(kind), _stored)
    return pa.string() if family(kind) == "string" else kind


def _with_inner(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with others inside, if it is nested."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, change(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(change(kind.key_type), change(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(change(kind.value_type))
    return kind


def check_partitions(
    storage: Storage, files: Sequence[PinnedFile], parts: pa.Schema
) -> list[VerifyFinding]:
    """Compare partition columns that files store with the values in their paths."""
    findings = Findings()
    footers = read_footers(storage.root, [pinned.file for pinned in files], parts.names)
    for pinned, footer in zip(files, footers, strict=True):
        texts = parse_hive_partition_path(pinned.relative)
        for part in parts:
            if footer.error is not None or part.name not in footer.leaves:
                continue
            findings.file = pinned.relative
            text = texts.get(part.name)
            try:
                column = key_column(part.name, footer.leaves[part.name].type)
                values, (known,) = parse_partition_values([text], column.type)
                value = values[0] if known else None
                check_partition_value(storage.root, footer, column, text, value)
            except FileNotFoundError:
                continue
            except FsspeckitError as error:
                findings.error(
                    f"it stores other values of {part.name!r} than its path says: "
                    f"{str(error).partition(chr(10))[0]} Readers disagree about its rows.",
                    "move it to the right directory, or drop the column from it.",
                    column=part.name,
                )
    return findings.found
