"""The key index: fewer key scans, the same merges, whatever happens to it or behind its back."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_hexdigest

from fsspeckit.core.matching import key_index, positions
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.storage import open_storage
from fsspeckit.storage.fs import syscalls
from fsspeckit.testing.conformance.crashes import some
from fsspeckit.testing.model import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fsspeckit.datasets.base import DatasetIO

FILES, GROUPS, ROWS = 3, 4, 100
IO = PyarrowDatasetIO()


def key(number: int) -> str:
    """A key whose neighbours are anywhere."""
    return hashlib.sha256(str(number).encode()).hexdigest()[:36]


def rows(*numbers: int, v: str = "old") -> pa.Table:
    return pa.table({"id": [key(number) for number in numbers], "v": [v] * len(numbers)})


def write(path: str, table: pa.Table, rows_each: int = ROWS) -> None:
    pq.write_table(table, path, row_group_size=rows_each, compression="none")
    make_old(path)


def make_old(path: str) -> None:
    os.utime(path, (1e9, 1e9))


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    """Files of random keys, written long ago: key 100 * n is the first of row group n."""
    root = tmp_path / "data"
    root.mkdir()
    for number in range(FILES):
        start = number * GROUPS * ROWS
        write(f"{root}/part-{number}.parquet", rows(*range(start, start + GROUPS * ROWS)))
    return str(root)


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The row groups whose key columns are read, by file and number."""
    read: list[tuple[str, int]] = []
    original = positions.scan_keys

    def scan_keys(root: Any, footer: Any, row_groups: Sequence[int], *rest: Any) -> Iterator[Any]:
        read.extend((os.path.basename(footer.file.path), group) for group in row_groups)
        return original(root, footer, row_groups, *rest)

    monkeypatch.setattr(positions, "scan_keys", scan_keys)
    return read


def values(dataset: str) -> dict[str, str]:
    table = pq.ParquetDataset(dataset).read()
    found = dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))
    assert len(found) == table.num_rows, "a key is there twice"
    return found


def control(dataset: str) -> Any:
    return open_storage(dataset).control


def segments(dataset: str) -> list[str]:
    directory = control(dataset).key_segments
    return sorted(os.path.join(directory, name) for name in os.listdir(directory))


@pytest.mark.parametrize("engine", [PyarrowDatasetIO, DuckDBDatasetIO])
def test_the_second_merge_scans_only_row_groups_that_have_a_key(
    dataset: str, scans: list[tuple[str, int]], engine: Callable[[], DatasetIO]
) -> None:
    with engine() as io:
        check_second_merge(io, dataset, scans)


def check_second_merge(io: DatasetIO, dataset: str, scans: list[tuple[str, int]]) -> None:
    source = rows(1, 9000, v="one")
    first = io.merge(source, dataset, "upsert", ["id"], key_index=True).rewritten_files
    assert len(set(scans)) == FILES * GROUPS + GROUPS + 1, "all, then those of the new files"
    scans.clear()
    result = io.merge(rows(150, 950, 9001, v="two"), dataset, "upsert", ["id"])
    new, renamed = (os.path.basename(path) for path in (*result.inserted_files, *first))
    assert sorted(scans) == sorted([(renamed, 1), ("part-2.parquet", 1), (new, 0)])
    assert (result.updated, result.inserted) == (2, 1)
    assert result.metrics["pruned_by"]["key index"] == 1
    assert [values(dataset)[key(number)] for number in (1, 150, 950)] == ["one", "two", "two"]


def test_a_plan_uses_the_index_and_writes_nothing(
    dataset: str, scans: list[tuple[str, int]]
) -> None:
    IO.merge(rows(1, v="one"), dataset, "upsert", ["id"], key_index=True)
    before = [control(dataset).key_index, *segments(dataset)]
    stamps = [os.stat(path).st_mtime_ns for path in before]
    scans.clear()
    plan = IO.plan_merge(rows(450, v="two"), dataset, "upsert", ["id"])
    assert scans == [("part-1.parquet", 0)]
    assert "key index of id" in str(plan)
    assert [os.stat(path).st_mtime_ns for path in before] == stamps
    assert IO.plan_merge(rows(450), dataset, "upsert", "id", key_index=False) is not None
    assert len(scans) == 1 + FILES * GROUPS


def test_nothing_is_kept_unless_asked_for(dataset: str) -> None:
    IO.merge(rows(1, v="new"), dataset, "upsert", ["id"])
    assert not os.path.exists(control(dataset).key_index)
    assert not os.path.exists(control(dataset).key_segments)


def test_false_removes_the_index(dataset: str, scans: list[tuple[str, int]]) -> None:
    IO.merge(rows(1, v="one"), dataset, "upsert", ["id"], key_index=True)
    IO.merge(rows(1, v="one"), dataset, "upsert", ["id"], key_index=False)
    assert not os.path.exists(control(dataset).key_index)
    assert not os.path.exists(control(dataset).key_segments)
    scans.clear()
    IO.merge(rows(2, v="two"), dataset, "upsert", ["id"])
    assert len(scans) == FILES * GROUPS


@pytest.mark.parametrize("source", [rows(1), rows()], ids=["no change", "no rows"])
def test_a_merge_that_changes_nothing_makes_an_index(
    dataset: str, scans: list[tuple[str, int]], source: pa.Table
) -> None:
    source = source.cast(rows(1).schema)
    IO.merge(source, dataset, "upsert", ["id"], key_index=True)
    scans.clear()
    IO.merge(rows(450, v="new"), dataset, "update", ["id"])
    assert scans == [("part-1.parquet", 0)]


def test_a_dataset_that_does_not_exist_yet_gets_one(
    tmp_path: Path, scans: list[tuple[str, int]]
) -> None:
    path = str(tmp_path / "new")
    IO.merge(rows(*range(100)), path, "upsert", ["id"], key_index=True, row_group_size=50)
    scans.clear()
    assert IO.merge(rows(60, v="new"), path, "upsert", ["id"]).updated == 1
    assert len(scans) == 1


def test_rows_that_are_deleted_take_their_entries_with_them(
    dataset: str, scans: list[tuple[str, int]]
) -> None:
    IO.merge(rows(1), dataset, "update", ["id"], key_index=True)
    IO.merge(rows(*range(0, 1200, 3)), dataset, "full_merge", ["id"])
    scans.clear()
    result = IO.merge(rows(3, 4, v="new"), dataset, "upsert", ["id"])
    assert (result.updated, result.inserted) == (1, 1)
    assert len(values(dataset)) == 401
    assert len(set(scans)) == 2, "one row group, and that of the new file"


def test_written_files_are_indexed(dataset: str, scans: list[tuple[str, int]]) -> None:
    IO.merge(rows(1), dataset, "update", ["id"], key_index=True)
    scans.clear()
    IO.write_dataset(rows(*range(5000, 5200)), dataset, row_group_size=100)
    assert len(scans) == 2, "only the keys of its own file"
    scans.clear()
    assert IO.merge(rows(5150, v="new"), dataset, "upsert", ["id"]).updated == 1
    assert [group for _, group in scans] == [1]
    IO.write_dataset(rows(*range(100)), dataset, mode="overwrite")
    scans.clear()
    assert IO.merge(rows(5150, v="new"), dataset, "upsert", ["id"]).inserted == 1
    assert len(scans) == 1


def test_other_key_columns_neither_use_nor_change_it(
    dataset: str, scans: list[tuple[str, int]]
) -> None:
    IO.merge(rows(1), dataset, "update", ["id"], key_index=True)
    with open(control(dataset).key_index, "rb") as file:
        before = file.read()
    other = pa.table({"id": [key(7000)], "v": ["never"]})
    IO.merge(other, dataset, "upsert", ["v"])
    with open(control(dataset).key_index, "rb") as file:
        assert file.read() == before
    assert IO.merge(rows(7000, v="new"), dataset, "upsert", ["id"]).updated == 1
    IO.merge(pa.table({"id": ["x"], "v": ["new"]}), dataset, "update", ["v"], key_index=True)
    scans.clear()
    IO.merge(pa.table({"id": ["x"], "v": ["absent"]}), dataset, "update", ["v"])
    assert scans == []


def test_keys_of_another_type_make_another_index(
    tmp_path: Path, scans: list[tuple[str, int]]
) -> None:
    """Canonical decimals of scale 2 are other numbers than those of scale 0."""
    root = tmp_path / "data"
    root.mkdir()
    mixed = [(number * 7919) % 1000 for number in range(1000)]
    write(f"{root}/a.parquet", pa.table({"id": pa.array(mixed, pa.decimal128(9, 0))}))
    IO.merge(pa.table({"id": mixed[:2]}), str(root), "update", ["id"], key_index=True)
    finer = pa.array([number + 2000 for number in range(100)], pa.decimal128(9, 2))
    write(f"{root}/b.parquet", pa.table({"id": finer}))
    for _ in range(2):
        scans.clear()
        result = IO.merge(pa.table({"id": [mixed[150], 2003]}), str(root), "update", ["id"])
        assert result.updated == 2
    assert sorted(scans) == [("a.parquet", 1), ("b.parquet", 0)]


def test_many_keys_are_not_looked_up(dataset: str, scans: list[tuple[str, int]]) -> None:
    IO.merge(rows(1), dataset, "update", ["id"], key_index=True)
    scans.clear()
    result = IO.merge(rows(*range(4000, 4007)), dataset, "update", ["id"])
    assert (result.updated, len(scans)) == (0, FILES * GROUPS)
    scans.clear()
    assert IO.merge(rows(*range(4000, 4006)), dataset, "update", ["id"]).updated == 0
    assert scans == []


@pytest.mark.parametrize("by_key", [True, False], ids=["in the key", "guarded"])
def test_partitions(tmp_path: Path, scans: list[tuple[str, int]], by_key: bool) -> None:
    root = str(tmp_path / "data")
    for day in ("a", "b"):
        os.makedirs(f"{root}/day={day}")
        start = 0 if by_key or day == "a" else 1000
        write(f"{root}/day={day}/f.parquet", rows(*range(start, start + 200)))
    keys = ["day", "id"] if by_key else ["id"]

    def source(*numbers: int) -> pa.Table:
        table = rows(*numbers, v="new")
        return table.append_column("day", pa.array(["a"] * len(numbers)))

    IO.merge(source(1), root, "upsert", keys, key_index=True)
    scans.clear()
    result = IO.merge(source(150, 5000), root, "upsert", keys)
    assert (result.updated, result.inserted) == (1, 1)
    assert len(scans) == 2, "a row group with a key, and that of the new file"
    assert IO.merge(source(150, 5000), root, "upsert", keys).updated == 2


def test_floats_nulls_and_negative_zero(tmp_path: Path, scans: list[tuple[str, int]]) -> None:
    root = tmp_path / "data"
    root.mkdir()
    numbers = np.random.default_rng(1).permutation(np.arange(1.0, 401.0))
    numbers[[0, 100, 200]] = [np.nan, -0.0, 500.5]
    keys = pa.array(numbers, mask=np.arange(400) == 300)
    write(f"{root}/a.parquet", pa.table({"id": keys.cast(pa.float32()), "v": ["old"] * 400}))
    nothing = pa.table({"id": [-5.5], "v": ["new"]})
    IO.merge(nothing, str(root), "update", ["id"], key_index=True)
    for group, value in enumerate([float("nan"), 0.0, 500.5, None]):
        scans.clear()
        source = pa.table({"id": pa.array([value], pa.float64()), "v": [f"new {group}"]})
        result = IO.merge(source, str(root), "upsert", ["id"], null_keys="match")
        assert (result.updated, result.inserted, scans) == (1, 0, [(scans[0][0], group)])


def test_segments_are_joined_and_files_keep_their_entries(
    dataset: str, scans: list[tuple[str, int]]
) -> None:
    IO.merge(rows(1), dataset, "update", ["id"], key_index=True)
    most = 0
    for number in range(9000, 9030):
        IO.merge(rows(number), dataset, "insert", ["id"])
        most = max(most, len(segments(dataset)))
    assert most == key_index._MAX_SMALL_SEGMENTS
    scans.clear()
    IO.merge(rows(8000), dataset, "update", ["id"])
    assert scans == []


def test_files_of_a_running_merge_and_leftovers_do_not_stay(dataset: str) -> None:
    IO.merge(rows(1), dataset, "update", ["id"], key_index=True)
    leftover = os.path.join(control(dataset).key_segments, ".new_1")
    with open(leftover, "wb") as file:
        file.write(b"x")
    IO.merge(rows(9000), dataset, "insert", ["id"])
    assert not os.path.exists(leftover)


def garble(path: str) -> None:
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        data[len(data) // 2] ^= 0x10
        file.seek(0)
        file.write(data)


def cut(path: str) -> None:
    os.truncate(path, os.path.getsize(path) // 2)


def blank(path: str) -> None:
    with open(path, "r+b") as file:
        file.write(bytes(os.path.getsize(path)))


DAMAGES: list[Callable[[str], None]] = [garble, cut, blank, os.unlink]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("what", ["entries", "fingerprints"])
def test_what_is_damaged_is_built_again(
    dataset: str, scans: list[tuple[str, int]], what: str, damage: Callable[[str], None]
) -> None:
    IO.merge(rows(1), dataset, "update", ["id"], key_index=True)
    damage(control(dataset).key_index if what == "entries" else segments(dataset)[0])
    scans.clear()
    result = IO.merge(rows(450, 9000, v="new"), dataset, "upsert", ["id"])
    assert (result.updated, result.inserted) == (1, 1)
    assert {("part-1.parquet", group) for group in range(GROUPS)} <= set(scans)
    if (what, damage) == ("entries", os.unlink):
        return  # deleting it is how to remove it
    scans.clear()
    assert IO.merge(rows(451, v="new"), dataset, "update", ["id"]).updated == 1
    assert len(scans) == 1


def test_an_index_of_another_version_is_built_again(
    dataset: str, scans: list[tuple[str, int]]
) -> None:
    IO.merge(rows(1), dataset, "update", ["id"], key_index=True)
    path = Path(control(dataset).key_index)
    newer = path.read_bytes().partition(b"\n")[2].replace(b'"version": 1', b'"version": 2')
    path.write_bytes(xxh3_64_hexdigest(newer).encode() + b"\n" + newer)
    assert b'"version": 2' in newer
    IO.merge(rows(1), dataset, "update", ["id"])
    scans.clear()
    IO.merge(rows(450), dataset, "update", ["id"])
    assert len(scans) == 1


def replace(path: str, table: pa.Table) -> None:
    """Put another file of the same size and age in the place of one, which is kept."""
    size = os.path.getsize(path)
    os.rename(path, f"{path}.away")
    write(path, table)
    assert os.path.getsize(path) == size


def put_back(path: str) -> None:
    os.rename(f"{path}.away", path)


def test_a_file_that_was_replaced_is_scanned(dataset: str) -> None:
    IO.merge(rows(1), dataset, "update", ["id"], key_index=True)
    replace(f"{dataset}/part-1.parquet", rows(*range(6000, 6000 + GROUPS * ROWS)))
    assert IO.merge(rows(6050), dataset, "insert", ["id"]).inserted == 0
    assert IO.merge(rows(6350), dataset, "insert", ["id"]).inserted == 0
    put_back(f"{dataset}/part-1.parquet")
    assert IO.merge(rows(450), dataset, "insert", ["id"]).inserted == 0


def test_a_new_file_that_was_changed_at_once_is_scanned(dataset: str) -> None:
    """In place, and of the same size: only the time of its last change differs."""
    first = IO.merge(rows(9000), dataset, "upsert", ["id"], key_index=True)
    (path,) = first.inserted_files
    with open(path, "rb") as file:
        data = file.read()
    with open(path, "r+b") as file:
        file.write(data.replace(key(9000).encode(), key(9001).encode()))
    assert IO.merge(rows(9001), dataset, "insert", ["id"]).inserted == 0
    assert IO.merge(rows(9000), dataset, "insert", ["id"]).inserted == 1


def test_a_file_that_cannot_be_distinguished_from_a_changed_one_is_not_indexed(
    dataset: str, scans: list[tuple[str, int]]
) -> None:
    soon = 4e9
    os.utime(f"{dataset}/part-2.parquet", (soon, soon))
    IO.merge(rows(1), dataset, "update", ["id"], key_index=True)
    scans.clear()
    IO.merge(rows(8000), dataset, "update", ["id"])
    assert {name for name, _ in scans} == {"part-2.parquet"}


def test_keys_that_were_read_from_another_file_are_not_kept(
    dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The identity of a file is compared once more after its keys were read."""
    original = key_index._read_fingerprints
    path = f"{dataset}/part-1.parquet"

    def read(target: Any, number: int) -> Any:
        if target.footers[number].file.path == path:
            replace(path, rows(*range(6000, 6000 + GROUPS * ROWS)))
        return original(target, number)

    with monkeypatch.context() as patched:
        patched.setattr(key_index, "_read_fingerprints", read)
        IO.merge(rows(1), dataset, "update", ["id"], key_index=True)
    put_back(path)
    assert IO.merge(rows(450), dataset, "insert", ["id"]).inserted == 0


def test_a_merge_succeeds_where_its_index_cannot_be_written(dataset: str) -> None:
    with _no_directory(dataset):
        result = IO.merge(rows(1, v="new"), dataset, "upsert", ["id"], key_index=True)
    assert result.updated == 1
    assert values(dataset)[key(1)] == "new"


@contextmanager
def _no_directory(dataset: str) -> Iterator[None]:
    """A file has the name of the directory of segments."""
    os.makedirs(control(dataset).path)
    with open(control(dataset).key_segments, "wb"):
        yield


CHANGES = ("replace", "change in place", "touch", "copy", "add", "delete")
INDEX_CHANGES = ("garble", "cut", "blank", "unlink", "other columns", "remove")


@given(data=st.data())
@some(60)
def test_merges_are_the_same_with_and_without(data: st.DataObject) -> None:
    """Over merges of every strategy, changes by other programs and damage between them."""
    with tempfile.TemporaryDirectory() as directory:
        root = f"{directory}/data"
        os.mkdir(root)
        numbers = st.lists(st.integers(0, 150), max_size=2, unique=True)
        for start in (0, 60):
            write(f"{root}/{start}.parquet", rows(*range(start, start + 60)), rows_each=20)
        for step in range(data.draw(st.integers(2, 5), "merges")):
            for what in data.draw(st.lists(st.sampled_from(CHANGES), max_size=2), "changes"):
                change_data(root, what, data)
            for what in data.draw(st.lists(st.sampled_from(INDEX_CHANGES), max_size=1), "damage"):
                change_index(root, what)
            strategy = data.draw(st.sampled_from([*STRATEGIES, "upsert", "update"]), "strategy")
            source = rows(*data.draw(numbers, "keys"), v=f"of merge {step}").cast(SCHEMA)
            wanted = data.draw(st.sampled_from([True, True, None, False]), "key_index")
            compare(directory, source, strategy, wanted)


SCHEMA = rows(1).schema


def compare(directory: str, source: pa.Table, strategy: str, wanted: bool | None) -> None:
    """Merge into the dataset, and into a copy of it that has no index."""
    root, copy = f"{directory}/data", f"{directory}/copy"
    shutil.copytree(root, copy)
    arguments: Any = (strategy, ["id"])
    options: Any = {"allow_empty": True}
    try:
        expected = IO.merge(source, copy, *arguments, **options)
        result = IO.merge(source, root, *arguments, **options, key_index=wanted)
        counts = [
            (r.inserted, r.updated, r.deleted, r.target_count_after) for r in (result, expected)
        ]
        assert counts[0] == counts[1]
        assert contents(root) == contents(copy)
    finally:
        shutil.rmtree(copy)
        shutil.rmtree(f"{directory}/.copy.fsspeckit", ignore_errors=True)


def contents(root: str) -> list[list[dict[str, str]]]:
    """The rows of each file, in their order."""
    files = [pq.read_table(f"{root}/{name}").to_pylist() for name in os.listdir(root)]
    return sorted(files, key=repr)


def change_data(root: str, what: str, data: st.DataObject) -> None:
    """Change a file as another program would; keys stay unique."""
    # By their rows, because their names are random.
    names = sorted(os.listdir(root), key=lambda name: repr(pq.read_table(f"{root}/{name}")["id"]))
    if what == "add":
        taken = {row["id"] for file in contents(root) for row in file}
        new = data.draw(st.lists(st.integers(0, 200), max_size=30, unique=True), "added")
        table = rows(*[n for n in new if key(n) not in taken])
        write(f"{root}/{uuid.uuid4().hex}.parquet", table.cast(SCHEMA), rows_each=10)
        return
    path = f"{root}/{names[data.draw(st.integers(0, 9), 'file') % len(names)]}"
    status = os.stat(path)
    if what == "delete":
        if len(names) > 1:
            os.unlink(path)
    elif what == "touch":
        os.utime(path)
    elif what == "copy":  # another inode, the same content and times
        shutil.copy2(path, f"{root}/.copy")
        os.replace(f"{root}/.copy", path)
    else:
        # Other keys in the same bytes: those of a range that nobody else uses, for a while.
        swap = data.draw(st.integers(1, 3), "shift") * 1000
        with open(path, "rb") as file:
            content = file.read()
        for number in range(200):
            if key(number).encode() in content and key(number + swap).encode() not in content:
                content = content.replace(key(number).encode(), key(number + swap).encode())
        write_bytes(path, content, in_place=what == "change in place")
        if what == "replace":
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def write_bytes(path: str, content: bytes, *, in_place: bool) -> None:
    if in_place:
        with open(path, "r+b") as file:
            file.write(content)
        return
    with open(f"{path}.new", "wb") as file:
        file.write(content)
    os.replace(f"{path}.new", path)


def change_index(root: str, what: str) -> None:
    if what == "other columns":
        IO.merge(rows(1).slice(0, 0), root, "update", ["v"], key_index=True)
    elif what == "remove":
        shutil.rmtree(control(root).key_segments, ignore_errors=True)
    else:
        damage = {"garble": garble, "cut": cut, "blank": blank, "unlink": os.unlink}[what]
        directory = control(root).key_segments
        found = segments(root) if os.path.isdir(directory) else []
        for path in (*found[:1], control(root).key_index):
            if os.path.exists(path) and os.path.getsize(path):
                damage(path)


def test_a_file_without_the_key_column_gets_no_entry(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name, table in (("a", pa.table({"id": [1], "v": ["x"]})), ("b", pa.table({"v": ["x"]}))):
        pq.write_table(table, data / f"{name}.parquet")
        os.utime(data / f"{name}.parquet", (1e9, 1e9))
    nothing = pa.schema([("id", pa.int64()), ("v", pa.string())]).empty_table()
    result = PyarrowDatasetIO().merge(nothing, str(data), "upsert", ["id"], key_index=True)
    assert (result.inserted, result.updated) == (0, 0)


@pytest.mark.parametrize("is_write", [False, True])
def test_an_interrupt_after_the_commit_says_that_it_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_write: bool
) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "data")
    rows = pa.table({"id": [1, 2], "v": ["a", "b"]})
    io.merge(rows, path, "upsert", ["id"], key_index=True)

    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(key_index.StoredKeyIndex, "update", interrupt)
    new = pa.table({"id": [3], "v": ["c"]})
    with pytest.raises(KeyboardInterrupt) as raised:
        io.write_dataset(new, path) if is_write else io.merge(new, path, "upsert", ["id"])
    assert getattr(raised.value, "committed", None) == 2
    assert sorted(io.read_dataset(path)["id"].to_pylist()) == [1, 2, 3]


@pytest.mark.parametrize("source", [rows(450, v="new"), rows(1)], ids=["a commit", "no commit"])
@pytest.mark.parametrize("is_wanted", [True, False])
def test_an_index_that_cannot_be_written_or_removed_is_a_note(
    dataset: str, source: pa.Table, is_wanted: bool
) -> None:
    IO.merge(rows(1), dataset, "update", ["id"], key_index=not is_wanted)
    paths = control(dataset)
    obstacle = Path(paths.key_segments if is_wanted else paths.key_index)
    obstacle.parent.mkdir(exist_ok=True)
    if is_wanted:
        obstacle.touch()
    else:
        obstacle.unlink()
        obstacle.mkdir()
    result = IO.merge(source, dataset, "update", ["id"], key_index=is_wanted)
    assert result.updated == 1
    (note,) = result.metrics["commit"]["notes"]
    assert note.startswith(f"the key index could not be {'written' if is_wanted else 'removed'}: ")
    assert note in str(result)


def test_files_without_a_creation_time_are_a_note(
    dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syscalls, "_statx", None)
    result = IO.merge(rows(450, v="new"), dataset, "update", ["id"], key_index=True)
    (note,) = result.metrics["commit"]["notes"]
    assert note.startswith("3 of 3 files are not in the key index")
    assert note in str(result)
    again = IO.merge(rows(451, v="new"), dataset, "update", ["id"])
    assert again.metrics["commit"]["notes"] == []
