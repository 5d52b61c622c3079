"""What Spark's workers run: functions of small picklable values that answer with messages.

A task may be run twice, or twice at once, or die half-way. So every file that it writes has a new
name, and only the files that the message of a successful task names are ever used.
"""

from __future__ import annotations

import base64
import builtins
import hashlib
import json
import pickle
import re
import uuid
import zlib
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit import errors
from fsspeckit.core.arrow_compat import cast_array, open_data_file, take_rows
from fsspeckit.core.matching import find_positions, moving_keys, prefilter_for
from fsspeckit.core.rewrite import Replacement, rewrite
from fsspeckit.core.schema_conform import check_same_columns, conform_table
from fsspeckit.datasets.spark.source import SPILL_WRITE_OPTIONS, stage_part
from fsspeckit.errors import ConcurrentModificationError, FsspeckitError
from fsspeckit.storage import STAGED_SUFFIX, WorkerStage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.matching import IndexedKeys
    from fsspeckit.core.planning import Target
    from fsspeckit.core.rewrite import NewFile, NewFiles, Rewritten
    from fsspeckit.datasets.spark.source import Part, SourceRows
    from fsspeckit.storage import Root

    Rows = NDArray[np.int64]

__all__ = [
    "MESSAGE",
    "FoundFile",
    "InsertRows",
    "InsertShare",
    "Mailbox",
    "MatchFiles",
    "RewriteFile",
    "RewriteFiles",
    "RowPairs",
    "StageBatches",
    "deserialize_error",
    "each",
    "insertable",
    "map_items_to_rows",
    "messages",
    "opened",
    "over",
    "rows_over",
]

MESSAGE = "message binary"
"""The schema of what tasks return."""

_INLINE_PAIRS = 4096
# Where there are many keys there may be many files, and what is inline goes through the driver.
_INLINE_OF_MANY = 64
_LONG_MESSAGE = 32 * 1024
_CARRIED = re.compile(r"fsspeckit-error:([A-Za-z0-9+/=]+):")


@dataclass(frozen=True)
class Mailbox:
    """Where tasks leave long messages: the driver takes only so many bytes of answers."""

    root: Root
    directory: str

    def leave(self, data: bytes) -> _Left:
        """Write a message into a staged file."""
        path = new_name(self.directory, "message")
        with self.root.filesystem.open(path, "wb") as handle:
            handle.write(data)
        return _Left(path, hashlib.sha256(data).digest())

    def fetch(self, left: _Left) -> Any:
        """Read such a message.

        Raises:
            ConcurrentModificationError: If it is not what the task has left. Who may write files
                may not yet run code here, so nothing else is unpickled.
        """
        data = self.root.filesystem.cat_file(left.path)
        if hashlib.sha256(data).digest() != left.digest:
            raise ConcurrentModificationError(
                f"{left.path!r} in staging is not what a task of Spark has left there.\n"
                "Hint: nothing but fsspeckit may write into its control directory."
            )
        return pickle.loads(data)


@dataclass(frozen=True)
class _Left:
    """A message that is in a file."""

    path: str
    digest: bytes


def opened(data: bytes, mailbox: Mailbox) -> Any:
    """What a task has told."""
    answer = pickle.loads(data)
    return mailbox.fetch(answer) if isinstance(answer, _Left) else answer


def each(
    function: Callable[[Any], Iterable[Any]], work: Sequence[Any], mailbox: Mailbox | None = None
) -> Any:
    """A task for ``mapInArrow`` on a range of numbers: the function on each numbered item."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from messages(_given(function, work[number]), mailbox)

    return run


def over(
    function: Callable[[Iterable[pa.RecordBatch]], Iterable[Any]], mailbox: Mailbox | None = None
) -> Any:
    """A task for ``mapInArrow`` on rows: the function on all rows of a partition."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from messages(_given(function, batches), mailbox)

    return run


def map_items_to_rows(
    function: Callable[[Any], Iterable[pa.RecordBatch]], work: Sequence[Any]
) -> Any:
    """Like :func:`each`, for a function that gives rows to Spark and not messages to the driver."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _carrying_errors(_given(function, work[number]))

    return run


def rows_over(function: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]) -> Any:
    """Like :func:`over`, for a function that gives rows to Spark and not messages to the driver."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _carrying_errors(_given(function, batches))

    return run


def messages(produced: Iterable[Any], mailbox: Mailbox | None = None) -> Iterator[pa.RecordBatch]:
    """Messages as rows for Spark, long ones as references to files.

    An error that a repetition would not mend is a message too; others fail the task, so that Spark
    repeats it, and travel inside the error's text if they fail it for good.
    """
    try:
        for message in _carrying_errors(produced, FsspeckitError):
            yield _message(message, mailbox)
    except FsspeckitError as error:
        yield _message(error)


def _message(value: Any, mailbox: Mailbox | None = None) -> pa.RecordBatch:
    data = pickle.dumps(value)
    if mailbox is not None and len(data) > _LONG_MESSAGE:
        data = pickle.dumps(mailbox.leave(data))
    return pa.RecordBatch.from_arrays([pa.array([data], pa.binary())], ["message"])


def _given(function: Callable[[Any], Iterable[Any]], item: Any) -> Iterator[Any]:
    """What a function gives for an item; its errors come when it is asked, not before."""
    yield from function(item)


def _carrying_errors(produced: Iterable[Any], *others: type[Exception]) -> Iterator[Any]:
    """What is produced; an error, but for others, becomes one in whose text it travels."""
    try:
        yield from produced
    except others:
        raise
    except Exception as error:  # whatever it is, the driver shall raise it as what it is
        raise RuntimeError(f"fsspeckit-error:{serialize_error(error)}: {error}") from error


def serialize_error(error: Exception) -> str:
    """An error as words: its type and arguments. A text may come from anywhere: no pickle."""
    arguments = list(error.args)
    if isinstance(error, OSError) and error.filename is not None:
        arguments = [error.errno, error.strerror, error.filename]
    plain = [one if isinstance(one, int | float | str | None) else str(one) for one in arguments]
    return base64.b64encode(json.dumps([type(error).__name__, plain]).encode()).decode()


def deserialize_error(text: str) -> BaseException | None:
    """The error that a failed task's text carries, if it is one of ours, Python's or Arrow's."""
    found = _CARRIED.search(text)
    if found is None:
        return None
    try:
        name, arguments = json.loads(base64.b64decode(found.group(1)))
        places = (builtins, pa.lib, errors)
        kind: Any = next((vars(one)[name] for one in places if name in vars(one)), None)
        is_error = isinstance(kind, type) and issubclass(kind, Exception)
        return kind(*arguments) if is_error else None
    except (ValueError, TypeError):  # not our words, or not all that its type asks for
        return None


@dataclass(frozen=True)
class StageBatches:
    """Writes the rows of a partition of a data frame into a staged file."""

    root: Root
    directory: str
    frame: pa.Schema
    """What Spark's columns are in Arrow, instants in UTC whatever the session says."""

    schema: pa.Schema
    """What the caller wants them to be."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Part]]:
        """Gives the number of the partition and its file."""
        part = stage_part(self.root, self.directory, self.schema, map(self._fitted, batches))
        if part is not None:
            yield _partition_number(), part

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            cast_array(column, field.type)
            for column, field in zip(batch.columns, self.frame, strict=True)
        ]
        table = pa.Table.from_arrays(arrays, schema=self.frame)
        if self.schema is not self.frame:
            check_same_columns(table.column_names, self.schema.names, "schema")
        fitted = conform_table(table, self.schema).combine_chunks()
        return fitted.to_batches()[0] if fitted.num_rows else _empty(self.schema)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)


def _partition_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


@dataclass(frozen=True)
class RowPairs:
    """Positions in a file and the source row for each: here if they are few, else in a file."""

    path: str | None
    row_groups: tuple[int, ...] = ()
    """Those of the file at ``path`` that hold them."""

    positions: Rows | None = None
    source_rows: Rows | None = None

    @classmethod
    def of(
        cls,
        root: Root,
        directory: str,
        positions: Rows,
        source_rows: Rows,
        inline: int = _INLINE_PAIRS,
    ) -> RowPairs:
        """Keep pairs, in a staged file if they are more than go ``inline``."""
        if len(positions) <= inline:
            return cls(None, (), positions, source_rows)
        path = new_name(directory, "positions")
        table = pa.table({"position": positions, "row": source_rows})
        with root.filesystem.open(path, "wb") as handle:
            pq.write_table(
                table, handle, row_group_size=max(len(positions), 1), **SPILL_WRITE_OPTIONS
            )
        return cls(path, (0,))

    def read(self, root: Root) -> tuple[Rows, Rows]:
        """The pairs, in the order of positions."""
        read = [(one["position"].to_numpy(), one["row"].to_numpy()) for one in self.tables(root)]
        return (
            np.concatenate([positions for positions, _ in read]),
            np.concatenate([rows for _, rows in read]),
        )

    def tables(self, root: Root) -> Iterator[pa.Table]:
        """The pairs in pieces: one row group of the file at ``path`` at a time."""
        if self.path is None:
            yield pa.table({"position": self.positions, "row": self.source_rows})
            return
        with open_data_file(root, self.path) as file:
            for number in self.row_groups:
                yield file.read_row_group(number)


def source_reads(windows: Rows, starts: Rows, positions: Rows, rows: Rows) -> int:
    """How often a row group of the source is read where each part of a file reads its own rows.

    Args:
        windows: The first positions of the parts.
        starts: The first rows of the source's row groups.
        positions: Positions in the file.
        rows: The source row of each.
    """
    window = np.searchsorted(windows, positions, "right")
    group = np.searchsorted(starts, rows, "right")
    return len(np.unique(window * len(starts) + group))


def new_name(directory: str, kind: str) -> str:
    """A new file in a staging directory."""
    return f"{directory}/{kind}-{uuid.uuid4().hex}{STAGED_SUFFIX}"


@dataclass(frozen=True)
class FoundFile:
    """What a key scan found in one file."""

    path: str
    rows: int
    row_groups: tuple[int, ...]
    pairs: RowPairs
    rewritten: Rewritten | None = None
    """What became of the file, if it was written anew at once."""

    reads: int = 0
    """Row groups of the source to be read where each part of the file is rewritten by itself."""


@dataclass(frozen=True)
class Scanned:
    """What a task that scanned some files found."""

    files: tuple[FoundFile, ...]
    known: bytes
    """For each source key, whether one of the files holds it."""

    moved: bytes
    """For each source key, whether one of the files holds it in another partition."""


def packed(flags: NDArray[np.bool_]) -> bytes:
    """Flags, most of which are alike, in a few bytes."""
    return zlib.compress(np.packbits(flags).tobytes())


def unpacked(data: bytes, count: int) -> NDArray[np.bool_]:
    """What :func:`packed` packed."""
    bits = np.frombuffer(zlib.decompress(data), np.uint8)
    return np.unpackbits(bits, count=count).astype(bool)


@dataclass(frozen=True)
class RewriteFile:
    """A file to write anew."""

    path: str
    pairs: tuple[RowPairs, ...]


@dataclass(frozen=True)
class RewriteFiles:
    """Writes files anew with rows of the source."""

    root: Root
    source: SourceRows
    directory: str
    key_columns: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]]
    """By path, the source columns that a file stores."""

    windows: Mapping[str, Rows]
    """By path, the first positions of the parts of a file whose new rows are held at once."""

    keep_others: bool
    force: bool = False
    types: pa.Schema | None = None
    """The types of columns that a file stores without one."""

    def __call__(self, files: Sequence[RewriteFile]) -> Iterator[tuple[str, Rewritten]]:
        """Gives the path of each file and what became of it."""
        for file in files:
            columns = self.columns[file.path]
            yield file.path, self.rewritten(file, partial(self._take, columns))

    def _take(self, columns: Sequence[str], _: int, rows: Rows) -> pa.Table:
        return self.source.take(rows, columns)

    def rewritten(self, file: RewriteFile, load: Callable[[int, Rows], pa.Table]) -> Rewritten:
        """Write one file anew.

        Args:
            file: Which, and which of its positions have which source rows.
            load: Gives the rows for a window, in the order of their positions.
        """
        positions, source_rows = _joined([pairs.read(self.root) for pairs in file.pairs])
        destination = WorkerStage(self.directory).new_file().path
        new = _NewRows(
            np.searchsorted(positions, self.windows[file.path]),
            source_rows,
            list(self.columns[file.path]),
            load,
        )
        # The rewriter asks for rows by the numbers given here: those of the pairs say where to
        # look, those of the source rows would not.
        numbers = np.arange(len(positions))
        done = rewrite(
            self.root,
            file.path,
            Replacement(positions, numbers, self.keep_others, self.force),
            new.rows,
            destination,
            key_columns=self.key_columns,
            types=self.types,
        )
        return replace(done, path=destination if done.is_new else None)


@dataclass
class _NewRows:
    """The new rows of a file, of which those of one window are held."""

    starts: Rows
    """The number of the first pair of each window."""

    source_rows: Rows
    columns: list[str]
    load: Callable[[int, Rows], pa.Table]
    _window: int = -1
    _held: pa.Table | None = None

    def rows(self, pairs: Rows) -> pa.Table:
        """The rows for pairs, given by their numbers, which ascend."""
        windows = np.searchsorted(self.starts, pairs, "right") - 1
        parts = [
            self._of_window(int(number), pairs[windows == number]) for number in np.unique(windows)
        ]
        return parts[0] if len(parts) == 1 else pa.concat_tables(parts).unify_dictionaries()

    def _of_window(self, window: int, pairs: Rows) -> pa.Table:
        start = int(self.starts[window])
        end = int(self.starts[window + 1]) if window + 1 < len(self.starts) else None
        if self._held is None or window != self._window:
            self._held = None  # before the next one is there
            wanted = self.source_rows[start:end]
            held = self.load(window, wanted).select(self.columns)
            if held.num_rows != len(wanted):
                raise RuntimeError(f"{held.num_rows} rows were routed for {len(wanted)} positions.")
            self._window, self._held = window, held
        return take_rows(self._held, pa.array(pairs - start))


class KeysOfTask(Protocol):
    """Keys that a task has as a whole: it was given them, or reads them by itself."""

    @property
    def indexed(self) -> IndexedKeys:
        """The keys."""
        ...


@dataclass(frozen=True)
class MatchFiles:
    """Scans files for keys of which there are few enough for every task to have them all."""

    target: Target
    keys: KeysOfTask
    directory: str
    rewriter: RewriteFiles | None = None
    """Writes a file anew in the same task, where both together are little work."""

    windows: Mapping[int, Rows] = field(default_factory=dict)
    """By the number of a file, the first positions of its parts that are rewritten at once."""

    starts: Rows | None = None
    """The first rows of the source's row groups; None if nobody asks how they are scattered."""

    def __call__(self, work: Sequence[tuple[int, tuple[int, ...]]]) -> Iterator[Scanned]:
        """Scan files, given by number, with the row groups to look at."""
        keys = self.keys.indexed
        sieve = prefilter_for(keys.keys, self.target.key_columns)
        known = np.zeros(keys.count, bool)
        moved = np.zeros(keys.count, bool)
        files = []
        for number, row_groups in work:
            found = find_positions(self.target, keys, sieve, number, row_groups)
            known[found.keys] = True
            moved[found.keys[moving_keys(self.target, keys, number, found)]] = True
            rows = keys.source_rows(found.keys)
            inline = _INLINE_PAIRS if self.starts is None else _INLINE_OF_MANY
            pairs = RowPairs.of(self.target.root, self.directory, found.positions, rows, inline)
            path = self.target.footers[number].file.path
            done = None
            if self.rewriter is not None and len(rows):
                ((_, done),) = self.rewriter([RewriteFile(path, (pairs,))])
            reads = 0
            if self.starts is not None:
                reads = source_reads(self.windows[number], self.starts, found.positions, rows)
            files.append(FoundFile(path, len(rows), found.row_groups, pairs, done, reads))
        yield Scanned(tuple(files), packed(known), packed(moved))


def _joined(pairs: Sequence[tuple[Rows, Rows]]) -> tuple[Rows, Rows]:
    nothing = np.empty(0, np.int64)
    positions = np.concatenate([nothing, *(one for one, _ in pairs)])
    source_rows = np.concatenate([nothing, *(other for _, other in pairs)])
    if len(pairs) > 1:
        order = np.argsort(positions, kind="stable")
        return positions[order], source_rows[order]
    return positions, source_rows


@dataclass(frozen=True)
class InsertShare:
    """Rows of the source that one task writes into new files."""

    start: int
    end: int
    rows: Rows | None = None
    """Which of those from ``start`` to before ``end``, ascending; None for all."""

    pairs: tuple[RowPairs, ...] = ()
    """Where such rows are listed, if they are many."""

    count: int = 0
    """How many are listed there."""

    def __len__(self) -> int:
        if self.pairs:
            return self.count
        return self.end - self.start if self.rows is None else len(self.rows)


@dataclass(frozen=True)
class InsertRows:
    """Writes rows of the source into new files."""

    root: Root
    source: SourceRows
    directory: str
    writer: NewFiles

    def __call__(self, share: InsertShare) -> Iterator[NewFile]:
        """Gives the files that were written."""
        writer = self.writer.elsewhere(partial(WorkerStage, self.directory))
        tables: Iterable[pa.Table] = insertable(self.root, self.source, share)
        if writer.partition_columns:
            # At once, so that no partition gets more files than it needs: there are not many.
            tables = [pa.concat_tables(tables).unify_dictionaries()] if len(share) else []
        with writer:
            for table in tables:
                writer.write(table)
            yield from writer.finish()


def insertable(root: Root, source: SourceRows, share: InsertShare) -> Iterator[pa.Table]:
    """The rows of a share, a row group of the source at a time."""
    rows = share.rows
    if share.pairs:
        rows = np.sort(_joined([pairs.read(root) for pairs in share.pairs])[1])
    if rows is not None:
        yield from (table for _, table in source.holding(rows))
        return
    yield from (table for _, table in source.pieces(share.start, share.end))
