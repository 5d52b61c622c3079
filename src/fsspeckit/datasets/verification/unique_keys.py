"""Verifies that keys are unique, in memory that does not grow with the dataset.

Rows are compared by hashes of their canonical keys. If there are more rows than hashes fit into
memory, the keys are read several times, and each time a share of the hashes is compared. Keys whose
hashes are equal are read again and compared exactly.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.keys import key_hashes, python_value
from fsspeckit.core.matching import keys_of_file
from fsspeckit.errors import UnreadableFileError
from fsspeckit.storage import Findings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.planning import Target
    from fsspeckit.storage import VerifyFinding

    Hashes = NDArray[np.uint64]

MAX_HASHES: Final = 32_000_000
"""How many hashes of eight bytes are compared at a time."""

_MAX_COMPARED: Final = 10_000
"""How many hashes that occur twice are compared exactly."""

_MAX_SHOWN: Final = 5


@dataclass(frozen=True)
class ReadHashes:
    """Reads the hashes of the keys of a file that belong to a share; picklable."""

    target: Target
    share: int
    shares: int
    with_nulls: bool

    def __call__(self, number: int) -> Hashes:
        """Return the hashes of the keys of a file, by its number."""
        found = [np.empty(0, np.uint64)]
        for keys in _keys(self.target, number, with_nulls=self.with_nulls):
            hashes = key_hashes(keys)
            if self.shares > 1:
                hashes = hashes[hashes % np.uint64(self.shares) == self.share]
            found.append(hashes)
        return np.concatenate(found)


@dataclass(frozen=True)
class ReadKeys:
    """Reads the keys of a file that have some hashes; picklable."""

    target: Target
    hashes: Hashes
    with_nulls: bool

    def __call__(self, number: int) -> pa.Table:
        """Return the keys of a file, by its number."""
        found = []
        for keys in _keys(self.target, number, with_nulls=self.with_nulls):
            found.append(keys.filter(pa.array(np.isin(key_hashes(keys), self.hashes))))
        columns = self.target.key_columns
        empty = pa.schema([(column.name, column.canonical_type) for column in columns])
        return pa.concat_tables([empty.empty_table(), *found])


def _keys(target: Target, number: int, *, with_nulls: bool) -> Iterable[pa.Table]:
    groups = range(len(target.footers[number].row_groups))
    try:
        for _, _, keys in keys_of_file(target, None, number, groups):
            if with_nulls or not any(column.null_count for column in keys.columns):
                yield keys
            else:
                valid = [column.is_valid() for column in keys.columns]
                mask = valid[0]
                for other in valid[1:]:
                    mask = pc.and_(mask, other)
                yield keys.filter(mask)
    except UnreadableFileError:
        return  # reported with the file
    except FileNotFoundError:
        return  # reported unless a commit has removed it


def check_unique(
    target: Target,
    numbers: Sequence[int],
    call: Callable[[Callable[[int], Any], Sequence[int]], list[Any]],
    *,
    with_nulls: bool,
    max_hashes: int,
) -> list[VerifyFinding]:
    """Find keys that occur more than once in the files with these numbers.

    ``call`` calls a function for each number, in other processes if it likes.
    """
    rows = sum(target.footers[number].rows for number in numbers)
    shares = -(-rows // max_hashes) or 1
    repeated = []
    for share in range(shares):
        read = ReadHashes(target, share, shares, with_nulls)
        hashes = np.concatenate([np.empty(0, np.uint64), *call(read, numbers)])
        hashes.sort()
        repeated.append(np.unique(hashes[1:][hashes[1:] == hashes[:-1]]))
    found = np.concatenate(repeated)
    if not len(found):
        return []
    some = found[:_MAX_COMPARED]
    tables = call(ReadKeys(target, some, with_nulls), numbers)
    return _report(target, numbers, tables, len(found))


def _report(
    target: Target, numbers: Sequence[int], tables: Sequence[pa.Table], hashes: int
) -> list[VerifyFinding]:
    """Compare keys exactly, and return one finding about those that are equal."""
    rows: Any = defaultdict(int)
    holders: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    names = [column.name for column in target.key_columns]
    for number, table in zip(numbers, tables, strict=True):
        file = target.root.relative(target.footers[number].file.path)
        columns = (table.column(name).to_pylist() for name in names)
        for key in zip(*columns, strict=True):
            rows[key] += 1
            holders[key].add(file)
    twice = [key for key, count in rows.items() if count > 1]
    if not twice:
        return []
    samples = [_shown(target, key) for key in twice[:_MAX_SHOWN]]
    files = sorted({file for key in twice[:_MAX_SHOWN] for file in holders[key]})
    more = "at least " if hashes > _MAX_COMPARED else ""
    findings = Findings(files[0] if len(files) == 1 else None)
    findings.error(
        f"{more}{len(twice):,} keys of {', '.join(names)} occur more than once, in "
        f"{sum(rows[key] for key in twice):,} rows, such as {', '.join(samples)} in "
        f"{', '.join(map(repr, files[:_MAX_SHOWN]))}.",
        "delete all but one row of each key.",
    )
    return findings.found


def _shown(target: Target, key: tuple[Any, ...]) -> str:
    values = [
        column.original(pa.array([value], column.canonical_type))[0]
        for column, value in zip(target.key_columns, key, strict=True)
    ]
    found = [repr(python_value(value)) for value in values]
    return found[0] if len(found) == 1 else f"({', '.join(found)})"
