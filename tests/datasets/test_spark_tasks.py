"""What Spark's workers run, run here: the functions are plain, and so are their messages."""

from __future__ import annotations

import base64
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit import errors
from fsspeckit.core.keys.canonical import key_column
from fsspeckit.core.planning.footers import FileFooter, RowGroup
from fsspeckit.core.planning.target import read_target
from fsspeckit.core.rewrite import RowRules
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.datasets.spark.inserting import (
    InsertShare,
    PartitionPieces,
    SplitByPartition,
    cut_shares,
    insertable,
    pack_pieces,
    task_rows,
)
from fsspeckit.datasets.spark.keys import (
    KeyColumns,
    ReadFooters,
    ReadKeyFile,
    ReadKeys,
    ResolveKeys,
)
from fsspeckit.datasets.spark.limits import (
    SparkLimits,
    choose_tier,
    chunk_footers,
    pack_by_size,
    row_ranges,
)
from fsspeckit.datasets.spark.matching import (
    CountRows,
    ScanFiles,
    WritePairs,
    pack_flags,
    unpack_flags,
)
from fsspeckit.datasets.spark.rewriting import (
    Piece,
    PieceWriter,
    ReadPairs,
    RewriteFile,
    RewriteFiles,
    RewriteRouted,
    RouteRows,
    RowPairs,
    file_windows,
    read_pairs,
    read_piece,
)
from fsspeckit.datasets.spark.session import (
    Mailbox,
    carrying_errors,
    deserialize_error,
    make_task,
    messages,
)
from fsspeckit.datasets.spark.source import Part, SourceRows, StageBatches, stage_part
from fsspeckit.storage.listing import DataFile, list_files
from fsspeckit.storage.roots import open_root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspeckit.storage.roots import Root

LIMITS = SparkLimits()


def rows(start: int, end: int, v: str = "old") -> pa.Table:
    ids = list(range(start, end))
    return pa.table({"id": ids, "v": [f"{v}{n}" for n in ids]})


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """Two files of forty rows in four row groups each, and a place for staged files."""
    (tmp_path / "data").mkdir()
    (tmp_path / "stage").mkdir()
    for number in range(2):
        table = rows(number * 40, number * 40 + 40)
        pq.write_table(table, tmp_path / "data" / f"{number}.parquet", row_group_size=10)
    return open_root(str(tmp_path / "data"), None)


@pytest.fixture
def stage(tmp_path: Path) -> str:
    return str(tmp_path / "stage")


def target_of(root: Root) -> Any:
    return read_target(root, list_files(root).files, ["id"])


def staged(root: Root, stage: str, table: pa.Table, size: int) -> SourceRows:
    """A source in row groups of a given size."""
    parts = [
        stage_part(root, stage, table.schema, table.slice(start, size).to_batches())
        for start in range(0, table.num_rows, size)
    ]
    return SourceRows(table.schema, tuple(part for part in parts if part is not None))


def task_batches(*numbers: int) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], ["id"])]


class TestMessages:
    def test_a_long_message_is_left_in_a_file(self, root: Root, stage: str) -> None:
        mailbox = Mailbox(root, stage)
        short, long = "x", "x" * 100_000
        told = [batch.column(0)[0].as_py() for batch in messages([short, long], mailbox)]
        assert max(map(len, told)) < 1000
        assert [mailbox.open(data) for data in told] == [short, long]
        assert len(list(Path(stage).iterdir())) == 1

    def test_a_file_that_is_not_the_message_is_not_unpickled(self, root: Root, stage: str) -> None:
        mailbox = Mailbox(root, stage)
        (told,) = messages(["x" * 100_000], mailbox)
        (file,) = Path(stage).iterdir()
        file.write_bytes(pickle.dumps("of somebody else"))
        with pytest.raises(errors.ConcurrentModificationError, match=file.name):
            mailbox.open(told.column(0)[0].as_py())

    def test_what_a_repetition_would_not_mend_is_an_answer(self) -> None:
        def refuse(_: Any) -> Iterator[int]:
            yield 1
            raise errors.InvalidArgumentError("no")

        told = [
            pickle.loads(batch.column(0)[0].as_py())
            for batch in make_task(messages, refuse, ["only"])(task_batches(0))
        ]
        assert told[0] == 1
        assert isinstance(told[1], errors.InvalidArgumentError)

    @pytest.mark.parametrize("kind", ["items", "partitions"])
    def test_errors_travel_in_the_text(self, kind: str) -> None:
        def fail(_: Any) -> Iterator[pa.RecordBatch]:
            raise PermissionError(13, "Permission denied", "/x")
            yield

        run = make_task(carrying_errors, fail, [None] if kind == "items" else None)
        with pytest.raises(RuntimeError) as caught:
            list(run(task_batches(0)))
        found = deserialize_error(str(caught.value))
        assert isinstance(found, PermissionError)
        assert found.filename == "/x"

    @pytest.mark.parametrize("send", [messages, carrying_errors])
    def test_errors_before_the_first_answer_travel_too(self, send: Any) -> None:
        """Of a function that works at once and gives an iterator afterwards."""

        def fail(item: str) -> Iterator[Any]:
            raise FileNotFoundError(2, "No such file", item)

        with pytest.raises(RuntimeError) as caught:
            list(make_task(send, fail, ["x.parquet"])(task_batches(0)))
        found = deserialize_error(str(caught.value))
        assert isinstance(found, FileNotFoundError)
        assert found.filename == "x.parquet"

    def test_our_errors_travel_from_where_rows_are_made(self) -> None:
        def fail(_: Any) -> Iterator[Any]:
            raise errors.ConcurrentModificationError("the source has changed.\nHint: again.")

        for run in (
            make_task(carrying_errors, fail)([]),
            make_task(carrying_errors, fail, [1])(task_batches(0)),
        ):
            with pytest.raises(RuntimeError) as caught:
                list(run)
            found = deserialize_error(str(caught.value))
            assert isinstance(found, errors.ConcurrentModificationError)
            assert str(found) == "the source has changed.\nHint: again."

    def test_a_text_without_an_error(self) -> None:
        assert deserialize_error("another error") is None

    @pytest.mark.parametrize(
        "words",
        [
            pickle.dumps(OSError("code of somebody else")),
            b'["OSError"]',
            b'["OSError", ["no fields"]]',
            b'["print", ["no error"], {}]',
            b'["UnicodeDecodeError", ["too little"], {}]',
            b'[3, ["no name"], {}]',
            b'["OSError", ["no names of fields"], [1]]',
        ],
    )
    def test_a_text_that_only_looks_like_an_error(self, words: bytes) -> None:
        assert deserialize_error(f"fsspeckit-error:{base64.b64encode(words).decode()}: x") is None

    def test_an_error_of_arrow(self) -> None:
        def fail(_: Any) -> Iterator[int]:
            yield 1
            raise pa.ArrowInvalid("too wide")

        with pytest.raises(RuntimeError) as caught:
            list(make_task(messages, fail, ["only"])(task_batches(0)))
        found = deserialize_error(str(caught.value))
        assert isinstance(found, pa.ArrowInvalid)
        assert str(found) == "too wide"

    def test_flags(self) -> None:
        flags = np.arange(21) % 3 == 0
        assert (unpack_flags(pack_flags(flags), 21) == flags).all()

    def test_map_partitions(self) -> None:
        (told,) = make_task(messages, CountRows())(task_batches(1, 2, 3))
        assert pickle.loads(told.column(0)[0].as_py()) == 3


class TestStaging:
    def test_batches_are_cast_to_what_spark_meant(self, root: Root, stage: str) -> None:
        frame = pa.schema([("t", pa.timestamp("us", "UTC")), ("n", pa.int64())])
        wanted = pa.schema([("t", pa.timestamp("us", "UTC")), ("n", pa.int16())])
        local = pa.array([0], pa.timestamp("us", "America/New_York"))
        batches = [
            pa.RecordBatch.from_arrays([local, pa.array([1])], names=frame.names),
            pa.RecordBatch.from_arrays([local.slice(1), pa.array([], pa.int64())], frame.names),
        ]
        ((number, part),) = StageBatches(root, stage, frame, wanted)(batches)
        assert (number, part.rows) == (0, 1)
        assert pq.read_schema(part.path).equals(wanted)

    def test_rows_that_cannot_be_written_are_an_error(
        self, root: Root, stage: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also if they are written beside what brings the next ones."""

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(pq.ParquetWriter, "write_table", fail)
        table = rows(0, 30)
        with pytest.raises(OSError, match="No space left"):
            stage_part(root, stage, table.schema, table.to_batches())

    def test_nothing_is_written_of_nothing(self, root: Root, stage: str) -> None:
        schema = pa.schema([("n", pa.int64())])
        assert list(StageBatches(root, stage, schema, schema)([])) == []
        assert list(Path(stage).iterdir()) == []

    def test_a_source_is_read_by_row_numbers(self, root: Root, stage: str) -> None:
        source = staged(root, stage, rows(0, 50), 10)
        assert source.take(np.array([42, 3, 3]))["id"].to_pylist() == [42, 3, 3]
        assert source.take(np.array([], np.int64), ["id"]).schema.names == ["id"]
        pieces = list(source.pieces(15, 31, ["id"]))
        assert [(start, table.num_rows) for start, table in pieces] == [(15, 5), (20, 10), (30, 1)]
        held = [
            (part.start, table.num_rows) for part, table in source.holding(np.array([1, 2, 45]))
        ]
        assert held == [(0, 2), (2, 1)]

    def test_a_file_of_somebody_else_is_pinned(self, root: Root, tmp_path: Path) -> None:
        path = str(tmp_path / "data" / "0.parquet")
        Part(root, path, (40,)).check()
        with pytest.raises(errors.ConcurrentModificationError, match="has changed"):
            Part(root, path, (40,), pin=DataFile(path, 1)).check()

    @pytest.mark.parametrize("wanted", [list(range(5, 15)), [0, 19]])
    def test_rows_to_insert(self, root: Root, stage: str, wanted: list[int]) -> None:
        share = InsertShare(5, 15)
        if wanted == [0, 19]:
            pairs = RowPairs.of(root, stage, np.array([0, 1]), np.array(wanted), 2)
            share = InsertShare(0, 20, (pairs,), 2)
        found = pa.concat_tables(insertable(root, staged(root, stage, rows(0, 20), 8), share))
        assert found["id"].to_pylist() == wanted
        assert len(share) == found.num_rows

    def test_rows_to_insert_that_are_listed(self, root: Root, stage: str) -> None:
        source = staged(root, stage, rows(0, 6000), 1000)
        listed = np.arange(0, 6000, 1)[::-1].copy()
        pairs = RowPairs.of(root, stage, np.arange(6000), listed, 4096)
        assert pairs.path is not None
        share = InsertShare(0, 6000, (pairs,), 6000)
        found = pa.concat_tables(insertable(root, source, share))
        assert found["id"].to_pylist() == list(range(6000))


class TestKeys:
    columns = KeyColumns((key_column("id", pa.int64()),), ())

    def test_keys_are_read_resolved_and_read_again(self, root: Root, stage: str) -> None:
        source = staged(root, stage, rows(0, 30), 10)
        batches = list(ReadKeys(source, self.columns)((5, 25)))
        keys = pa.Table.from_batches(batches)
        assert keys["row"].to_pylist() == list(range(5, 25))
        once = keys.append_column("times", pa.array([1] * 18 + [2] * 2))
        task = ResolveKeys(root, stage, self.columns, (), ())
        (facts,) = task(once.to_batches(max_chunksize=7))
        assert (facts.repeated, facts.nulls, len(facts.samples)) == (2, (0,), 2)
        assert facts.part is not None
        again = pa.Table.from_batches(list(ReadKeyFile()(facts.part)))
        assert again["k0"].to_pylist() == list(range(5, 25))

    def test_what_numbers_take_is_known_before_they_are_read(self) -> None:
        assert self.columns.width == 16
        text = key_column("p", pa.string())
        assert KeyColumns(self.columns.keys, (text,)).width is None

    @pytest.mark.parametrize("name", ["p", ".id", "row", "row number"])
    def test_partitions_have_representative_keys(self, root: Root, stage: str, name: str) -> None:
        columns = KeyColumns((key_column("id", pa.int64()),), (key_column(name, pa.string()),))
        table = pa.table(
            [pa.array([1, 2, 3, None]), pa.array([b"a", b"b", b"a", b"a"])], names=["k0", "p0"]
        )
        table = table.append_column("row", pa.array(range(4)))
        table = table.append_column("times", pa.array([1, 1, 1, 3]))
        (facts,) = ResolveKeys(root, stage, columns, (), (name,))(table.to_batches())
        assert facts.nulls == (3,)
        assert sorted(facts.representative_keys[name].to_pylist()) == [b"a", b"b"]

    def test_messages_about_many_partitions_are_short(self, root: Root, stage: str) -> None:
        """One key stands for each; it is not sent with all the others."""
        count = 20_000
        table = pa.table({"id": np.arange(count), "p": np.arange(count) % 50})
        columns = KeyColumns((key_column("id", pa.int64()),), (key_column("p", pa.int64()),))
        every = ReadKeys(staged(root, stage, table, count), columns)((0, count))
        once = pa.Table.from_batches(every).append_column("times", pa.array([1] * count))
        (facts,) = ResolveKeys(root, stage, columns, (), ("p",))(once.to_batches())
        assert sorted(facts.representative_keys["p"].to_pylist()) == list(range(50))
        assert len(pickle.dumps(facts)) < 8192

    def test_files_are_scanned(self, root: Root) -> None:
        found = pa.Table.from_batches(list(ScanFiles(target_of(root))([(0, (1,)), (1, (3,))])))
        assert found["tk0"].to_pylist() == [*range(10, 20), *range(70, 80)]
        assert found["file"].to_pylist() == [0] * 10 + [1] * 10
        assert found["position"].to_pylist() == [*range(10, 20), *range(30, 40)]

    def test_footers(self, root: Root) -> None:
        files = list_files(root).files
        (footers,) = ReadFooters(root, ("id",))(files)
        assert [footer.rows for footer in pickle.loads(pickle.dumps(footers))] == [40, 40]


def pairs_of(*found: tuple[int, int, int]) -> list[pa.RecordBatch]:
    """Batches of route, position and row, one for each pair."""
    return [
        pa.RecordBatch.from_pydict(
            {"route": [route], "position": [position], "row": [row], "k0": [row], "p0": [b"x"]}
        )
        for route, position, row in found
    ]


class TestRouting:
    """Eight source rows for two files, scattered over row groups of two."""

    found = (
        (0, 3, 6),
        (0, 12, 0),
        (0, 13, 4),
        (0, 39, 2),
        (1, 0, 7),
        (1, 5, 3),
        (1, 20, 1),
        (1, 21, 5),
    )
    starts: ClassVar = {0: np.array([0, 10, 30]), 1: np.array([0, 20])}
    tasks: ClassVar = {0: 7, 1: 8}

    def source(self, root: Root, stage: str) -> SourceRows:
        return staged(root, stage, pa.table({"v": [f"new{n}" for n in range(8)]}), 2)

    def matched(self, root: Root, stage: str) -> Any:
        target = target_of(root)
        source = self.source(root, stage)
        columns = KeyColumns(target.key_columns, ())
        task = WritePairs(target, columns, stage, self.starts, source.starts)
        return target, source, list(task(pairs_of(*self.found, (-1, 0, 8))))

    def test_pairs_are_written_file_by_file(self, root: Root, stage: str) -> None:
        _, _, told = self.matched(root, stage)
        assert [(one.route, one.rows, one.row_groups) for one in told] == [
            (0, 4, (0, 1, 3)),
            (1, 4, (0, 2)),
            (-1, 1, ()),
        ]
        assert [one.reads for one in told] == [4, 4, 0]
        assert [one.moved for one in told] == [0, 0, 0]

    def test_rows_reach_their_files(self, root: Root, stage: str) -> None:
        """Through pieces, in the order of positions, a window of the file at a time."""
        target, source, told = self.matched(root, stage)
        files = {
            one.route: RewriteFile(target.footers[one.route].file.path, (one.pairs,))
            for one in told
            if one.route >= 0
        }
        paths = {number: file.path for number, file in files.items()}
        read = list(ReadPairs(root)(list(files.items())))
        in_source_order = pa.Table.from_batches(read).sort_by("row")
        route = RouteRows(source, root, stage, self.starts, self.tasks)
        references = pa.Table.from_batches(list(route(in_source_order.to_batches())))
        assert {(told["task"], told["route"]) for told in references.to_pylist()} == {
            (7, 0),
            (8, 1),
        }
        assert references.num_rows == 8  # no two rows of one row group go to one window
        by_file = references.sort_by([("route", "ascending"), ("window", "ascending")])
        rewriter = RewriteFiles(
            root,
            source,
            stage,
            ("id",),
            dict.fromkeys(paths.values(), ("v",)),
            {paths[number]: starts for number, starts in self.starts.items()},
            RowRules(),
        )
        asked: list[list[str]] = []
        held: Any = _Asking(rewriter, asked)
        done = dict(RewriteRouted(held, files)(by_file.to_batches(max_chunksize=3)))
        assert set(done) == set(paths.values())
        assert asked == [
            ["new6"],
            ["new0", "new4"],
            ["new2"],
            ["new7", "new3"],
            ["new1", "new5"],
        ]

    def test_nothing_to_route(self, root: Root, stage: str) -> None:
        source = self.source(root, stage)
        assert list(RouteRows(source, root, stage, {}, {})([])) == []
        assert list(RewriteRouted(None, {})([])) == []  # type: ignore[arg-type]

    def test_only_pairs_that_move(self, root: Root, stage: str) -> None:
        _, _, told = self.matched(root, stage)
        work = [(0, RewriteFile("", (told[0].pairs,)))]
        assert sum(batch.num_rows for batch in ReadPairs(root, only_moved=True)(work)) == 0
        assert sum(batch.num_rows for batch in ReadPairs(root)(work)) == 4


class _Asking:
    """A rewriter that asks for the rows of each file window by window, and writes nothing."""

    def __init__(self, rewriter: RewriteFiles, asked: list[list[str]]) -> None:
        self.root = rewriter.root
        self.rewriter = rewriter
        self.asked = asked

    def rewrite_file(self, file: RewriteFile, load: Any) -> None:
        positions, _ = read_pairs(self.root, file.pairs)
        found = np.searchsorted(self.rewriter.windows[file.path], positions, "right") - 1
        for window in np.unique(found).tolist():
            self.asked.append(load(window, None, ["v"])["v"].to_pylist())


class TestDirectRewrite:
    @pytest.mark.parametrize("starts", [[0], [0, 10, 20, 30], [0, 20]])
    def test_windows_change_nothing(self, root: Root, stage: str, starts: list[int]) -> None:
        """The new file is the same whatever parts of it are held at once."""
        path = target_of(root).footers[0].file.path
        source = staged(root, stage, rows(0, 40, "new"), 7)
        wanted = np.array([0, 9, 10, 25, 39])
        rewriter = RewriteFiles(
            root,
            source,
            stage,
            ("id",),
            {path: ("id", "v")},
            {path: np.array(starts)},
            RowRules(),
        )
        pairs = RowPairs.of(root, stage, wanted, wanted, 4096)
        ((_, done),) = rewriter([RewriteFile(path, (pairs,))])
        assert done.path is not None
        old = rows(0, 40)["v"].to_pylist()
        new = [f"new{n}" if n in wanted else value for n, value in enumerate(old)]
        assert pq.read_table(done.path)["v"].to_pylist() == new

    def test_pairs_of_several_tasks_are_put_in_order(self, root: Root, stage: str) -> None:
        path = target_of(root).footers[0].file.path
        source = staged(root, stage, rows(0, 40, "new"), 7)
        rewriter = RewriteFiles(
            root,
            source,
            stage,
            ("id",),
            {path: ("id", "v")},
            {path: np.array([0, 20])},
            RowRules(),
        )
        two = [RowPairs.of(root, stage, np.array(p), np.array(p), 4096) for p in ([30, 31], [1, 2])]
        ((_, done),) = rewriter([RewriteFile(path, tuple(two))])
        assert done.path is not None
        assert pq.read_table(done.path)["v"].to_pylist().count("old1") == 0


class TestPieces:
    def test_every_kind_of_value_survives(self, root: Root, stage: str) -> None:
        table = pa.table(
            {
                "ns": pa.array([1, None], pa.timestamp("ns")),
                "u": pa.array([2**64 - 1, 0], pa.uint64()),
                "d": pa.array(["x", None]).dictionary_encode(),
                "l": pa.array([[{"a": 1}], None]),
                "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int8())),
                "f": pa.array([b"ab", None], pa.binary(2)),
            }
        )
        with PieceWriter(root, stage) as writer:
            pieces = [writer.add(table), writer.add(table.slice(1))]
        assert read_piece(root, pieces[0]).equals(table)
        assert read_piece(root, pieces[1]).to_pylist() == table.slice(1).to_pylist()

    def test_views_become_ordinary_strings(self, root: Root, stage: str) -> None:
        with PieceWriter(root, stage) as writer:
            piece = writer.add(pa.table({"s": pa.array(["x"], pa.string_view())}))
        assert read_piece(root, piece).schema.field("s").type == pa.string()

    def test_rows_are_split_by_partition(self, root: Root, stage: str) -> None:
        table = pa.table({"id": range(6), "p": ["a", "b", None, "a", None, "b"]})
        source = staged(root, stage, table, 4)
        split = SplitByPartition(root, source, stage, ("p",))
        (told,) = split(InsertShare(0, 6))
        found = {
            one.partition: [
                n for piece in one.pieces for n in read_piece(root, piece)["id"].to_pylist()
            ]
            for one in told
        }
        assert found == {(b"a",): [0, 3], (b"b",): [1, 5], (None,): [2, 4]}


class TestWork:
    def test_windows_of_a_file(self) -> None:
        groups = tuple(RowGroup(10, megabytes << 20) for megabytes in (10, 5, 5, 40, 1))
        footer = FileFooter(DataFile("x", 1), 50, groups)
        assert file_windows(footer, LIMITS).tolist() == [0, 20, 30, 40]
        assert file_windows(FileFooter(DataFile("x", 1)), LIMITS).tolist() == [0]

    @pytest.mark.parametrize(
        ("count", "tasks"), [(1, 1), (512, 1), (513, 2), (10_000, 4), (100_000, 13), (10**6, 64)]
    )
    def test_footers_are_shared_out(self, count: int, tasks: int) -> None:
        files = [DataFile(str(n), 1) for n in range(count)]
        work = chunk_footers(LIMITS, files, 4)
        assert len(work) == tasks
        assert [file for some in work for file in some] == files

    def test_tasks_are_few_and_not_too_large(self) -> None:
        assert pack_by_size(LIMITS, [(n, 1) for n in range(1000)], 8) == [list(range(1000))]
        assert pack_by_size(LIMITS, [(n, 100 << 20) for n in range(3)], 8) == [[0], [1], [2]]
        assert [
            len(some) for some in pack_by_size(LIMITS, [(n, 10 << 20) for n in range(16)], 4)
        ] == [4] * 4

    @pytest.mark.parametrize(
        ("total", "tasks", "expected"),
        [(1, 4, [1]), (200_000, 4, [131_072, 68_928]), (1_120_000, 4, [280_000] * 4)],
    )
    def test_shares_of_a_source(self, total: int, tasks: int, expected: list[int]) -> None:
        found = row_ranges(LIMITS, total, tasks)
        assert [end - start for start, end in found] == expected
        assert (found[0][0], found[-1][1]) == (0, total)

    def test_shares_of_a_large_source_are_not_large(self) -> None:
        assert max(end - start for start, end in row_ranges(LIMITS, 100_000_000, 4)) == 1_048_576

    @pytest.mark.parametrize(
        ("total", "per_file", "expected"),
        [
            (10, 5_000_000, 10),
            (3_000_000, 5_000_000, 1_000_000),
            (3_000_000, 300_000, 1_200_000),
        ],
    )
    def test_rows_of_a_task(self, total: int, per_file: int, expected: int) -> None:
        assert task_rows(LIMITS, total, per_file) == expected

    def test_shares_to_insert(self) -> None:
        pairs = (RowPairs("x", (0,)),)
        listed = [InsertShare(n * 10, n * 10 + 10, pairs, 4) for n in range(3)]
        work = cut_shares(listed, 8)
        assert [(share.start, share.end, len(share)) for share in work] == [(0, 20, 8), (20, 30, 4)]
        assert [len(share) for share in cut_shares([InsertShare(0, 25)], 10)] == [10, 10, 5]

    def test_small_partitions_share_a_task_and_large_ones_have_several(self) -> None:
        def told(partition: int, *sizes: int) -> PartitionPieces:
            pieces = tuple(Piece(f"{partition}", n, 1, size) for n, size in enumerate(sizes))
            return PartitionPieces((partition,), pieces)

        small = [told(n, 1000) for n in range(100)]
        assert [len(some) for some in pack_pieces(LIMITS, small, 5_000_000)] == [64, 36]
        large = [told(0, *[400_000] * 6), told(1, 10)]
        work = pack_pieces(LIMITS, large, 5_000_000)
        assert [sum(piece.rows for piece in some) for some in work] == [1_200_000, 1_200_000, 10]
        assert told(1, 10, 20).rows == 30


class TestTiers:
    """Which tier a merge takes, and what its metrics say about it."""

    @pytest.mark.parametrize(
        ("sizes", "tier", "reason"),
        [
            ({}, "driver", "at most driver_max_source_bytes=16,777,216"),
            ({"source_bytes": 1 << 25}, "broadcast", "more than driver_max_source_bytes="),
            ({"source_bytes": sys.maxsize}, "broadcast", "a source on disk: more than driver_max"),
            ({"source_rows": 65_537}, "broadcast", "65,537 rows of the source: more than"),
            ({"target_bytes": 1 << 26}, "broadcast", "67,108,864 bytes of the target: more than"),
            ({"target_files": 1}, "driver", "1 file of the target (at most"),
            ({"target_files": 33}, "broadcast", "33 files of the target: more than"),
            ({"key_bytes": 1 << 25}, "broadcast", "at most broadcast_max_key_bytes=33,554,432"),
            ({"key_bytes": (1 << 25) + 1}, "shuffle", "more than broadcast_max_key_bytes="),
        ],
    )
    def test_the_first_limit_that_is_exceeded_decides(
        self, sizes: dict[str, int], tier: str, reason: str
    ) -> None:
        given: dict[str, Any] = {"source_bytes": 1, "source_rows": 1, "key_bytes": None, **sizes}
        choice = choose_tier(LIMITS, **given)
        assert choice.metrics["tier"] == tier
        assert reason in choice.metrics["tier_reason"]

    @pytest.mark.parametrize("value", [-1, 1.5, True, np.True_, "1", None])
    def test_a_limit_is_a_whole_number(self, value: Any) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="driver_max_files must be >= 0") as e:
            SparkLimits(driver_max_files=value)
        assert e.value.argument == "driver_max_files"
        with pytest.raises(errors.InvalidArgumentError, match="task_max_bytes must be >= 1"):
            SparkLimits(task_max_bytes=0)

    @pytest.mark.parametrize("value", [0, np.int64(0), np.uint8(0)])
    def test_a_limit_may_be_a_number_of_numpy(self, value: Any) -> None:
        limits = SparkLimits(driver_max_files=value)
        assert limits == SparkLimits(driver_max_files=0)
        assert type(limits.driver_max_files) is int

    @pytest.mark.parametrize("limits", [{"driver_max_files": 1}, 3])
    def test_limits_are_checked_before_a_session_is_opened(self, limits: Any) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="limits must be SparkLimits, got"):
            SparkDatasetIO(limits=limits)
