"""The PyArrow engine: Arrow kernels and threads of this process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.incremental.invariants import different_rows
from fsspeckit.core.incremental.matching import KeyIndex, winning_rows
from fsspeckit.core.incremental.rewriting import Replacement, rewrite
from fsspeckit.core.incremental.scan import scan_keys
from fsspeckit.core.incremental.source import SourceKeys, source_keys
from fsspeckit.datasets.engine import FileMatch, Matches
from fsspeckit.datasets.sources import ArrowSource, open_source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fsspeckit.core.incremental.planning import MergePlan
    from fsspeckit.core.incremental.rewriting import Rewritten
    from fsspeckit.core.incremental.target import Target
    from fsspeckit.core.incremental.writing import NewFile, NewFiles
    from fsspeckit.datasets.engine import OpenStage
    from fsspeckit.datasets.request import MergeRequest, Progress
    from fsspeckit.storage.staging import StagedFile

    Rows = NDArray[np.int64]

__all__ = ["ArrowEngine"]

_SCAN_WORKERS = 4
_REWRITE_WORKERS = 4
_REWRITE_BYTES = 256 * 1024 * 1024
_DECODED_PER_ENCODED = 4
_SAMPLES = 5


@dataclass(frozen=True)
class IndexedKeys(SourceKeys):
    """The keys of the source rows that take part, and where those rows are."""

    index: KeyIndex
    rows: Rows
    """The number of each such row in the source."""


@dataclass(frozen=True)
class _Positions:
    """Which rows of a file match, and with which of the keys."""

    positions: Rows
    keys: Rows
    """Numbers of keys, not yet of source rows."""

    row_groups: tuple[int, ...]


@dataclass(frozen=True)
class _Found:
    """The engine's own part of a match."""

    files: Mapping[str, Replacement]
    unmatched: Rows
    """Source rows whose key is not in the target."""


class ArrowEngine:
    """One machine, no other library than pyarrow."""

    name = "pyarrow"

    def __init__(self, filesystem: Any = None) -> None:
        self._filesystem = filesystem

    def take(self, data: Any, stage: OpenStage, schema: pa.Schema | None) -> ArrowSource:
        """Take the data: as it is if in memory, else read once."""
        return open_source(data, stage, self._filesystem, schema)

    def keys(self, source: ArrowSource, target: Target, request: MergeRequest) -> IndexedKeys:
        """The keys that take part, indexed."""
        names = [c.name for c in (*target.key_columns, *target.partition_columns)]
        wanted = [n for n in dict.fromkeys((*names, *request.order_by)) if n in source.schema.names]
        table = source.columns(wanted)
        found = source_keys(table, target, request.null_keys).keys
        key_names = list(request.key_columns)
        index = KeyIndex(found.select(key_names))
        rows = winning_rows(
            table, index.groups, key_names, request.duplicates, request.order_by or None
        )
        if len(rows) < table.num_rows:
            found = found.take(pa.array(rows))
            index = KeyIndex(found.select(key_names))
        return IndexedKeys(found, index, rows)

    def match(
        self,
        source: ArrowSource,
        keys: IndexedKeys,
        target: Target,
        plan: MergePlan,
        progress: Progress,
    ) -> Matches:
        """Scan candidates and guarded files in a few threads."""
        unknown = target.unknown_partitions()
        work = [n for n, file in enumerate(plan.files) if file.row_groups and n not in unknown]
        found: dict[int, _Positions] = {}
        with ThreadPoolExecutor(_SCAN_WORKERS, thread_name_prefix="fsspeckit-scan") as pool:
            scans = pool.map(lambda n: _scan(target, keys, n, plan.files[n].row_groups), work)
            for done, (number, positions) in enumerate(zip(work, scans, strict=True), start=1):
                found[number] = positions
                progress("match", done, len(work))
        return _matches(target, keys, source, found)

    def rewrite(
        self,
        source: ArrowSource,
        target: Target,
        matches: Matches,
        files: Mapping[str, StagedFile],
        keep_others: bool,
        progress: Progress,
    ) -> dict[str, Rewritten]:
        """Rewrite files side by side, as many as memory allows."""
        parts = {part.name for part in target.partition_columns}
        footers = {footer.file.path: footer for footer in target.footers}

        def one(path: str) -> Rewritten:
            found: Replacement = matches.positions.files[path]
            stored = set(footers[path].schema.names)
            wanted = [n for n in source.schema.names if n in stored or n not in parts]
            return rewrite(
                target.root,
                path,
                Replacement(found.positions, found.source_rows, keep_others),
                lambda rows: source.take(rows).select(wanted),
                files[path].path,
                key_columns=[column.name for column in target.key_columns],
            )

        largest = max(
            (group.bytes for path in files for group in footers[path].row_groups), default=0
        )
        workers = max(
            1, min(_REWRITE_WORKERS, _REWRITE_BYTES // (largest * _DECODED_PER_ENCODED + 1))
        )
        written: dict[str, Rewritten] = {}
        with ThreadPoolExecutor(workers, thread_name_prefix="fsspeckit-rewrite") as pool:
            for path, new in zip(files, pool.map(one, files), strict=True):
                written[path] = new
                progress("rewrite", len(written), len(files))
        return written

    def insert(
        self, source: ArrowSource, matches: Matches | None, new_files: NewFiles
    ) -> list[NewFile]:
        """Stream the rows into new files."""
        start = 0
        rows: Rows | None = None if matches is None else matches.positions.unmatched
        for batch in source.batches():
            end = start + batch.num_rows
            if rows is not None:
                here = rows[np.searchsorted(rows, start) : np.searchsorted(rows, end)] - start
                batch = batch if len(here) == batch.num_rows else batch.take(pa.array(here))
            if batch.num_rows:
                new_files.write(batch)
            start = end
        return new_files.finish()


def _scan(
    target: Target, keys: IndexedKeys, number: int, row_groups: tuple[int, ...]
) -> _Positions:
    """The matching rows of one file."""
    footer = target.footers[number]
    starts = np.concatenate([[0], np.cumsum([group.rows for group in footer.row_groups])])
    constants = {name: part.values[number] for name, part in target.partitions.items()}
    in_key = {c.name: constants[c.name] for c in target.key_columns if c.name in constants}
    positions, rows, hit = [], [], []
    for group, found in scan_keys(target.root, footer, row_groups, target.key_columns, in_key):
        row = keys.index.lookup(found)
        here = np.flatnonzero(row >= 0)
        if len(here):
            positions.append(here + starts[group])
            rows.append(row[here])
            hit.append(group)
    none = [np.empty(0, np.int64)]
    return _Positions(np.concatenate(positions + none), np.concatenate(rows + none), tuple(hit))


def _matches(
    target: Target, keys: IndexedKeys, source: ArrowSource, found: Mapping[int, _Positions]
) -> Matches:
    paths = {number: target.footers[number].file.path for number in found}
    is_known = np.zeros(len(keys.rows), bool)
    moved = np.zeros(len(keys.rows), bool)
    for number, positions in found.items():
        is_known[positions.keys] = True
        moved[positions.keys[_moving(target, keys, number, positions)]] = True
    samples = source.take(keys.rows[np.flatnonzero(moved)[:_SAMPLES]])
    names = [column.name for column in target.key_columns]
    return Matches(
        {paths[n]: FileMatch(len(p.positions), p.row_groups) for n, p in found.items()},
        int((~is_known).sum()),
        int(moved.sum()),
        [tuple(row.values()) for row in samples.select(names).to_pylist()],
        _Found(
            {paths[n]: Replacement(p.positions, keys.rows[p.keys]) for n, p in found.items()},
            np.sort(keys.rows[~is_known]),
        ),
    )


def _moving(target: Target, keys: IndexedKeys, number: int, found: _Positions) -> Rows:
    """Which matches of a file would move to another partition."""
    if not target.partition_columns or not len(found.keys):
        return np.empty(0, np.int64)
    names = [part.name for part in target.partition_columns]
    wanted = keys.keys.select(names).take(pa.array(found.keys))
    here = pa.table(
        [
            part.canonical(
                target.partitions[part.name].values.take(pa.array([number] * len(found.keys)))
            )
            for part in target.partition_columns
        ],
        names=names,
    )
    return np.flatnonzero(different_rows(wanted, here))
