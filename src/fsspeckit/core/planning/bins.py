"""Bins: which small files of a partition become one, and which are sorted together.

A file goes into the first bin of its partition that has room for it. So of two bins no file of the
second fits into the first: once each is one file, none of them fit together, and nothing is left
to do.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.keys import key_column, plain_type
from fsspeckit.core.planning.pruning import statistics_bounds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.planning.footers import FileFooter
    from fsspeckit.core.planning.target import Target

_PLAIN_NAMES = {
    "large_string": "string",
    "string_view": "string",
    "large_binary": "binary",
    "binary_view": "binary",
}


@dataclass(frozen=True)
class BinLimits:
    """Which files are small, and how much is sorted at once."""

    target_bytes: int = 128 * 1024 * 1024
    """No bin has more bytes, and files of at least half of them are left alone."""

    min_files: int = 2
    """A bin of fewer files is left alone."""

    max_sorted_bytes: int = 256 * 1024 * 1024
    """Files of so many bytes are sorted together; what is decoded may be several times larger."""


@dataclass(frozen=True)
class Bin:
    """Files of one partition that become one, or are sorted together."""

    directory: str
    """Their directory below the root."""

    footers: tuple[FileFooter, ...] = field(repr=False)
    outputs: int = 1
    """How many files they become."""

    is_sorted: bool = False
    """Whether their rows are sorted."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The canonical paths of the files."""
        return tuple(footer.file.path for footer in self.footers)

    @property
    def bytes(self) -> int:
        """The bytes of the files."""
        return sum(footer.file.size for footer in self.footers)

    @property
    def rows(self) -> int:
        """The rows of the files."""
        return sum(footer.rows for footer in self.footers)


def pack_bins(
    target: Target, numbers: Iterable[int], limits: BinLimits, sort_by: Sequence[str] = ()
) -> list[Bin]:
    """Pack files into bins.

    Args:
        target: The dataset.
        numbers: The files to pack, by their numbers.
        limits: How large bins get.
        sort_by: The columns by which rows are sorted; the footers have their statistics.
    """
    groups: dict[tuple[str, object], list[FileFooter]] = defaultdict(list)
    shapes: dict[int, object] = {}
    for number in numbers:
        footer = target.footers[number]
        directory = target.root.relative(footer.file.path).rpartition("/")[0]
        # Most footers share one schema.
        shape = shapes.setdefault(id(footer.schema), _shape(footer.schema))
        groups[directory, shape].append(footer)
    found: list[Bin] = []
    for (directory, _), footers in sorted(groups.items(), key=lambda item: item[0][0]):
        if sort_by:
            found += _sorted_bins(directory, footers, limits, sort_by)
        else:
            found += [Bin(directory, tuple(some)) for some in _first_fit(footers, limits)]
    return found


def _first_fit(footers: Sequence[FileFooter], limits: BinLimits) -> list[list[FileFooter]]:
    """Put each small file into the first bin that has room; return the bins worth the work.

    A file of half the target would be written again with every few small ones that come.
    """
    small = [footer for footer in footers if 2 * footer.file.size < limits.target_bytes]
    smallest = min((footer.file.size for footer in small), default=0)
    bins: list[list[FileFooter]] = []
    free: list[list[int]] = []  # the number of each bin that has room, and how much
    for footer in small:
        size = footer.file.size
        place = next((one for one in free if one[1] >= size), None)
        if place is None:
            place = [len(bins), limits.target_bytes]
            bins.append([])
            free.append(place)
        bins[place[0]].append(footer)
        place[1] -= size
        if place[1] < smallest:
            free.remove(place)
    return [some for some in bins if len(some) >= limits.min_files]


def _shape(schema: pa.Schema) -> object:
    """What files must share to become one: the columns, in any order, and types that convert."""
    return frozenset((field.name, _plain_name(field.type)) for field in schema)


def _plain_name(data_type: pa.DataType) -> object:
    """A type without what does not change its values: dictionaries, zones, kinds of lists."""
    kind = plain_type(data_type)
    if pa.types.is_null(kind):
        return "null"
    if pa.types.is_timestamp(kind):
        return "timestamp", kind.unit, kind.tz is None
    if pa.types.is_map(kind):
        return "map", _plain_name(kind.key_type), _plain_name(kind.item_type)
    if pa.types.is_struct(kind):
        return frozenset((inner.name, _plain_name(inner.type)) for inner in kind)
    if pa.types.is_nested(kind):
        return "list", _plain_name(kind.value_type)
    return _PLAIN_NAMES.get(str(kind), str(kind))


# Sorting


def _sorted_bins(
    directory: str, footers: Sequence[FileFooter], limits: BinLimits, sort_by: Sequence[str]
) -> Iterator[Bin]:
    """Cut the files of a partition, in the order of their least values, into what is sorted."""
    ranges = ranges_of(footers, sort_by[0])
    least = ranges.file_low
    order = sorted(range(len(footers)), key=lambda number: (least[number], number))
    sets: list[list[FileFooter]] = []
    size = 0
    for number in order:
        footer = footers[number]
        if not sets or size + footer.file.size > limits.max_sorted_bytes:
            sets.append([])
            size = 0
        sets[-1].append(footer)
        size += footer.file.size
    for some in sets:
        if len(some) >= limits.min_files and (
            _first_fit(some, limits) or not are_clustered(some, sort_by)
        ):
            total = sum(footer.file.size for footer in some)
            yield Bin(directory, tuple(some), max(1, -(-total // limits.target_bytes)), True)


def are_clustered(footers: Sequence[FileFooter], sort_by: Sequence[str]) -> bool:
    """Return whether no two row groups overlap; of equal values, the next column decides."""
    ranges = ranges_of(footers, sort_by[0])
    if not ranges.known.all():
        return False
    order = np.lexsort((ranges.high, ranges.low))
    low, high = ranges.low[order], ranges.high[order]
    if (high[:-1] > low[1:]).any():
        return False
    if len(sort_by) == 1 or len(low) < 2 or (low != high).any() or (low[0] != low[-1]):
        return True
    return are_clustered(footers, sort_by[1:])


@dataclass(frozen=True)
class Ranges:
    """The ranges of a column in row groups, as numbers in their order."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    known: NDArray[np.bool_]
    """Whether the row group has bounds; if not, its range is everything."""

    files: NDArray[np.int64]
    """The number of the file of each row group."""

    rows: NDArray[np.int64]
    count: int
    """The number of files."""

    scale: NDArray[np.float64]
    """What the numbers stand for, as far as it is known: the distances between values."""

    @property
    def middle(self) -> NDArray[np.float64]:
        """About the middle of each range, among the numbers of the others."""
        values = (self.scale[self.low] + self.scale[self.high]) / 2
        found = np.interp(values, self.scale, np.arange(len(self.scale)))
        return np.clip(found, self.low, self.high)

    @property
    def file_low(self) -> NDArray[np.int64]:
        """The least value of each file."""
        return self._extreme(self.low, np.minimum)

    @property
    def file_high(self) -> NDArray[np.int64]:
        """The greatest value of each file."""
        return self._extreme(self.high, np.maximum)

    def _extreme(self, values: NDArray[np.int64], choose: np.ufunc) -> NDArray[np.int64]:
        found = np.full(self.count, np.iinfo(np.int64).max if choose is np.minimum else -1)
        choose.at(found, self.files, values)
        return found


def ranges_of(footers: Sequence[FileFooter], name: str) -> Ranges:
    """Return the ranges of a column, without row groups that have no rows.

    A row group of nothing but NULL is after all others, as NULL is when rows are sorted.
    """
    kinds = [f.leaves[name].type for f in footers if name in f.leaves]
    groups = [(number, group.rows) for number, f in enumerate(footers) for group in f.row_groups]
    files = np.array([number for number, _ in groups], np.int64)
    rows = np.array([count for _, count in groups], np.int64)
    kind = next((kind for kind in kinds if not pa.types.is_null(kind)), pa.int64())
    bounds = statistics_bounds(key_column(name, kind), footers)
    is_known = np.asarray(bounds.low.is_valid()) & np.asarray(bounds.high.is_valid())
    only_nulls = ~bounds.may_contain_values
    both = pa.chunked_array([bounds.low, bounds.high]).combine_chunks()
    ranks = pc.fill_null(pc.rank(both, tiebreaker="dense"), 0).to_numpy().astype(np.int64)
    low, high = np.split(ranks, 2)
    top = int(ranks.max(initial=0)) + 1
    low = np.where(only_nulls, top, np.where(is_known, low, 0))
    high = np.where(only_nulls | ~is_known, top, high)
    filled = rows > 0
    known = is_known | only_nulls
    parts = low[filled], high[filled], known[filled], files[filled], rows[filled]
    return Ranges(*parts, len(footers), _scale(both, ranks, top))


def _scale(values: pa.Array, ranks: NDArray[np.int64], top: int) -> NDArray[np.float64]:
    """Return the number that each rank from 0 to the top stands for; of other values, the rank."""
    known = np.asarray(values.is_valid())
    if not pa.types.is_integer(values.type) or not known.any():
        return np.arange(top + 1, dtype=np.float64)
    numbers = values.drop_null().to_numpy().astype(np.float64)
    scale = np.full(top + 1, numbers.max())
    scale[ranks[known]] = numbers
    scale[0] = numbers.min()
    return scale


@dataclass(frozen=True)
class Overlap:
    """In how many files and row groups a random row may be, as far as statistics say."""

    files: float
    """Files whose range contains the value of a random row, on average."""

    row_groups: float
    """Row groups, likewise."""


def overlap_of(
    partitions: Collection[Sequence[FileFooter]], bins: Sequence[Bin], name: str
) -> tuple[Overlap, Overlap]:
    """Return the overlap as it is, and as it will be once bins are sorted.

    Args:
        partitions: The files of each partition.
        bins: What will be sorted.
        name: The column.
    """
    before, after, total = np.zeros(2), np.zeros(2), 0
    chosen = {path: number for number, one in enumerate(bins) for path in one.paths}
    for footers in partitions:
        ranges = ranges_of(footers, name)
        if not len(ranges.low):
            continue
        keys = ranges.middle
        low, high = ranges.file_low, ranges.file_high
        weights = ranges.rows
        total += int(weights.sum())
        groups = _containing(ranges.low, ranges.high, keys)
        files = _containing(low, high, keys)
        before += (files * weights).sum(), (groups * weights).sum()
        # Sorted files of one bin share no value, so each bin is one range.
        owner = np.array([chosen.get(f.file.path, -1) for f in footers])
        stays = owner < 0
        hulls = [
            (low[owner == number].min(), high[owner == number].max())
            for number in sorted(set(owner.tolist()) - {-1})
        ]
        starts, ends = (np.array([hull[n] for hull in hulls]) for n in (0, 1))
        sorted_in = _containing(starts, ends, keys)
        kept = stays[ranges.files]
        files = _containing(low[stays], high[stays], keys) + sorted_in
        groups = _containing(ranges.low[kept], ranges.high[kept], keys) + sorted_in
        after += (files * weights).sum(), (groups * weights).sum()
    scale = max(total, 1)
    return Overlap(*(before / scale).tolist()), Overlap(*(after / scale).tolist())


def _containing(
    low: NDArray[np.int64], high: NDArray[np.int64], keys: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return how many ranges contain each key."""
    begun = np.searchsorted(np.sort(low), keys, side="right")
    ended = np.searchsorted(np.sort(high), keys, side="left")
    return begun - ended


def by_directory(target: Target, numbers: Iterable[int]) -> list[list[FileFooter]]:
    """Return files by their directory, as the listing has them."""
    found = sorted((target.root.relative(target.footers[n].file.path), n) for n in numbers)
    return [
        [target.footers[number] for _, number in some]
        for _, some in groupby(found, key=lambda item: item[0].rpartition("/")[0])
    ]
