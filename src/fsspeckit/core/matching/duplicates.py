"""Duplicates: rows of the target that have the key of another row, and which of them stays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from fsspeckit.core.arrow_compat import int96_columns, open_data_file, physical_types
from fsspeckit.core.keys import (
    KeyIndex,
    ascending_rows,
    comparable_values,
    family,
    key_column,
    key_fingerprints,
    python_value,
    row_digests,
)
from fsspeckit.core.matching.positions import (
    Positions,
    keys_of_file,
    read_columns,
    row_group_starts,
)
from fsspeckit.errors import DuplicateRowsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from fsspeckit.core.keys import KeyColumn
    from fsspeckit.core.planning import Target

    Rows = NDArray[np.int64]

KeepPolicy = Literal["first", "last"]
MAX_SAMPLES = 5
_DIGEST = "digest"


@dataclass(frozen=True)
class DuplicateRules:
    """Which rows of a dataset have the same key, and which of them stays.

    Rows are scanned as tables of numbers and bytes under names of our own: ``k0`` and so on for
    the key, ``o0`` and so on for the order, ``digest`` for the whole row.
    """

    keys: tuple[KeyColumn, ...]
    """The key; without columns it is the whole row."""

    order: tuple[KeyColumn, ...]
    """Of rows with one key the one with the greatest value of these columns stays."""

    keep: KeepPolicy
    """Which one stays of rows with one key, if the order does not say, by file and position."""

    match_nulls: bool
    """Whether rows with NULL in the key can be duplicates; of a whole row they always can."""

    columns: tuple[pa.Field, ...] = ()
    """The columns of a whole row, where that is compared."""

    @property
    def compares_rows(self) -> bool:
        """Whether rows with one key must be equal in every other column, too."""
        return bool(self.keys and self.columns)

    @property
    def group_names(self) -> list[str]:
        """The names of what is equal in duplicates."""
        return [f"k{n}" for n in range(len(self.keys))] or [_DIGEST]

    @property
    def order_names(self) -> list[str]:
        """The names of what says which of them stays."""
        return [f"o{n}" for n in range(len(self.order))]

    @property
    def direction(self) -> str:
        """How files and positions are sorted, so that the first of equal rows is the one to stay.

        In the words of SQL.
        """
        return "ASC" if self.keep == "first" else "DESC"

    @property
    def schema(self) -> pa.Schema:
        """The columns of scanned rows."""
        named = [
            *zip(self.group_names, self.keys, strict=False),
            *zip(self.order_names, self.order, strict=True),
        ]
        fields = [pa.field(name, column.canonical_type) for name, column in named]
        digest = [pa.field(_DIGEST, pa.binary())] if self.columns else []
        numbers = [pa.field(name, pa.int64()) for name in ("file", "position")]
        return pa.schema([*fields, *digest, *numbers])


@dataclass(frozen=True)
class LosingRows:
    """Rows that go because another row with their key stays."""

    files: Rows
    """The number of the file of each, ascending."""

    positions: Rows
    """Its position in the file, ascending for each file."""

    different: Rows
    """The indices of those that are not equal to the row that stays, where that matters."""

    @classmethod
    def none(cls) -> LosingRows:
        """No rows."""
        nothing = np.empty(0, np.int64)
        return cls(nothing, nothing, nothing)

    @classmethod
    def of(cls, found: pa.Table) -> LosingRows:
        """Return rows of a table with file, position, and whether they are different."""
        files, positions = found["file"].to_numpy(), found["position"].to_numpy()
        order = np.lexsort((positions, files))
        different = np.asarray(found["differs"])[order]
        return cls(files[order], positions[order], np.flatnonzero(different))

    @classmethod
    def joined(cls, parts: Sequence[LosingRows]) -> LosingRows:
        """Return the rows of several shares of the keys."""
        different = [np.isin(np.arange(len(one.files)), one.different) for one in parts]
        columns = [
            np.concatenate([one.files for one in parts]),
            np.concatenate([one.positions for one in parts]),
            np.concatenate(different),
        ]
        return cls.of(pa.table(columns, names=["file", "position", "differs"]))

    def by_file(self, target: Target, numbers: Sequence[int]) -> dict[int, Positions]:
        """Return the rows of each file that was scanned."""
        found = {}
        for number in numbers:
            start, end = np.searchsorted(self.files, [number, number + 1])
            here = self.positions[start:end]
            starts = row_group_starts(target.footers[number])
            groups = np.unique(np.searchsorted(starts, here, side="right") - 1)
            found[number] = Positions(here, np.zeros(len(here), np.int64), tuple(groups.tolist()))
        return found


def scanned_files(target: Target) -> list[int]:
    """Return the numbers of files with rows that can be read."""
    unknown = target.unknown_partitions()
    return [n for n, footer in enumerate(target.footers) if footer.rows and n not in unknown]


def scan_rows(
    target: Target, rules: DuplicateRules, number: int, row_groups: Sequence[int]
) -> Iterator[pa.Table]:
    """Yield what decides about the rows of some row groups of a file.

    Rows with NULL in their key are left out, unless NULL equals NULL.
    """
    starts = row_group_starts(target.footers[number])
    digests = _digests(target, rules, number, row_groups)
    keys: Iterator[Any] = iter(())
    if rules.keys:
        keys = keys_of_file(target, None, number, row_groups)
    for group in row_groups:
        positions = np.arange(starts[group], starts[group + 1])
        columns: dict[str, Any] = {}
        if rules.keys:
            _, _, found = next(keys)
            named = zip(rules.group_names, rules.keys, strict=True)
            ordered = zip(rules.order_names, rules.order, strict=True)
            columns = {name: found.column(c.name) for name, c in (*named, *ordered)}
        if rules.columns:
            columns[_DIGEST] = next(digests)
        columns["file"] = pa.repeat(pa.scalar(number, pa.int64()), len(positions))
        columns["position"] = pa.array(positions)
        table = pa.table(columns, schema=rules.schema)
        yield table if rules.match_nulls else _without_nulls(table, rules)


def _without_nulls(table: pa.Table, rules: DuplicateRules) -> pa.Table:
    keys = table.select(rules.group_names)
    if not any(column.null_count for column in keys.columns):
        return table
    valid = np.logical_and.reduce([np.asarray(column.is_valid()) for column in keys.columns])
    return table.filter(pa.array(valid))


def _digests(
    target: Target, rules: DuplicateRules, number: int, row_groups: Sequence[int]
) -> Iterator[pa.Array]:
    """Yield the digests of the rows of each row group."""
    if not rules.columns:
        return
    compared = {
        field.name: key_column(field.name, field.type)
        for field in rules.columns
        if family(field.type) is not None
    }
    names = [field.name for field in rules.columns]
    nanoseconds = _read_nanoseconds(target, number, names, row_groups)
    for _, table in read_columns(target, names, number, row_groups):
        values = [comparable_values(table.column(n), compared.get(n)) for n in names]
        yield row_digests([*values, *next(nanoseconds)])


def _read_nanoseconds(
    target: Target, number: int, names: Sequence[str], row_groups: Sequence[int]
) -> Iterator[list[pa.ChunkedArray]]:
    """Yield what microseconds do not say of the INT96 columns of each row group."""
    footer = target.footers[number]
    with open_data_file(target.root, footer.file.path, int96_unit="ns", known=footer.file) as file:
        found = int96_columns(file.schema_arrow, physical_types(file.schema))
        wanted = [name for name in names if name in found]
        for group in row_groups:
            if not wanted:
                yield []
                continue
            table = file.read_row_group(group, columns=wanted).select(wanted)
            yield [comparable_values(column) for column in table.columns]


def losing_rows(scanned: pa.Table, rules: DuplicateRules) -> LosingRows:
    """Return the rows that go, of scanned rows in the order of files and positions."""
    groups = KeyIndex(scanned.select(rules.group_names)).groups
    rows = np.flatnonzero((np.bincount(groups) > 1)[groups]) if len(groups) else groups
    if not len(rows):
        return LosingRows.none()
    # From here on only the rows of keys that occur more than once.
    scanned = scanned.take(pa.array(rows))
    groups = np.unique(groups[rows], return_inverse=True)[1]
    winners = np.empty(int(groups.max()) + 1, np.int64)
    order = _ascending(scanned, rules)
    winners[groups[order]] = order
    stays = np.zeros(len(groups), bool)
    stays[winners] = True
    differs = np.zeros(len(groups), bool)
    if rules.compares_rows:
        digests = KeyIndex(scanned.select([_DIGEST])).groups
        differs = digests != digests[winners[groups]]
    found = scanned.select(["file", "position"]).append_column("differs", pa.array(differs))
    return LosingRows.of(found.filter(pa.array(~stays)))


def _ascending(scanned: pa.Table, rules: DuplicateRules) -> Rows:
    """Return the rows in order: of each key the last one stays."""
    order = np.arange(scanned.num_rows)[:: -1 if rules.keep == "first" else 1]
    if not rules.order:
        return order
    ordered: Rows = order[ascending_rows(scanned.select(rules.order_names).take(pa.array(order)))]
    return ordered


def share_of(scanned: pa.Table, rules: DuplicateRules, number: int, shares: int) -> pa.Table:
    """Return the rows whose keys belong to one of several shares."""
    if shares == 1:
        return scanned
    prints = key_fingerprints(scanned.select(rules.group_names))
    return scanned.filter(pa.array(prints % shares == number))


def check_same_rows(
    target: Target, rules: DuplicateRules, count: int, samples: Mapping[int, Sequence[int]]
) -> None:
    """Refuse rows that have the key of another one and are not equal to it.

    Args:
        target: The dataset.
        rules: What is compared.
        count: How many such rows there are.
        samples: By the number of a file, the positions of some of them.

    Raises:
        DuplicateRowsError: If there is one.
    """
    if not count:
        return
    keys: list[tuple[Any, ...]] = []
    for number, positions in samples.items():
        starts = row_group_starts(target.footers[number])
        groups = np.unique(np.searchsorted(starts, positions, side="right") - 1).tolist()
        only_keys = replace(rules, columns=())
        rows = pa.concat_tables(scan_rows(target, only_keys, number, groups))
        found = rows.filter(pa.array(np.isin(rows["position"].to_numpy(), positions)))
        named = zip(rules.group_names, rules.keys, strict=True)
        columns = [c.original(found[name].combine_chunks()) for name, c in named]
        values = [[python_value(value) for value in column] for column in columns]
        keys += zip(*values, strict=True)
    raise DuplicateRowsError.found(
        [column.name for column in rules.keys], count, list(dict.fromkeys(keys))[:MAX_SAMPLES]
    )
