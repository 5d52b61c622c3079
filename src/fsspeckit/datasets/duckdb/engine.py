"""The DuckDB engine: DuckDB joins canonical keys, and spills what its memory does not hold.

Rows and files go the way of the PyArrow engine. What DuckDB sees are integers and bytes: canonical
keys, file numbers and positions, under names that are made up here. So no name, path or value of a
user ever becomes part of a statement.
"""

from __future__ import annotations

import os
import tempfile
import threading
import uuid
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa

from fsspeckit.core.keys import KeyIndex, source_keys
from fsspeckit.core.matching import (
    IndexedKeys,
    LosingRows,
    Positions,
    chosen_rows,
    key_and_order_columns,
    keys_of_file,
    prefilter_for,
    row_group_starts,
    scan_rows,
)
from fsspeckit.core.threads import ThreadPool
from fsspeckit.datasets.pipeline import DEFAULT_SOURCE_LIMITS
from fsspeckit.datasets.pyarrow import SCAN_WORKERS, ArrowEngine
from fsspeckit.display import report_nothing
from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from fsspeckit.core.matching import DuplicateRules
    from fsspeckit.core.parquet import KeyPrefilter
    from fsspeckit.core.planning import Target
    from fsspeckit.datasets.engine import OpenStage
    from fsspeckit.datasets.pipeline import ArrowSource, MergeOptions, Progress, SourceLimits

    Piece = tuple[int, tuple[int, ...]]
    """The number of a file, and some of its row groups."""

    Work = Mapping[int, tuple[int, ...]]

_SOURCE_BATCH_ROWS = 16_384
"""The rows of a relation that are in memory at a time; by default it would be eight times that."""

_MAX_PIECE_ROWS = 500_000
"""The target rows that are read in one piece, unless a single row group has more."""

_NOTHING = Positions(np.empty(0, np.int64), np.empty(0, np.int64), ())


class DuckDBEngine(ArrowEngine):
    """One machine; keys are joined by DuckDB.

    Args:
        connection: The caller's connection, which is never closed nor changed; None to open one
            when it is first needed.
        filesystem: The filesystem of source paths.
        limits: How much of a source may be in memory.
    """

    name = "duckdb"

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection | None = None,
        filesystem: Any = None,
        limits: SourceLimits = DEFAULT_SOURCE_LIMITS,
    ) -> None:
        super().__init__(filesystem, limits)
        if not isinstance(connection, duckdb.DuckDBPyConnection | None):
            raise InvalidArgumentError(
                f"connection must be a DuckDB connection, got {connection!r}.\n"
                "Hint: pass what duckdb.connect() returns, or leave it out."
            )
        self._given = connection
        self._own: duckdb.DuckDBPyConnection | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connection, unless it is the caller's; the next merge would open another."""
        with self._lock:
            if self._own is not None:
                self._own.close()
                self._own = None

    def take(
        self,
        data: Any,
        stage: OpenStage,
        schema: pa.Schema | None,
        *,
        keep: bool = False,
        progress: Progress = report_nothing,
    ) -> ArrowSource:
        """Take the data; a relation is evaluated once, as a stream."""
        if isinstance(data, duckdb.DuckDBPyRelation):
            data = _stream(data)
        return super().take(data, stage, schema, keep=keep)

    def keys(
        self,
        source: ArrowSource,
        target: Target,
        options: MergeOptions,
        progress: Progress = report_nothing,
    ) -> IndexedKeys:
        """Return the keys that take part; DuckDB finds duplicates, so they need no index."""
        table = source.columns(key_and_order_columns(target, options, source.schema.names))
        marks = options.delete_when
        found = source_keys(table, target, options.null_keys, marks).keys
        keys = found.select([column.name for column in target.key_columns])
        with self._cursor() as cursor:
            is_unique = _is_unique(cursor, keys.rename_columns(_key_names(target)))
        rows = chosen_rows(table, options, None if is_unique else KeyIndex(keys).groups)
        found = found if rows is None else found.take(pa.array(rows))
        return IndexedKeys(found, None, rows, marks)

    def locate(
        self, keys: IndexedKeys, target: Target, work: Work, progress: Progress
    ) -> Mapping[int, Positions]:
        """Stream the keys of the row groups through a join with those of the source."""
        if not work or not keys.count:
            return dict.fromkeys(work, _NOTHING)
        prefilter = prefilter_for(keys.keys, target.key_columns)
        read = partial(_keys_of, target, prefilter)
        with self._cursor() as cursor, _Scan(target, work, _key_schema(target), read) as scan:
            join = partial(_join, cursor, _source_keys(keys, target))
            found = scan.run(cursor, join, progress)
        return _by_file(target, work, found)

    def find_duplicates(
        self, target: Target, rules: DuplicateRules, numbers: Sequence[int], progress: Progress
    ) -> LosingRows:
        """Stream the keys of the target through a window of DuckDB, which spills."""
        if not numbers:
            return LosingRows.none()
        work = {n: tuple(range(len(target.footers[n].row_groups))) for n in numbers}
        read = partial(_rows_of, target, rules)
        with self._cursor() as cursor, _Scan(target, work, rules.schema, read) as scan:
            found = scan.run(cursor, partial(_select_losing, cursor, rules), progress)
        return LosingRows.of(found)

    @contextmanager
    def _cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection of this call alone: its temporary names are nobody else's."""
        with self._lock:
            if self._given is None and self._own is None:
                self._own = _connect()
            try:
                cursor = (self._given or self._own).cursor()  # type: ignore[union-attr]
            except duckdb.ConnectionException as error:
                raise InvalidArgumentError(
                    f"the connection cannot be used: {error}\nHint: pass one that is open, or "
                    "leave it out."
                ) from error
        try:
            yield cursor
        finally:
            cursor.close()


def _connect() -> duckdb.DuckDBPyConnection:
    """A connection in memory that spills to the system's temporary directory.

    By default it would spill into the working directory. DuckDB makes the directory when it needs
    it, and removes it.
    """
    spill = os.path.join(tempfile.gettempdir(), f"fsspeckit-{uuid.uuid4().hex}")
    return duckdb.connect(":memory:", config={"temp_directory": spill})


def _stream(relation: duckdb.DuckDBPyRelation) -> pa.RecordBatchReader:
    """The rows of a relation, evaluated as they are read."""
    # DuckDB before 1.5 knows the method by its older name alone, which later versions warn about.
    read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    return read(_SOURCE_BATCH_ROWS)


def _source_keys(keys: IndexedKeys, target: Target) -> pa.Table:
    """The keys of the source with their numbers."""
    columns = [keys.keys.column(column.name) for column in target.key_columns]
    return pa.table(
        [*columns, pa.array(np.arange(keys.count))], names=[*_key_names(target), "number"]
    )


def _key_names(target: Target) -> list[str]:
    return [f"k{number}" for number in range(len(target.key_columns))]


def _is_unique(cursor: duckdb.DuckDBPyConnection, keys: pa.Table) -> bool:
    """Whether no key occurs twice; NULL is a value like any other."""
    names = ", ".join(keys.column_names)
    with _registered(cursor, keys) as table:
        query = f"SELECT 1 FROM {table} GROUP BY {names} HAVING count(*) > 1 LIMIT 1"
        return not cursor.execute(query).fetchall()


@contextmanager
def _registered(cursor: duckdb.DuckDBPyConnection, data: Any) -> Iterator[str]:
    """Arrow data under a name of its own."""
    name = f"fsspeckit_{uuid.uuid4().hex}"
    cursor.register(name, data)
    try:
        yield name
    finally:
        cursor.unregister(name)


def _join(
    cursor: duckdb.DuckDBPyConnection, source: pa.Table, scanned: pa.RecordBatchReader
) -> pa.Table:
    """Where the source's keys are: file, position, number of the key; in that order."""
    # Canonical keys know no NaN, zone or scale; NULL equals NULL, where it may be a key at all.
    same = " AND ".join(
        f"t.{name} {'IS NOT DISTINCT FROM' if source.column(name).null_count else '='} s.{name}"
        for name in source.column_names[:-1]
    )
    # The source as a stream, too: DuckDB holds in memory what it thinks is smaller, and thinks of
    # a stream as one row. Beside a table of known size that would be all keys of the target.
    with _registered(cursor, scanned) as left, _registered(cursor, source.to_reader()) as right:
        found = cursor.sql(
            f"SELECT t.file, t.position, s.number FROM {left} t JOIN {right} s ON {same} "
            "ORDER BY t.file, t.position"
        )
        return found.to_arrow_table()


def _select_losing(
    cursor: duckdb.DuckDBPyConnection, rules: DuplicateRules, scanned: pa.RecordBatchReader
) -> pa.Table:
    """Where the rows are of which another one with their key stays."""
    place = f"file {rules.direction}, position {rules.direction}"
    order = ", ".join([*(f"{name} DESC NULLS LAST" for name in rules.order_names), place])
    differs = "digest IS DISTINCT FROM first_value(digest) OVER w"
    with _registered(cursor, scanned) as rows:
        found = cursor.sql(
            f"SELECT file, position, {differs if rules.compares_rows else 'false'} AS differs "
            f"FROM {rows} WINDOW w AS (PARTITION BY {', '.join(rules.group_names)} ORDER BY {order}"
            ") QUALIFY row_number() OVER w > 1"
        )
        return found.to_arrow_table()


def _key_schema(target: Target) -> pa.Schema:
    keys = zip(_key_names(target), target.key_columns, strict=True)
    named = [(name, column.canonical_type) for name, column in keys]
    return pa.schema([*named, ("file", pa.int64()), ("position", pa.int64())])


def _keys_of(
    target: Target, prefilter: KeyPrefilter | None, number: int, groups: tuple[int, ...]
) -> Iterator[pa.Table]:
    """Yield the keys of row groups, with file and position."""
    for _, positions, keys in keys_of_file(target, prefilter, number, groups):
        file = np.full(keys.num_rows, number)
        columns = [*keys.columns, pa.array(file), pa.array(positions)]
        yield pa.Table.from_arrays(columns, schema=_key_schema(target))


def _rows_of(
    target: Target, rules: DuplicateRules, number: int, groups: tuple[int, ...]
) -> Iterator[pa.Table]:
    return scan_rows(target, rules, number, groups)


def _by_file(target: Target, work: Work, found: pa.Table) -> dict[int, Positions]:
    files, positions, keys = (column.to_numpy() for column in found.columns)
    located = {}
    for number in work:
        start, end = np.searchsorted(files, [number, number + 1])
        here = positions[start:end]
        starts = row_group_starts(target.footers[number])
        groups = np.unique(np.searchsorted(starts, here, side="right") - 1)
        located[number] = Positions(here, keys[start:end], tuple(groups.tolist()))
    return located


class _Scan:
    """What is read of the target's row groups as a stream, read ahead by threads."""

    def __init__(
        self,
        target: Target,
        work: Work,
        schema: pa.Schema,
        read: Callable[[int, tuple[int, ...]], Iterable[pa.Table]],
    ) -> None:
        self._target = target
        self._work = work
        self._schema = schema
        self._read_tables = read
        self._failure: BaseException | None = None
        self._is_complete = False
        self._is_stopped = False
        self._events: SimpleQueue[int | None] = SimpleQueue()
        self._pool = ThreadPool(SCAN_WORKERS, "fsspeckit-scan")

    def __enter__(self) -> _Scan:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.__exit__(*exception)

    def run(
        self,
        cursor: duckdb.DuckDBPyConnection,
        query: Callable[[pa.RecordBatchReader], pa.Table],
        progress: Progress,
    ) -> pa.Table:
        """Return what a query makes of the stream, which it must read to its end."""
        try:
            found = self._run_in_thread(cursor, query, progress)
        except duckdb.Error:
            # DuckDB turns what a stream raised into its own error; callers go by type.
            self._raise_failure()
            raise
        # Rows that the query did not see would not be replaced.
        self._raise_failure()
        if not self._is_complete:
            raise RuntimeError("DuckDB did not read all keys of the target. Nothing was changed.")
        return found

    def _run_in_thread(
        self,
        cursor: duckdb.DuckDBPyConnection,
        query: Callable[[pa.RecordBatchReader], pa.Table],
        progress: Progress,
    ) -> pa.Table:
        """Run a query in another thread, and report progress in the caller's own.

        DuckDB pulls the stream from whichever of its threads has time. What a caller does on
        progress, such as drawing or raising, belongs to the thread in which it called.
        """

        def run() -> pa.Table:
            try:
                return query(pa.RecordBatchReader.from_batches(self._schema, self._batches()))
            finally:
                self._events.put(None)  # nobody reads the stream any more

        with ThreadPool(1, "fsspeckit-join") as pool:
            try:
                found = pool.submit(run)
                for done in iter(self._events.get, None):
                    progress("match", done, len(self._work))
            except BaseException:  # Ctrl-C, too: the query must end before the cursor is closed
                self._is_stopped = True
                cursor.interrupt()
                raise
            return found.result()

    def _raise_failure(self) -> None:
        """Raise what the stream raised, if anything."""
        if self._failure is not None:
            raise self._failure

    def _batches(self) -> Iterator[pa.RecordBatch]:
        left = {number: len(groups) for number, groups in self._work.items()}
        done = 0
        try:
            # The next pieces are read while one is used.
            pieces = self._pool.map(self._read, self._pieces(), SCAN_WORKERS)
            for number, groups, batches in pieces:
                if self._is_stopped:
                    raise InterruptedError("the caller no longer wants the keys")
                yield from batches
                left[number] -= groups
                if not left[number]:
                    done += 1
                    self._events.put(done)
            self._is_complete = True
        except GeneratorExit:
            raise
        except BaseException as error:
            self._failure = error
            raise

    def _pieces(self) -> Iterator[Piece]:
        """Yield some row groups of one file at a time."""
        for number, groups in self._work.items():
            piece: list[int] = []
            rows = 0
            for group in groups:
                size = self._target.footers[number].row_groups[group].rows
                if piece and rows + size > _MAX_PIECE_ROWS:
                    yield number, tuple(piece)
                    piece, rows = [], 0
                piece.append(group)
                rows += size
            yield number, tuple(piece)

    def _read(self, piece: Piece) -> tuple[int, int, list[pa.RecordBatch]]:
        number, groups = piece
        tables = self._read_tables(number, groups)
        return number, len(groups), [batch for table in tables for batch in table.to_batches()]
