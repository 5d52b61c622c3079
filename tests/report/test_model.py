"""The model of a report: what it says of files, keys, commits, plans and results."""

from __future__ import annotations

import copy
import datetime as dt
import json
import pickle
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.report.datasets import decisions, model_of, named, paths_of, ranges

import fsspeckit
from fsspeckit.core.parquet import parse_layout, read_footer
from fsspeckit.core.parquet.format.pages import pages_of
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import CorruptRecordError, InvalidArgumentError
from fsspeckit.report import report_model
from fsspeckit.report.page import encode_model
from fsspeckit.storage import history, open_storage, staging
from fsspeckit.storage.commit.log import checksum_of
from fsspeckit.testing.object_stores import moto

if TYPE_CHECKING:
    from collections.abc import Sequence

IO = PyarrowDatasetIO()


def rows(ids: Sequence[int], v: str = "old") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [v] * len(ids)})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    return path


@pytest.fixture
def dataset(place: Path) -> Path:
    """Ten files of ten rows, with two row groups each, whose ranges do not overlap."""
    for number in range(10):
        ids = range(number * 100, number * 100 + 10)
        pq.write_table(rows(ids), place / f"part-{number}.parquet", row_group_size=5)
    return place


def model(path: Any, *keys: str, **options: Any) -> dict[str, Any]:
    """The model of a dataset, after it was written and read as a page does."""
    made = report_model(open_storage(path), keys or None, **options)
    found: dict[str, Any] = json.loads(encode_model(made))
    return found


def test_files_and_their_key_ranges(dataset: Path) -> None:
    found = model(dataset, "id")
    assert paths_of(found) == [f"part-{number}.parquet" for number in range(10)]
    assert ranges(found) == [(str(n * 100), str(n * 100 + 9)) for n in range(10)]
    assert found["axes"][0]["kind"] == "number"
    files, groups = found["files"], found["rowGroups"]
    assert files["rows"] == [10] * 10
    assert files["bytes"] == [path.stat().st_size for path in sorted(dataset.iterdir())]
    assert files["groups"] == [2] * 10
    assert files["overlaps"] == [0] * 10
    assert groups["rows"] == [5] * 20
    at = found["axes"][0]["at"]
    assert [at[low] for low in groups["low"][0][:3]] == [0, 5, 100]
    assert found["dataset"]["rows"] == 100
    assert found["dataset"]["filesOfOneKey"] == 1.0
    assert (found["commits"], found["pending"]) == ([], [])


def test_a_dataset_without_a_known_key_has_no_axis(dataset: Path) -> None:
    found = model(dataset)
    assert (found["axes"], found["files"]["overlaps"]) == ([], None)
    (check,) = found["checks"]
    assert check["outcome"] == "unknown"
    assert "the key is not known" in check["notes"][0]
    assert "--key" in check["notes"][0]


def test_overlaps_are_counted(place: Path) -> None:
    for name, ids in {"a": (0, 9), "b": (5, 20), "c": (20, 30), "d": (40, 41)}.items():
        pq.write_table(rows(ids), place / f"{name}.parquet")
    assert model(place, "id")["files"]["overlaps"] == [1, 2, 1, 0]


def test_files_overlap_on_several_keys_if_they_do_on_each(place: Path) -> None:
    for name, (a, b) in {
        "a": ((0, 9), (0, 9)),
        "b": ((5, 20), (0, 9)),
        "c": ((5, 20), (50, 60)),
    }.items():
        pq.write_table(pa.table({"x": a, "y": b}), place / f"{name}.parquet")
    found = model(place, "x", "y")
    assert [axis["column"] for axis in found["axes"]] == ["x", "y"]
    assert found["files"]["overlaps"] == [1, 1, 0]


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array([3, None, 1], pa.int64()), "number", ("1", "3")),
        (pa.array([2**60, 1]), "number", ("1", str(2**60))),
        (pa.array([2**64 - 1, 1], pa.uint64()), "number", ("1", str(2**64 - 1))),
        (pa.array([1.5, float("nan"), -0.5]), "number", ("-0.5", "1.5")),
        (pa.array([float("-inf"), float("inf")]), "number", ("-inf", "inf")),
        (pa.array([Decimal("1.50"), Decimal("-2.25")]), "number", ("-2.25", "1.50")),
        (
            pa.array([Decimal(10) ** 37, Decimal(1)], pa.decimal128(38, 0)),
            "number",
            ("1", str(10**37)),
        ),
        (
            pa.array([dt.date(1969, 12, 31), dt.date(2024, 1, 2)]),
            "time",
            ("1969-12-31", "2024-01-02"),
        ),
        (
            pa.array([dt.datetime(2024, 1, 2, 3, 4, 5, 6000)], pa.timestamp("us", "Europe/Berlin")),
            "time",
            ("2024-01-02 04:04:05.006000+0100", "2024-01-02 04:04:05.006000+0100"),
        ),
        (
            pa.array([1, 10**15], pa.timestamp("ns")),
            "time",
            ("1970-01-01 00:00:00.000000001", "1970-01-12 13:46:40.000000000"),
        ),
        (pa.array([dt.time(1, 2)]), "text", ("01:02:00", "01:02:00")),
        (pa.array(["b", "ä"]), "text", ("b", "ä")),
        (pa.array(["</script><!--", "z"]), "text", ("</script><!--", "z")),
        (pa.array([b"\x00\xff", b"\x01"]), "text", ("0x00ff", "0x01")),
        (pa.array([True, False]), "text", ("False", "True")),
        (pa.array(["a" * 200]), "text", ("a" * 79 + "…", "a" * 79 + "…")),
    ],
    ids=str,
)
def test_keys_of_every_type(
    place: Path, values: pa.Array, kind: str, expected: tuple[str, str]
) -> None:
    pq.write_table(pa.table({"k": values}), place / "a.parquet")
    found = model(place, "k")
    assert found["axes"][0]["kind"] == kind
    assert ranges(found) == [expected]
    if kind != "text":
        at = found["axes"][0]["at"]
        assert at == sorted(at)


def test_milliseconds_are_those_of_javascript(place: Path) -> None:
    moment = dt.datetime(2024, 1, 2, 3, 4, 5, 6789, dt.UTC)
    pq.write_table(pa.table({"t": pa.array([moment]), "d": [moment.date()]}), place / "a.parquet")
    time_axis, date_axis = model(place, "t", "d")["axes"]
    assert time_axis["at"] == [1704164645006]
    assert date_axis["at"] == [1704153600000]


def test_null_keys_are_counted_and_a_file_without_a_key_is_not_one_of_any(place: Path) -> None:
    pq.write_table(rows([1, 2]), place / "a.parquet")
    pq.write_table(
        pa.table({"id": pa.array([None, 3], pa.int64()), "v": ["x"] * 2}), place / "b.parquet"
    )
    pq.write_table(pa.table({"id": pa.array([None], pa.int64()), "v": ["x"]}), place / "c.parquet")
    pq.write_table(rows([9]), place / "d.parquet", write_statistics=False)
    pq.write_table(rows([]), place / "e.parquet")
    found = model(place, "id")
    assert ranges(found) == [("1", "2"), ("3", "3"), None, None, None]
    # The keys of d are not known; c has only NULL and e nothing, so they have none.
    assert found["axes"][0]["low"][2:] == found["axes"][0]["high"][2:] == [-2, -1, -2]
    assert found["axes"][0]["nulls"] == {"1": 1, "2": 1}
    assert found["files"]["overlaps"] == [0, 0, 0, None, 0]
    # The file of each key, and the one that may hold any.
    assert found["dataset"]["filesOfOneKey"] == 2.0


def test_nested_columns_are_described_and_cannot_be_keys(place: Path) -> None:
    table = pa.table(
        {"id": [1], "n": [[{"a": 1}]], "m": pa.array([[("k", 1)]], pa.map_("str", "int8"))}
    )
    pq.write_table(table, place / "a.parquet")
    found = model(place, "id")
    types = {column["name"]: column["type"] for column in found["dataset"]["columns"]}
    assert types["n"].startswith("list<")
    assert types["m"].startswith("map<")
    nested = model(place, "n")
    assert nested["axes"] == []
    assert nested["checks"][0]["outcome"] == "error"


def test_partitions(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    days = ["a/b", "</script>", None]
    IO.write_dataset(pa.table({"id": [1, 2, 3], "day": days}), path, partition_by=["day"])
    found = model(path, "day", "id")
    files = found["files"]
    assert found["dataset"]["partitionColumns"] == ["day"]
    assert [axis["column"] for axis in found["axes"]] == ["day", "id"]
    values = [files["partitions"][directory][0] for directory in files["directory"]]
    assert dict(zip(values, ranges(found, 1), strict=True)) == {
        "a/b": ("1", "1"),
        "</script>": ("2", "2"),
        None: ("3", "3"),
    }


def test_files_that_cannot_be_read_are_there(dataset: Path) -> None:
    (dataset / "part-3.parquet").write_bytes(b"PAR1 nothing PAR1")
    found = model(dataset, "id")
    assert list(found["files"]["errors"]) == ["3"]
    assert found["files"]["rows"][3] is None
    error = next(f for f in found["checks"][0]["findings"] if f["severity"] == "error")
    assert named(found, error["files"]) == ["part-3.parquet"]


def test_an_empty_dataset(place: Path) -> None:
    found = model(place)
    assert (found["files"]["name"], found["axes"]) == ([], [])
    assert found["dataset"]["rows"] == 0
    assert found["checks"][0]["findings"] == []


def test_a_dataset_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        report_model(open_storage(tmp_path / "nothing"))


def test_a_key_that_no_file_has_is_an_error(dataset: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="'other'"):
        report_model(open_storage(dataset), ["other"])


def test_a_damaged_record_is_an_error_that_names_it(dataset: Path) -> None:
    IO.merge(rows([5], "new"), str(dataset), "upsert", ["id"])
    (record,) = (dataset.parent / ".data.fsspeckit" / "commits").glob("*1.json")
    record.write_bytes(record.read_bytes()[:-30])
    with pytest.raises(CorruptRecordError, match=r"0000000001\.json"):
        report_model(open_storage(dataset))


def test_commits_say_what_they_did_to_which_files(dataset: Path) -> None:
    merged = IO.merge(rows([5, 5000], "new"), str(dataset), "upsert", ["id"])
    found = model(dataset)
    (commit,) = found["commits"]
    assert commit["counts"] == {"inserted": 1, "updated": 1}
    assert (commit["engine"], commit["strategy"], commit["keyColumns"]) == (
        "pyarrow",
        "upsert",
        ["id"],
    )
    assert (commit["sourceRows"], commit["state"]) == (2, "complete")
    assert named(found, commit["removed"]) == ["part-0.parquet"]
    new = [Path(path).name for path in merged.rewritten_files + merged.inserted_files]
    assert sorted(named(found, commit["added"])) == sorted(new)
    sizes = [(dataset / name).stat().st_size for name in new]
    assert commit["addedBytes"] == sum(sizes)
    detail = commit["detail"]
    assert detail["prunedBy"] == {"statistics": 9}
    assert detail["files"] == 10
    assert {"plan", "match", "rewrite", "insert"} <= detail["seconds"].keys()
    work = detail["rewrites"]
    paths = paths_of(found)
    assert [paths[number] for number in work["from"]] == ["part-0.parquet"]
    assert [paths[number] for number in work["to"]] == [Path(merged.rewritten_files[0]).name]
    metrics = next(iter(merged.metrics["rewrites"].values()))
    assert [work["methods"][number] for number in work["method"]] == [metrics["method"]]
    assert work["rowGroupsCopied"] == [metrics["row_groups_copied"]] == [1]
    assert work["columnsEncoded"] == [1]
    assert (work["columnNames"], work["columns"], work["groups"]) == (["v"], [[0]], [[1]])
    # The commit of each file that is there; the others were there before any commit.
    assert sorted(n or 0 for n in found["files"]["commit"]) == [0] * 9 + [1, 1]


def pages_in(path: Path) -> int:
    """The pages of a file, found by their headers."""
    data = path.read_bytes()

    def read(start: int, length: int) -> bytes:
        return data[start : start + length]

    layout = parse_layout(read_footer(read, len(data)), len(data), read)
    chunks = [chunk for group in layout.groups for chunk in group.chunks]
    return sum(1 for chunk in chunks for _ in pages_of(chunk, read))


def chunks_of(path: Path) -> dict[tuple[int, str], bytes]:
    """The bytes of each column chunk."""
    data, metadata = path.read_bytes(), pq.read_metadata(path)
    found = {}
    for group in range(metadata.num_row_groups):
        for leaf in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(leaf)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            found[group, chunk.path_in_schema] = data[start : start + chunk.total_compressed_size]
    return found


def test_what_was_encoded_is_what_has_other_bytes(place: Path) -> None:
    count = 40_000
    table = pa.table(
        {
            "id": range(count),
            "price": np.random.default_rng(0).random(count),
            "state": ["open", "paid"] * (count // 2),
        }
    )
    old = place / "a.parquet"
    pq.write_table(table, old, row_group_size=10_000, data_page_size=4_000)
    changes = table.slice(12_345, 2).set_column(1, "price", pa.array([-1.0, -2.0]))
    before = chunks_of(old)
    result = IO.merge(changes, str(place), "upsert", ["id"])
    new = Path(result.rewritten_files[0])
    found = model_of(result.to_html())
    after = chunks_of(new)
    changed = {key for key, data in after.items() if data != before[key]}
    for work in (found["change"]["rewrites"], found["commits"][0]["detail"]["rewrites"]):
        (groups,), (columns,) = work["groups"], work["columns"]
        names = [work["columnNames"][position] for position in columns]
        assert changed == {(group, name) for group in groups for name in names} == {(1, "price")}
        (encoded,), (copied,) = work["pagesEncoded"], work["pagesCopied"]
        assert encoded + copied == pages_in(new)
        assert copied > encoded >= 1
        assert work["bytesEncoded"] == [len(after[1, "price"])]
        assert work["bytesCopied"] == [sum(map(len, after.values())) - len(after[1, "price"])]


def test_a_file_that_was_rewritten_as_a_whole_is_encoded(dataset: Path) -> None:
    result = IO.merge_parquet_dataset(
        rows([1], "new"), str(dataset), ["id"], strategy="update", rewrite_mode="full"
    )
    found = model_of(result.to_html())
    size = {path.name: path.stat().st_size for path in dataset.iterdir()}
    for work in (found["change"]["rewrites"], found["commits"][0]["detail"]["rewrites"]):
        assert (work["methods"], len(work["method"])) == (["full"], 10)
        for number in range(10):
            name = paths_of(found)[work["to"][number]]
            assert (work["bytesEncoded"][number], work["bytesCopied"][number]) == (size[name], 0)
        assert (work["groups"], work["columns"]) == (None, None)


def test_records_of_older_versions_name_no_columns(dataset: Path) -> None:
    IO.merge(rows([5], "new"), str(dataset), "upsert", ["id"])
    (record,) = (dataset.parent / ".data.fsspeckit" / "commits").glob("*1.json")
    changed = json.loads(record.read_text())
    details = changed["details"]
    del details["columns"]
    details["rewrites"] = {key: values[:7] for key, values in details["rewrites"].items()}
    changed.pop("checksum")
    record.write_text(json.dumps({**changed, "checksum": checksum_of(changed)}))
    work = model(dataset)["commits"][0]["detail"]["rewrites"]
    assert work["columnsEncoded"] == [1]
    assert (work["groups"], work["columns"], work["pagesEncoded"]) == (None, None, None)


def test_records_of_older_versions_have_no_detail(dataset: Path) -> None:
    IO.write_dataset(rows([7000]), str(dataset))
    (commit,) = model(dataset, "id")["commits"]
    assert commit["detail"] is None


def test_a_file_that_lost_all_rows(dataset: Path) -> None:
    result = IO.delete(rows(range(10)).select(["id"]), str(dataset), ["id"])
    found = model_of(result.to_html())
    assert named(found, found["change"]["removed"]) == ["part-0.parquet"]
    assert found["change"]["rewrites"]["to"] == [None]
    rewrites = found["commits"][0]["detail"]["rewrites"]
    assert (rewrites["methods"], rewrites["method"]) == (["removed"], [0])
    assert rewrites["to"] == [None]


def test_older_commits_are_left_out_for_the_size(dataset: Path) -> None:
    for number in range(3):
        IO.merge(rows([5], f"new {number}"), str(dataset), "upsert", ["id"])
    from fsspeckit.report.model import Limits

    found = model(dataset, limits=Limits(commits=2, numbers=3, row_groups=5))
    assert [commit["number"] for commit in found["commits"]] == [2, 3]
    assert found["commitsLeftOut"] == 1
    assert [commit["added"] is None for commit in found["commits"]] == [True, False]
    assert found["rowGroups"] is None
    assert len(found["notes"]) == 2
    assert ranges(found) == ranges(model(dataset))


def test_a_plan(dataset: Path) -> None:
    plan = IO.plan_merge(rows([101, 105, 5000], "new"), str(dataset), "upsert", ["id"])
    found = model_of(plan.to_html())
    assert found["view"] == "change"
    change = found["change"]
    assert (change["kind"], change["sourceRows"]) == ("plan", 3)
    by_file = decisions(found)
    assert by_file.pop("part-1.parquet") == ("affected", "key scan")
    assert set(by_file.values()) == {("pruned", "statistics")}
    assert change["groups"] == {"1": [0, 1]}
    texts = [evidence["text"] for evidence in change["evidences"]]
    assert "statistics of id: 0 to 9" in texts
    assert ranges(found)[1] == ("100", "109")


def test_a_plan_of_a_condition_and_of_columns(dataset: Path) -> None:
    plan = IO.plan_delete(None, str(dataset), where="id < 3")
    change = model_of(plan.to_html())["change"]
    assert change["where"] == "id < 3"
    evolved = model_of(IO.plan_evolve(str(dataset), add={"n": pa.int8()}).to_html())["change"]
    assert set(evolved["decision"]) == {0}
    assert "'n' added as int8" in evolved["notes"][0]


def test_a_plan_from_another_process_shows_what_it_has(dataset: Path) -> None:
    plan = pickle.loads(pickle.dumps(IO.plan_merge(rows([101]), str(dataset), "upsert", ["id"])))
    found = model_of(plan.to_html())
    assert decisions(found)["part-1.parquet"] == ("affected", "key scan")
    assert (found["axes"], found["commits"]) == ([], [])
    assert "does not know its dataset" in found["notes"][0]


def test_a_plan_for_files_that_have_changed_says_so(dataset: Path) -> None:
    plan = IO.plan_merge(rows([101], "new"), str(dataset), "upsert", ["id"])
    IO.write_dataset(rows([9000]), str(dataset))
    found = model_of(plan.to_html())
    assert [found["change"]["decision"].count(None), len(found["notes"])] == [1, 1]


def test_a_result(dataset: Path) -> None:
    result = IO.merge(rows([101, 5000], "new"), str(dataset), "upsert", ["id"])
    found = model_of(result.to_html())
    by_file = decisions(found)
    assert by_file.pop(Path(result.rewritten_files[0]).name) == ("rewritten", "key scan")
    assert by_file.pop(Path(result.inserted_files[0]).name) == ("added", None)
    assert set(by_file.values()) == {("pruned", "statistics")}
    change = found["change"]
    assert (change["kind"], change["commit"]) == ("result", 1)
    assert change["counts"] == {"inserted": 1, "updated": 1}
    paths = paths_of(found)
    assert [paths[n] for n in change["rewrites"]["from"]] == ["part-1.parquet"]
    assert "row groups change" in change["rewrites"]["reason"][0]


def test_a_result_of_which_no_value_changed(dataset: Path) -> None:
    result = IO.merge(rows([101]), str(dataset), "update", ["id"])
    found = model_of(result.to_html())
    assert decisions(found)["part-1.parquet"][0] == "unchanged"
    assert (found["change"]["commit"], found["change"]["rewrites"]["from"]) == (None, [])


def test_a_skipped_transaction(dataset: Path) -> None:
    transaction = fsspeckit.Transaction("feed", 1)
    for _ in range(2):
        result = IO.merge(
            rows([101], "new"), str(dataset), "upsert", ["id"], transaction=transaction
        )
    found = model_of(result.to_html())
    assert "skipped" in found["change"]["notes"][0]
    assert found["commits"][0]["transaction"] == "feed:1"


def test_copies_of_results_travel_without_their_dataset(dataset: Path) -> None:
    result = IO.merge(rows([101], "new"), str(dataset), "upsert", ["id"])
    assert copy.deepcopy(result).to_html()
    there = pickle.loads(pickle.dumps(result))
    assert there == result
    with pytest.raises(InvalidArgumentError, match="does not know its dataset"):
        there.to_html()
    entries = history(dataset)
    assert pickle.loads(pickle.dumps(entries)) == entries
    with pytest.raises(InvalidArgumentError, match="does not know its dataset"):
        pickle.loads(pickle.dumps(entries)).to_html()


def test_what_a_page_needs_is_not_in_the_dictionary(dataset: Path) -> None:
    result = IO.merge(rows([101], "new"), str(dataset), "upsert", ["id"])
    assert "origin" not in result.to_dict()
    assert "record" not in history(dataset).to_dict()["commits"][0]
    assert "origin" not in repr(result)


def test_other_results_open_with_the_commits(dataset: Path) -> None:
    path = str(dataset)
    results: list[Any] = [
        IO.write_dataset(rows([7000]), path),
        IO.evolve(path, add={"n": pa.int8()}),
        IO.compact(path),
        IO.repartition(path, "v"),
    ]
    for number, result in enumerate(results):
        found = model_of(result.to_html())
        assert (found["view"], found["change"], len(found["commits"])) == ("history", None, 4)
        there = pickle.loads(pickle.dumps(result))
        assert there == result
        assert "origin" not in result.to_dict()
        assert found["commits"][number]["addedFiles"] > 0


def test_a_history(dataset: Path) -> None:
    IO.merge(rows([101], "new"), str(dataset), "upsert", ["id"])
    found = model_of(history(dataset).to_html())
    assert (found["view"], len(found["commits"])) == ("history", 1)


def test_what_an_interrupted_writer_has_left(dataset: Path) -> None:
    IO.merge(rows([101], "new"), str(dataset), "upsert", ["id"])
    (dataset.parent / ".data.fsspeckit" / "commits" / "0000000001.done.json").unlink()
    storage = open_storage(dataset)
    with staging(storage):
        found = model(dataset)
    assert found["pending"] == [1]
    assert found["commits"][0]["state"] == "pending"
    whats = [finding["what"] for finding in found["checks"][0]["findings"]]
    assert "commit 1 is not complete." in whats


def test_an_incomplete_commit_of_a_dataset_whose_key_is_not_known(dataset: Path) -> None:
    IO.write_dataset(rows([7000]), str(dataset))
    (dataset.parent / ".data.fsspeckit" / "commits" / "0000000001.done.json").unlink()
    (check,) = model(dataset)["checks"]
    (finding,) = check["findings"]
    assert (check["outcome"], finding["severity"]) == ("warning", "warning")
    assert (finding["what"], finding["advice"]) == ("commit 1 is not complete.", "call recover().")


def test_what_forbids_to_merge_a_dataset_whose_key_is_not_known(dataset: Path) -> None:
    (dataset / "_delta_log").mkdir()
    (dataset / "_delta_log" / "00000000000000000000.json").write_text("{}")
    (check,) = model(dataset)["checks"]
    (finding,) = check["findings"]
    assert (check["title"], check["outcome"]) == ("Merges would be refused", "error")
    assert "Delta" in finding["what"]
    assert finding["advice"]


def test_a_staging_directory_that_nobody_owns_any_more(dataset: Path) -> None:
    program = (
        "import os, sys, fsspeckit.storage as s\n"
        "stage = s.create_stage(s.open_storage(sys.argv[1]))\n"
        "open(stage.new_file().path, 'wb').write(b'x' * 2000)\n"
        "os._exit(0)\n"
    )
    IO.merge(rows([101], "new"), str(dataset), "upsert", ["id"])
    subprocess.run([sys.executable, "-c", program, str(dataset)], check=True)
    check = model(dataset)["checks"][0]
    (finding,) = check["findings"]
    assert (check["outcome"], finding["severity"]) == ("warning", "warning")
    assert finding["what"] == "a writer that is gone has left 1 staged file of 2.0 kB."
    assert finding["where"].startswith(".staging_")


def test_findings_of_a_verification(dataset: Path) -> None:
    shutil.copy(dataset / "part-1.parquet", dataset / "twice.parquet")
    report = IO.verify(str(dataset), ["id"])
    found = model(dataset, "id", verified=report)
    check = found["checks"][1]
    assert (check["kind"], check["outcome"]) == ("verify", "error")
    assert check["findings"][0]["advice"]


def test_nothing_is_written(dataset: Path) -> None:
    IO.merge(rows([101], "new"), str(dataset), "upsert", ["id"])
    before = {path: path.stat().st_mtime_ns for path in dataset.parent.rglob("*")}
    model(dataset, live=True)
    assert {path: path.stat().st_mtime_ns for path in dataset.parent.rglob("*")} == before


@pytest.mark.slow
def test_an_object_store() -> None:
    path = f"s3://{moto().make_bucket()}/lake/data"
    with PyarrowDatasetIO(storage_options=moto().options) as engine:
        engine.write_dataset(rows(range(20)), path, max_rows_per_file=5)
        result = engine.merge(rows([7], "new"), path, "upsert", ["id"])
        found = model_of(result.to_html())
    assert len(found["files"]["name"]) == 4
    assert sorted(str(decision) for decision, _ in decisions(found).values()) == [
        *("pruned", "pruned", "pruned", "rewritten")
    ]
    storage = open_storage(path, storage_options=moto().options)
    live = report_model(storage, live=True)["live"]
    assert (live["writers"], live["generation"]) == ([], "2")
    assert "local disks only" in live["notes"][0]
