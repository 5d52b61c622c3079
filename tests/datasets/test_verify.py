"""Verification of what is beside the files of a dataset, while others write, and in Spark tasks."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import threading
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fsspeckit
from fsspeckit.core.keys import key_column
from fsspeckit.core.matching.key_index import _decode, _encode
from fsspeckit.core.planning import footer_cache
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.verification import unique_keys, verify
from fsspeckit.datasets.verification.files import FileState, VerifyRowGroups
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage.commit.log import encode_document
from fsspeckit.testing.conformance.target import numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from fsspeckit.datasets.verification import VerifyReport
    from fsspeckit.datasets.verification.files import Share


@pytest.fixture
def io() -> PyarrowDatasetIO:
    return PyarrowDatasetIO()


@pytest.fixture
def path(tmp_path: Path, io: PyarrowDatasetIO) -> Path:
    """A dataset of three commits with a key index."""
    path = tmp_path / "data"
    io.write_dataset(numbers(*range(100)), str(path), max_rows_per_file=10)
    io.merge(numbers(5, 500, v="new"), str(path), "upsert", "id", key_index=True)
    io.merge(numbers(95, v="new"), str(path), "upsert", "id")
    return path


def control(path: Path, *parts: str) -> Path:
    """A path in the control directory."""
    return path.with_name(f".{path.name}.fsspeckit").joinpath(*parts)


def found(report: VerifyReport) -> list[tuple[str, str | None]]:
    """Severity and file of every finding."""
    return [(finding.severity, finding.file) for finding in report.findings]


def test_nothing_is_wrong(io: PyarrowDatasetIO, path: Path) -> None:
    report = io.verify(str(path), "id")
    assert (report.findings, report.commit, report.rows) == ((), 3, 101)


@pytest.mark.parametrize("damage", ["lost", "changed"])
def test_a_record_that_is_lost_or_damaged(io: PyarrowDatasetIO, path: Path, damage: str) -> None:
    record = control(path, "commits", "0000000002.json")
    if damage == "lost":
        record.unlink()
    else:
        record.write_text(record.read_text().replace("upsert", "insert"))
    (finding,) = io.verify(str(path)).findings
    assert finding.severity == "error"
    assert ("commit 2 is missing" if damage == "lost" else "0000000002.json") in finding.what


def test_a_commit_that_is_not_complete(io: PyarrowDatasetIO, path: Path) -> None:
    control(path, "commits", "0000000003.done.json").unlink()
    report = io.verify(str(path))
    assert report.ok
    assert found(report) == [("warning", "commits/0000000003.json")]
    assert "recover" in report.findings[0].hint


def test_a_removed_file_that_is_there_again(io: PyarrowDatasetIO, path: Path) -> None:
    record = json.loads(control(path, "commits", "0000000003.json").read_text())
    (removed,) = (each["path"] for each in record["removes"])
    (trashed,) = control(path, "trash").rglob(f"{removed}.trash")
    trashed.rename(path / removed)
    report = io.verify(str(path), "id")
    assert ("error", removed) in found(report)
    assert any("its rows are there twice" in finding.what for finding in report.errors)


def test_a_file_that_another_program_changed(io: PyarrowDatasetIO, path: Path) -> None:
    record = json.loads(control(path, "commits", "0000000003.json").read_text())
    (added,) = (each["final"] for each in record["adds"])
    pq.write_table(numbers(1000, 1001), path / added)
    report = io.verify(str(path))
    assert found(report) == [("warning", added)]


def test_a_file_with_other_rows_than_its_commit_added(io: PyarrowDatasetIO, path: Path) -> None:
    record = json.loads(control(path, "commits", "0000000003.json").read_text())
    (add,) = record["adds"]
    record.pop("checksum")
    add["rows"] += 1
    changed = encode_document(
        record.pop("format"), {k: v for k, v in record.items() if k != "version"}
    )
    control(path, "commits", "0000000003.json").write_bytes(changed)
    (finding,) = io.verify(str(path)).findings
    assert (finding.severity, finding.file) == ("error", add["final"])


def test_what_dead_writers_have_left(io: PyarrowDatasetIO, path: Path) -> None:
    for name in (f".staging_{'0' * 32}", f".shadow_0000000009_{'0' * 32}"):
        control(path, name).mkdir()
    report = io.verify(str(path))
    assert [severity for severity, _ in found(report)] == ["warning", "warning"]


def test_tombstones_that_are_lost(io: PyarrowDatasetIO, tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    feed = pa.table({"id": [1, 2], "n": [1, 1], "op": ["c", "d"]})
    options: dict[str, Any] = {"keys": "id", "sequence_by": "n", "apply_as_deletes": "op = 'd'"}
    io.apply_changes(feed, path, **options, except_column_list="op")
    assert io.verify(path).findings == ()
    (file,) = control(Path(path), "tombstones").iterdir()
    file.write_bytes(file.read_bytes() + b"x")
    (finding,) = io.verify(path).findings
    assert (finding.severity, "does not fit its checksum" in finding.what) == ("error", True)


def test_a_key_index_with_other_keys(io: PyarrowDatasetIO, path: Path) -> None:
    stored = control(path, "keys.index")
    _, entries = _decode(stored.read_bytes())
    (first, one), (_, other), *_ = [
        (name, entry) for name, entry in entries.items() if entry.rows == [10]
    ]
    swapped = one._replace(segment=other.segment, offset=other.offset, checksum=other.checksum)
    columns = [key_column("id", pa.int64())]
    stored.write_bytes(_encode(columns, {**entries, first: swapped}))
    (finding,) = io.verify(str(path)).findings
    assert (finding.severity, finding.file) == ("error", first)


def test_a_footer_cache_with_other_bounds(
    io: PyarrowDatasetIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footer_cache, "_MIN_AGE_NS", 0)
    monkeypatch.setattr(footer_cache.is_settled, "__defaults__", (0,))
    path = tmp_path / "data"
    io.write_dataset(numbers(*range(700)), str(path), max_rows_per_file=10)
    time.sleep(0.01)
    io.merge(numbers(5, v="new"), str(path), "upsert", "id")
    cache = control(path, "footers.arrow")
    assert io.verify(str(path)).findings == ()
    data = cache.read_bytes()[32:]
    low = (690).to_bytes(8, "little")
    assert low in data
    changed = data.replace(low, (695).to_bytes(8, "little"))
    cache.write_bytes(footer_cache._digest(changed) + changed)
    report = io.verify(str(path))
    assert not report.ok
    assert "the footer cache says of it other row_groups" in report.findings[0].what


def test_checksums_that_hadoop_keeps(io: PyarrowDatasetIO, path: Path) -> None:
    file = sorted(path.glob("*.parquet"))[0]
    data = file.read_bytes()
    sums = [zlib.crc32(data[at : at + 512]).to_bytes(4, "big") for at in range(0, len(data), 512)]
    side = path / f".{file.name}.crc"
    side.write_bytes(b"crc\0" + (512).to_bytes(4, "big") + b"".join(sums))
    assert io.verify(str(path)).findings == ()
    side.write_bytes(b"crc\0" + (512).to_bytes(4, "big") + b"".join(sums[::-1]))
    (finding,) = io.verify(str(path)).findings
    assert (finding.file, "Spark refuses to read it" in finding.what) == (file.name, True)
    assert io.verify(str(path), checksums=False).findings == ()


def interrupting(act: Callable[[], Any]) -> Callable[..., FileState]:
    """A verification of row groups that something happens before."""
    lock, original = threading.Lock(), VerifyRowGroups.__call__
    done: list[Any] = []

    def call(task: VerifyRowGroups, share: Share) -> FileState:
        with lock:
            if not done:
                done.append(act())
        return original(task, share)

    return call


def test_a_commit_may_remove_files_meanwhile(
    io: PyarrowDatasetIO, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act() -> None:
        PyarrowDatasetIO().write_dataset(numbers(1), str(path), mode="overwrite")

    monkeypatch.setattr(VerifyRowGroups, "__call__", interrupting(act))
    report = io.verify(str(path))
    assert (report.findings, report.commit) == ((), 3)


@pytest.mark.parametrize("publish", ["auto", "plain"])
def test_others_may_merge_meanwhile(path: Path, publish: Any) -> None:
    io = PyarrowDatasetIO(publish=publish)
    stopped = threading.Event()

    def merge() -> None:
        for number in range(1000):
            if stopped.is_set():
                return
            ids = (number % 90, 600 + number)
            io.merge(numbers(*ids, v=str(number)), str(path), "upsert", "id", key_index=True)

    writer = threading.Thread(target=merge)
    writer.start()
    try:
        for _ in range(8):
            assert io.verify(str(path), "id").findings == ()
    finally:
        stopped.set()
        writer.join()
    assert io.verify(str(path), "id").commit > 3


def test_a_file_that_vanishes_without_a_commit(
    io: PyarrowDatasetIO, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = sorted(path.glob("*.parquet"))[0]
    monkeypatch.setattr(VerifyRowGroups, "__call__", interrupting(file.unlink))
    report = io.verify(str(path))
    assert {finding.file for finding in report.errors} == {file.name}
    assert any("vanished" in finding.what for finding in report.errors)


@pytest.mark.parametrize("max_hashes", [7, 10**6])
def test_keys_are_compared_in_shares(
    io: PyarrowDatasetIO, path: Path, monkeypatch: pytest.MonkeyPatch, max_hashes: int
) -> None:
    monkeypatch.setattr(verify, "MAX_HASHES", max_hashes)
    io.write_dataset(numbers(3, 4, 5, 1000), str(path))
    (finding,) = io.verify(str(path), "id").findings
    assert "3 keys of id occur more than once, in 6 rows, such as" in finding.what


def test_equal_hashes_are_not_equal_keys(
    io: PyarrowDatasetIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unique_keys, "key_hashes", lambda keys: np.zeros(keys.num_rows, np.uint64))
    path = str(tmp_path / "data")
    io.write_dataset(numbers(*range(50)), path)
    assert io.verify(path, "id").ok


def test_a_dataset_without_files(io: PyarrowDatasetIO, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    (path / "notes.txt").write_text("x")
    assert io.verify(str(path), "id").ok


def test_key_columns_that_are_not_comparable(io: PyarrowDatasetIO, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    pq.write_table(pa.table({"id": [[1]]}), path / "a.parquet")
    with pytest.raises(InvalidArgumentError):
        io.verify(str(path), [])
    (finding,) = io.verify(str(path), "id").errors
    assert "cannot be a key" in finding.what


_INT96 = {"use_deprecated_int96_timestamps": True}
_NAIVE, _INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("first", "second", "options", "severity"),
    [
        (pa.timestamp("ms"), _NAIVE, {}, "error"),
        (_INSTANT, _NAIVE, {}, "error"),
        (pa.timestamp("ns"), _NAIVE, _INT96, "error"),
        (pa.timestamp("ns"), pa.timestamp("ns"), _INT96, "error"),
        (pa.timestamp("ns"), _INSTANT, _INT96, "warning"),
        (pa.list_(pa.timestamp("ns")), pa.list_(_INSTANT), _INT96, "warning"),
        (pa.list_(pa.timestamp("ms")), pa.list_(_NAIVE), {}, "error"),
    ],
)
def test_timestamps_that_differ(
    io: PyarrowDatasetIO,
    tmp_path: Path,
    first: pa.DataType,
    second: pa.DataType,
    options: dict[str, Any],
    severity: str,
) -> None:
    """INT96 is an instant; beside other instants it is what a merge leaves."""
    is_list = pa.types.is_list(first)
    value = [dt.datetime(2024, 1, 2, 3, 4, 5, 600)] if is_list else dt.datetime(2024, 1, 2)
    for name, kind in ("first", first), ("second", second):
        table = pa.table(
            {"id": [1], "at": pa.array([value], pa.list_(_NAIVE) if is_list else None)}
        )
        table = table.set_column(1, "at", pc.cast(table["at"], kind, safe=False))
        pq.write_table(table, tmp_path / f"{name}.parquet", **(options if name == "first" else {}))
    (finding,) = io.verify(str(tmp_path)).findings
    assert (finding.severity, finding.column) == (severity, "at")


def test_progress_counts_files(io: PyarrowDatasetIO, path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    io.verify(str(path), "id", progress=lambda *event: seen.append(event))
    phases = list(dict.fromkeys(phase for phase, _, _ in seen))
    assert phases == ["footers", "verify", "keys", "control"]
    assert ("verify", 11, 11) in seen


def test_a_report_displays_itself(path: Path) -> None:
    (path / "bad.parquet").write_bytes(b"x")
    report = fsspeckit.verify(str(path), engine="pyarrow")
    assert "1 error in 12 files" in str(report)
    assert "bad.parquet" in report._repr_html_()
    assert report.to_dict()["findings"][0]["file"] == "bad.parquet"


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_garbage_anywhere_is_a_finding_and_never_an_error(path: Path, data: st.DataObject) -> None:
    copy = path.parent / "copied" / "data"
    shutil.rmtree(copy.parent, ignore_errors=True)
    shutil.copytree(path, copy)
    shutil.copytree(control(path), control(copy))
    files = sorted(each for each in copy.parent.rglob("*") if each.is_file())
    file = data.draw(st.sampled_from([each for each in files if each.stat().st_size]))
    content = bytearray(file.read_bytes())
    for position in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=3)):
        content[position] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2]))])
    report = PyarrowDatasetIO().verify(str(copy), "id")
    if len(file.read_bytes()) < len(content) and file.suffix == ".parquet":
        assert not report.ok


@pytest.mark.spark
@pytest.mark.slow
def test_spark_verifies_in_tasks(spark: SparkSession, path: Path) -> None:
    from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits

    io = SparkDatasetIO(spark, limits=SparkLimits(driver_max_target_bytes=0))
    io.write_dataset(numbers(3, 4, 5), str(path))
    (path / "bad.parquet").write_bytes(b"x")
    report = io.verify(str(path), "id")
    assert [finding.file for finding in report.errors] == [None, "bad.parquet"]
    assert "3 keys of id" in report.errors[0].what
