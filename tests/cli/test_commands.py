"""Every command through the runner: what it does, its text, and its JSON against the schema."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.running import content, rows, tree

from fsspeckit.cli.options import EngineName
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.registry import ENGINES
from fsspeckit.storage import Retention
from fsspeckit.storage.history import history

if TYPE_CHECKING:
    from tests.cli.running import Run

PYARROW = ("--engine", "pyarrow")


@pytest.mark.parametrize("engine", ["pyarrow", "duckdb"])
def test_merge(done: Run, dataset: Path, source: Path, engine: str) -> None:
    ran = done("merge", source, dataset, "--key", "id", "--engine", engine)
    assert "upsert of 2 rows" in ran.out
    assert "1 matched, 1 inserted, 0 deleted" in ran.out
    assert "1 rewritten, 1 new, 2 untouched" in ran.out
    assert ran.err == ""
    assert content(dataset)[101]["v"] == content(dataset)[999]["v"] == "new"
    assert [entry.engine for entry in history(dataset)] == [engine]


@pytest.mark.spark
def test_merge_with_the_default_engine(done: Run, spark: Any, dataset: Path, source: Path) -> None:
    document = done("merge", source, dataset, "--key", "id", "--json").document
    assert (document["updated"], document["inserted"]) == (1, 1)
    assert [entry.engine for entry in history(dataset)] == ["spark"]


def test_merge_as_json(done: Run, dataset: Path, source: Path) -> None:
    document = done("merge", source, dataset, "-k", "id", *PYARROW, "--json").document
    assert document["kind"] == "merge"
    assert document["commit"] == 1
    assert sorted(file["operation"] for file in document["files"]) == [
        *("inserted", "preserved", "preserved", "rewritten")
    ]
    again = done("merge", source, dataset, "-k", "id", *PYARROW, "--json").document
    assert again["commit"] is None


def test_new_rows_join_a_small_file(done: Run, dataset: Path) -> None:
    pq.write_table(rows(101, 888, v="new"), "both.parquet")
    done("merge", "both.parquet", dataset, "-k", "id", *PYARROW, "--target-size", "1MiB")
    assert len(list(dataset.glob("*.parquet"))) == 3
    assert content(dataset)[888]["v"] == "new"


@pytest.mark.parametrize(
    "command", [("merge",), ("apply", "--sequence-by", "id")], ids=["merge", "apply"]
)
def test_small_files_are_kept_few(done: Run, dataset: Path, command: tuple[str, ...]) -> None:
    words = ("--key", "id", *PYARROW)
    for number in range(13):
        pq.write_table(rows(1000 + number), "new.parquet")
        ran = done(*command, "new.parquet", dataset, *words, "--auto-compact")
    assert "compacted" in ran.out
    assert len(list(dataset.glob("*.parquet"))) == 1
    assert {1000, 1012} <= content(dataset).keys()


def test_merge_that_changes_nothing(done: Run, dataset: Path) -> None:
    pq.write_table(rows(1), "same.parquet")
    ran = done("merge", "same.parquet", dataset, "-k", "id", *PYARROW)
    assert "none: nothing changed" in ran.out


def test_merge_creates_a_partitioned_dataset(done: Run, source: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    done("merge", source, new, "-k", "id", "--partition-by", "v", *PYARROW)
    assert [path.name for path in new.iterdir()] == ["v=new"]


def test_options_reach_the_library(done: Run, dataset: Path, tmp_path: Path) -> None:
    table = pa.table({"id": [1, 1, 2, None], "v": ["a", "b", "c", "d"]})
    pq.write_table(table, "odd.parquet")
    done(
        *("merge", "odd.parquet", dataset, "-k", "id", "--strategy", "upsert", *PYARROW),
        *("--duplicates", "last", "--nulls", "match", "--compression", "ZSTD", "--bloom", "id"),
        *("--max-rows-per-file", 1, "--row-group-size", 1, "--control-dir", tmp_path / "control"),
    )
    found = content(dataset)
    assert (found[1]["v"], found[2]["v"], found[None]["v"]) == ("b", "c", "d")
    assert (tmp_path / "control").is_dir()
    (new,) = (
        set(dataset.glob("*.parquet"))
        - set(dataset.glob("part-?-*.parquet"))
        - {dataset / f"part-{number}.parquet" for number in range(3)}
    )
    column = pq.ParquetFile(new).metadata.row_group(0).column(0)
    assert column.compression == "ZSTD"
    assert column.bloom_filter_offset is not None


def test_order_by_keeps_the_greatest(done: Run, dataset: Path) -> None:
    pq.write_table(pa.table({"id": [1, 1], "v": ["z", "a"]}), "two.parquet")
    done("merge", "two.parquet", dataset, "-k", "id", "--order-by", "v", *PYARROW)
    assert content(dataset)[1]["v"] == "z"


@pytest.mark.parametrize("words", [("plan",), ("merge", "--dry-run")])
def test_plan(done: Run, dataset: Path, source: Path, words: tuple[str, ...]) -> None:
    before = tree(dataset)
    ran = done(*words, source, dataset, "--key", "id", *PYARROW)
    lines = ran.out.splitlines()
    assert lines[0] == f"upsert of 2 rows into {dataset} by id"
    assert lines[1].startswith("3 files: 1 affected, 2 pruned; ")
    (affected,) = [line for line in lines if line.startswith("affected")]
    assert affected.split()[1] == "part-1.parquet"
    assert affected.endswith("key scan")
    (pruned,) = [line for line in lines if "part-0.parquet" in line]
    assert pruned.endswith("statistics of id: 0 to 2")
    assert tree(dataset) == before
    assert not list(dataset.parent.glob(".data.fsspeckit/*"))


def test_plan_as_json(done: Run, dataset: Path, source: Path) -> None:
    document = done("plan", source, dataset, "--key", "id", *PYARROW, "--json").document
    assert {file["evidence"]["kind"] for file in document["files"]} == {"key scan", "statistics"}
    assert document["affected_files"] == 1
    assert document["source_rows"] == 2


def test_a_transaction_is_merged_once(done: Run, dataset: Path, source: Path) -> None:
    words = (source, dataset, "-k", "id", *PYARROW, "--transaction", "team:orders:17")
    assert done("merge", *words, "--json").document["skipped"] is False
    before = tree(dataset)
    again = done("merge", *words)
    assert "commit   none: skipped" in again.out
    assert "note     skipped: transaction team:orders:17 is commit 1" in again.out
    document = done("merge", *words, "--json").document
    assert (document["skipped"], document["commit"], document["inserted"]) == (True, None, 1)
    assert "would be skipped: transaction team:orders:17" in done("plan", *words).out
    assert len(done("plan", *words, "--json").document["notes"]) == 1
    assert tree(dataset) == before


def test_a_transaction_is_written_once(done: Run, dataset: Path, source: Path) -> None:
    words = (source, dataset, *PYARROW, "--transaction", "orders:17")
    assert done("write", *words, "--json").document["skipped"] is False
    before = tree(dataset)
    assert "skipped: transaction orders:17 is commit 1" in done("write", *words).out
    assert done("write", *words, "--json").document["notes"]
    assert tree(dataset) == before
    assert "orders:17" in done("history", dataset).out
    (commit,) = done("history", dataset, "--json").document["commits"]
    assert commit["transaction"] == {"application": "orders", "version": 17, "run": None}


def test_a_counter_that_starts_again(run: Run, done: Run, dataset: Path, source: Path) -> None:
    words = ("write", source, dataset, *PYARROW, "--transaction")
    done(*words, "orders:17")
    ran = run(*words, "orders:0")
    assert ran.code == 1
    assert "commit 1 has recorded version 17" in ran.err
    assert "If 'fsspeckit history' shows" in ran.err


def test_delete_by_key(done: Run, dataset: Path, tmp_path: Path) -> None:
    keys = tmp_path / "gone.csv"
    keys.write_text("id\n101\n12345\n")
    words = ("delete", dataset, "--key", "id", "--from", keys, *PYARROW)
    assert "delete of 2 rows from" in done(*words, "--dry-run").out
    assert 101 in content(dataset)
    ran = done(*words)
    assert "0 matched, 0 inserted, 1 deleted, 1 not found" in ran.out
    assert 101 not in content(dataset)


def test_delete_by_the_keys_of_a_parquet_file(done: Run, dataset: Path, source: Path) -> None:
    ran = done("delete", dataset, "--key", "id", "--from", source, *PYARROW)
    assert "1 deleted, 1 not found" in ran.out
    assert 101 not in content(dataset)


def test_delete_by_a_condition(done: Run, dataset: Path) -> None:
    where = ("--where", "id = 101 OR id = 102")
    assert f"where {where[1]}" in done("delete", dataset, *where, *PYARROW, "--dry-run").out
    document = done("delete", dataset, *where, *PYARROW, "--purge", "--json").document
    assert (document["strategy"], document["deleted"], document["not_found"]) == ("delete", 2, 0)
    assert done("history", dataset, "--json").document["commits"][-1]["purged"]


def test_evolve(done: Run, dataset: Path) -> None:
    words = ("evolve", dataset, "--add", "price=decimal(9, 2)", "--rename", "v=name", *PYARROW)
    plan = done(*words, "--dry-run").out
    assert "column 'price' added as decimal128(9, 2)" in plan
    assert "3 files: 3 affected" in plan
    assert "price" not in content(dataset)[101]
    ran = done(*words, "--required", "id", "--order", "price", "--widen", "id=int64")
    assert "'v' renamed to 'name'" in ran.out
    assert "3 of 3 files rewritten" in ran.out
    assert list(content(dataset)[101]) == ["price", "id", "name"]
    document = done("evolve", dataset, "--drop", "price", *PYARROW, "--json").document
    assert [column["name"] for column in document["columns"]] == ["id", "name"]
    assert document["changes"][0]["kind"] == "dropped"
    commits = done("history", dataset, "--json").document["commits"]
    assert commits[-1]["schema_changes"] == ["'price' dropped"]
    assert "nothing changed" in done("evolve", dataset, *PYARROW).out


def test_a_plan_of_an_evolution_over_a_limit_fails(run: Run, dataset: Path) -> None:
    words = ("evolve", dataset, "--add", "price=double", "--max-rewrite-bytes", "1")
    for extra in ((), ("--dry-run",)):
        ran = run(*words, *extra, *PYARROW)
        assert (ran.code, "--max-rewrite-bytes" in ran.err) == (1, True)


@pytest.mark.parametrize("command", ["merge", "write"])
def test_text_with_new_columns(done: Run, run: Run, dataset: Path, command: str) -> None:
    Path("more.csv").write_text("id,v,note\n12345,new,hello\n")
    words = (command, "more.csv", dataset, *(("-k", "id") if command == "merge" else ()), *PYARROW)
    assert "'note'" in run(*words).err
    assert "note" in done(*words, "--schema-changes", "add").out
    assert content(dataset)[12345] == {"id": 12345, "v": "new", "note": "hello"}


@pytest.mark.parametrize("words", [(), ("--key", "id"), ("--key", "id", "--where", "id = 1")])
def test_delete_takes_keys_or_a_condition(run: Run, dataset: Path, words: tuple[str, ...]) -> None:
    before = tree(dataset)
    ran = run("delete", dataset, *words, *PYARROW)
    assert ran.code == 2
    assert "--where" in ran.err
    assert tree(dataset) == before


def test_deduplicate(done: Run, run: Run, dataset: Path) -> None:
    pq.write_table(rows(101, 102, v="again"), dataset / "part-9.parquet")
    refused = run("deduplicate", dataset, "--key", "id", *PYARROW)
    assert refused.code == 1
    assert "2 row(s) have the same ['id'] as another row and other values" in refused.err
    assert "hint: pass --order-by COLUMN to keep the greatest, or --keep first" in refused.err
    words = ("deduplicate", dataset, "--key", "id", "--keep", "last", *PYARROW)
    plan = done(*words, "--dry-run")
    assert f"deduplicate {dataset} by id" in plan.out
    before = tree(dataset)
    assert "deduplicate in" in (text := done(*words).out)
    assert "0 matched, 0 inserted, 2 deleted" in text
    assert content(dataset)[101]["v"] == "again"
    assert tree(dataset) != before
    document = done("deduplicate", dataset, *PYARROW, "--json").document
    assert (document["strategy"], document["deleted"]) == ("deduplicate_target", 0)


def test_repartition(done: Run, run: Run, dataset: Path) -> None:
    before = tree(dataset)
    assert run("repartition", dataset, *PYARROW).code == 2
    words = ("repartition", dataset, "--partition-by", "v", *PYARROW)
    assert "from no partitions to v: would replace 3 files" in done(*words, "--dry-run").out
    assert tree(dataset) == before
    assert "1 file of" in done(*words).out
    assert "nothing to do" in done(*words).out
    document = done("repartition", dataset, "--no-partitions", *PYARROW, "--json").document
    assert (document["partition_columns_before"], document["partition_columns"]) == (["v"], [])
    assert (document["total_rows"], document["replaced_files"], document["commit"]) == (9, 1, 2)
    assert sorted(content(dataset)) == sorted([*range(3), *range(100, 103), *range(200, 203)])


def test_rows_that_change_their_partition(done: Run, run: Run, tmp_path: Path) -> None:
    new = tmp_path / "new"
    pq.write_table(pa.table({"id": [1, 2], "p": ["a", "b"]}), "first.parquet")
    pq.write_table(pa.table({"id": [1], "p": ["b"]}), "second.parquet")
    done("write", "first.parquet", new, "--partition-by", "p", *PYARROW)
    words = ("merge", "second.parquet", new, "--key", "id", *PYARROW)
    refused = run(*words)
    assert refused.code == 1
    assert "hint: pass --partition-change move to move these rows" in refused.err
    contradiction = run(*words, "--partition-change", "move", "--trust-partitions")
    assert "error: --partition-change move looks for keys in every partition, and" in (
        contradiction.err
    )
    plan = done(*words, "--partition-change", "move", "--dry-run", "--json").document
    assert plan["affected_files"] == 1
    ran = done(*words, "--partition-change", "move")
    assert "1 matched (1 to another partition), 0 inserted, 0 deleted" in ran.out
    again = done(*words, "--partition-change", "move", "--json").document
    assert (again["updated"], again["moved"]) == (1, 0)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_rows_of_text_that_delete(done: Run, dataset: Path, tmp_path: Path, kind: str) -> None:
    row = {**content(dataset)[101], "gone": True}
    path = tmp_path / f"changes.{kind}"
    text = json.dumps(row, default=str)
    if kind == "csv":
        values = ("true" if value is True else str(value) for value in row.values())
        text = ",".join(row) + "\n" + ",".join(values)
    path.write_text(text + "\n")
    words = ("--key", "id", "--delete-when", "gone", "--only-newer", "id", *PYARROW)
    assert "1 late" in done("merge", path, dataset, *words).out
    ran = done("merge", path, dataset, "--key", "id", "--delete-when", "gone", *PYARROW)
    assert "1 deleted" in ran.out
    assert 101 not in content(dataset)


FEED = ("--key", "id", "--sequence-by", "seq", "--apply-as-deletes", "op = 'd'")
CHANGES = {
    "csv": "id,v,seq,op\n1,a,1,c\n2,b,2,c\n1,,3,d\n",
    "json": """{"id": 1, "v": "a", "seq": 1, "op": "c"}
{"id": 2, "v": "b", "seq": 2, "op": "c"}
{"id": 1, "v": null, "seq": 3, "op": "d"}
""",
}
LATE = {
    "csv": "op,seq,id,v\nu,2,1,late\nu,5,2,B\n",
    "json": """{"id": 1, "v": "late", "seq": 2, "op": "u"}
{"id": 2, "v": "B", "seq": 5, "op": "u"}
""",
}


@pytest.mark.parametrize("engine", ["pyarrow", "duckdb"])
@pytest.mark.parametrize("kind", CHANGES)
def test_apply(done: Run, tmp_path: Path, kind: str, engine: str) -> None:
    new = tmp_path / "people"
    words = (*FEED, "--except-column", "op", "--engine", engine)
    for name, text in (("first", CHANGES[kind]), ("late", LATE[kind])):
        (tmp_path / f"{name}.{kind}").write_text(text)
    ran = done("apply", f"first.{kind}", new, *words)
    assert "apply_changes of 3 rows into" in ran.out
    assert "1 inserted, 0 deleted, 1 not found" in ran.out
    assert "id int64, v string, seq int64, op string" in ran.err
    planned = done("apply", f"late.{kind}", new, *words, "--dry-run").out
    assert planned.startswith(f"apply_changes of 1 row into {new} by id\n1 file: 1 affected")
    ran = done("apply", f"late.{kind}", new, *words)
    assert "1 matched, 0 inserted, 0 deleted, 1 late" in ran.out
    assert ran.err == "note: the types of the columns were inferred from their values: op string\n"
    assert content(new) == {2: {"id": 2, "v": "B", "seq": 5}}
    commits = done("history", new, "--json").document["commits"]
    assert [commit["tombstones"] for commit in commits] == [1, None]
    assert [commit["tombstone_seconds"] for commit in commits] == [7 * 86400, None]
    header, first, _ = done("history", new).out.splitlines()
    assert (header.split()[-1], first.split()[-1]) == ("tombstones", "1")


@pytest.mark.parametrize("kind", CHANGES)
def test_apply_keeps_versions(done: Run, tmp_path: Path, kind: str) -> None:
    words = (*FEED, "--column", "id", "--column", "v", "--scd-type", 2, *PYARROW)
    for name, text in (("first", CHANGES[kind]), ("late", LATE[kind])):
        (tmp_path / f"{name}.{kind}").write_text(text)
        ran = done("apply", f"{name}.{kind}", "people", *words)
    assert ran.err.endswith("values: op string\n")  # seq has the type of __START_AT
    found = PyarrowDatasetIO().read_dataset("people").to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [
        *((1, "a", 1, 2), (1, "late", 2, 3), (2, "B", 5, None), (2, "b", 2, 5))
    ]


def test_apply_with_every_option(done: Run, tmp_path: Path) -> None:
    (tmp_path / "first.csv").write_text(CHANGES["csv"])
    words = ("apply", "first.csv", "people", *FEED, *PYARROW)
    files = ("--partition-by", "op", "--compression", "zstd", "--bloom", "id", "--key-index")
    batch = ("--transaction", "people:1", "--tombstone-retention", "12h", "--quiet")
    ran = done(*words, *files, *batch, "--json")
    assert (ran.document["inserted"], ran.document["skipped"], ran.err) == (1, False, "")
    assert [path.name for path in (tmp_path / "people").iterdir()] == ["op=c"]
    (commit,) = done("history", "people", "--json").document["commits"]
    assert (commit["tombstones"], commit["tombstone_seconds"]) == (1, 12 * 3600)
    assert done(*words, *batch, "--json").document["skipped"] is True


def test_apply_from_stdin(run: Run, done: Run) -> None:
    words = ("apply", "-", "people", *FEED, "--except-column", "op", *PYARROW)
    done(*words, stdin=CHANGES["json"].encode())
    assert "stdin is empty, so the columns of the changes are unknown" in run(*words, stdin=b"").err
    done(*words, "--format", "csv", stdin=b"id,v,seq,op\n")
    assert content(Path("people")) == {2: {"id": 2, "v": "b", "seq": 2}}


def test_apply_has_a_rewrite_limit(run: Run, done: Run, tmp_path: Path) -> None:
    (tmp_path / "first.csv").write_text(CHANGES["csv"])
    (tmp_path / "late.csv").write_text(LATE["csv"])
    words = (*FEED, "--except-column", "op", *PYARROW)
    done("apply", "first.csv", "people", *words)
    ran = run("apply", "late.csv", "people", *words, "--max-rewrite-fraction", "0.5", "-q")
    assert ran.err.startswith("error: the change feed may rewrite 1 of the target's bytes")
    assert "or apply fewer changes at a time" in ran.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--column", "id"), "--sequence-by column 'seq' must be stored"),
        (("--column", "id", "--except-column", "v"), "--column and --except-column cannot be"),
        (("--except-column", "nope"), "--except-column ['nope'] not found"),
        (("--apply-as-deletes", "oop = 1"), "--apply-as-deletes 'oop = 1': there is no column"),
        (("--scd-type", "2"), "it keeps no versions. hint: pass --scd-type 1,"),
        (("--sequence-by", "nope"), "--sequence-by ['nope'] not found"),
        (("--key", "nope"), "--key ['nope'] not found"),
    ],
)
def test_apply_speaks_of_options(
    run: Run, done: Run, tmp_path: Path, words: tuple[str, ...], text: str
) -> None:
    (tmp_path / "first.csv").write_text(CHANGES["csv"])
    done("apply", "first.csv", "people", *FEED, *PYARROW)
    ran = run("apply", "first.csv", "people", *FEED, *PYARROW, *words)
    assert ran.code == 1
    assert text in " ".join(ran.err.split())


def test_versions_are_not_mixed_with_last_rows(run: Run, done: Run, tmp_path: Path) -> None:
    (tmp_path / "first.csv").write_text(CHANGES["csv"])
    words = ("apply", "first.csv", "people", *FEED, *PYARROW, "--except-column", "op")
    done(*words, "--except-column", "seq", "--scd-type", 2)
    ran = run(*words)
    assert "has a column '__START_AT' and no 'seq': it keeps versions" in ran.err
    assert "hint: pass --scd-type 2" in ran.err


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_text_that_lacks_what_an_option_names(
    run: Run, dataset: Path, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / f"rows.{kind}"
    path.write_text("id,v\n1,x\n" if kind == "csv" else '{"id": 1, "v": "x"}\n')
    ran = run("merge", path, dataset, "--key", "id", "--delete-when", "gone", *PYARROW)
    assert "--delete-when ['gone'] not found. Available columns: ['id', 'v']" in ran.err
    path.write_text("id\n1\n" if kind == "csv" else '{"id": 1}\n')
    ran = run("delete", dataset, "--key", "nope", "--from", path, *PYARROW)
    assert "--key ['nope'] not found. Available columns: ['id', 'v']" in ran.err


def test_the_limit_of_a_deletion(run: Run, dataset: Path, source: Path) -> None:
    words = ("--key", "id", "--from", source, "--max-rewrite-fraction", "0", *PYARROW)
    ran = run("delete", dataset, *words)
    assert ran.err.startswith("error: the deletion may rewrite")
    assert "or delete fewer rows at a time" in ran.err


def test_plan_of_an_insert_has_no_limit(done: Run, dataset: Path, source: Path) -> None:
    limits = ("--max-rewrite-fraction", "0", "--strategy", "insert")
    assert "insert of 2 rows" in done("plan", source, dataset, "-k", "id", *PYARROW, *limits).out


def test_plan_of_a_dataset_that_is_not_there(done: Run, source: Path) -> None:
    assert "0 files: none yet" in done("plan", source, "new", "-k", "id", *PYARROW).out


def test_plan_that_trusts_partitions(done: Run, source: Path, tmp_path: Path) -> None:
    done("write", source, tmp_path / "new", "--partition-by", "v", *PYARROW)
    ran = done("plan", source, "new", "-k", "id", "--trust-partitions", *PYARROW)
    assert "--trust-partitions" in ran.out


@pytest.mark.parametrize("command", ["merge", "plan"])
@pytest.mark.parametrize("limit", [("fraction", "0.2"), ("bytes", "0.1kB")])
def test_guard_rails(
    run: Run, dataset: Path, source: Path, command: str, limit: tuple[str, str]
) -> None:
    before = tree(dataset)
    name, value = f"--max-rewrite-{limit[0]}", limit[1]
    ran = run(command, source, dataset, "-k", "id", *PYARROW, name, value)
    assert ran.code == 1
    assert f"but {name} allows" in ran.err
    assert ("affected" in ran.out) == (command == "plan")
    assert tree(dataset) == before
    assert run("plan", source, dataset, "-k", "id", *PYARROW, name, "1").code == (
        limit[0] == "bytes"
    )


def test_write(done: Run, source: Path, tmp_path: Path) -> None:
    ran = done("write", source, "new", *PYARROW)
    assert "append of 2 rows" in ran.out
    document = done("write", source, "new", *PYARROW, "--json").document
    assert (document["total_rows"], document["mode"]) == (2, "append")
    assert len(list((tmp_path / "new").glob("*.parquet"))) == 2
    done("write", source, "new", "--mode", "overwrite", *PYARROW)
    assert len(list((tmp_path / "new").glob("*.parquet"))) == 1


def test_write_of_some_partitions(done: Run, tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", 2)):
        pq.write_table(pa.table({"id": [value], "day": [value]}), f"{name}.parquet")
    done("write", "a.parquet", "b.parquet", "new", "--partition-by", "day", *PYARROW)
    mode = ("--mode", "overwrite_partitions")
    document = done("write", "b.parquet", "new", *mode, *PYARROW, "--json").document
    assert (document["mode"], document["replaced_files"]) == ("overwrite_partitions", 1)
    assert sorted(file.parent.name for file in (tmp_path / "new").rglob("*.parquet")) == [
        "day=1",
        "day=2",
    ]


def test_written_partitions_are_in_the_json(done: Run, source: Path) -> None:
    (file,) = done("write", source, "new", "--partition-by", "v", *PYARROW, "--json").document[
        "files"
    ]
    assert file["partition_values"] == {"v": "new"}


def test_inspect(done: Run, dataset: Path, source: Path) -> None:
    done("merge", source, dataset, "-k", "id", *PYARROW)
    out = done("inspect", dataset).out
    assert "4 with 4 row groups" in out
    assert "id: by ranges alone one key may be in 1 of 4 files on average, in 1 at most" in out
    (column,) = [line for line in out.splitlines() if line.startswith("id ")]
    assert column.split() == ["id", "int64", "0", "999", "0", "4", "0", "key"]


def test_inspect_as_json(done: Run, dataset: Path) -> None:
    document = done("inspect", dataset, "--key", "id", "--json").document
    assert (document["rows"], document["commits"]) == (9, 0)
    assert document["key_pruning"]["most_files_of_one_key"] == 1
    assert done("inspect", dataset, "--json").document["key_pruning"] is None


def test_inspect_warns_of_what_is_odd(done: Run, dataset: Path) -> None:
    (dataset / "_metadata").write_bytes(b"")
    (dataset / "broken.parquet").write_bytes(b"PAR1")
    for number in range(30):
        pq.write_table(rows(number), dataset / f"small-{number}.parquet")
    out = done("inspect", dataset).out
    assert "warning: a merge would be refused: the summary file '_metadata'" in out
    assert "broken.parquet' is not readable as Parquet" in out
    assert "34 files are smaller than 8.4 MB" in out
    assert "… and 14 more; --json lists them all" in out
    assert len(done("inspect", dataset, "--json").document["files"]) == 34


def test_verify(run: Run, done: Run, dataset: Path) -> None:
    words = ("verify", dataset, "-k", "id", "--engine", "pyarrow")
    assert "nothing is wrong in 3 files with 9 rows" in done(*words).out
    assert done(*words, "--json").document["ok"]
    shutil.copy(dataset / "part-0.parquet", dataset / "copy.parquet")
    ran = run(*words)
    assert ran.code == 1
    assert "error: 3 keys of id occur more than once" in ran.out
    assert "  do: delete all but one row of each key." in ran.out
    document = run(*words, "--json").document

    assert (document["ok"], document["findings"][0]["severity"]) == (False, "error")
    assert done(*words[:2], "--engine", "pyarrow", "--no-checksums").code == 0


def test_verify_says_where(run: Run, dataset: Path) -> None:
    (dataset / "part-1.parquet").write_bytes(b"garbage")
    ran = run("verify", dataset, "--engine", "pyarrow")
    assert ran.code == 1
    assert "the footer is missing or damaged" in ran.out or "does not begin like" in ran.out
    assert "\n  part-1.parquet\n" in ran.out


def test_doctor(done: Run, dataset: Path) -> None:
    assert "merges by id would read few files" in done("doctor", dataset, "-k", "id").out
    for number in range(3, 23):
        pq.write_table(rows(0, 10_000), dataset / f"wide-{number}.parquet")
    out = done("doctor", dataset, "-k", "id").out
    assert "would read many files without a key of the source" in out
    assert "warning: the ranges of id overlap" in out
    assert "write bloom filters: --bloom id" in out
    document = done("doctor", dataset, "-k", "id", "--json").document
    assert document["verdict"] == "poor"


def test_doctor_of_what_is_refused(run: Run, dataset: Path) -> None:
    other = pa.table({"id": ["x"], "v": [1]})
    pq.write_table(other, dataset / "part-3.parquet")
    ran = run("doctor", dataset, "-k", "id")
    assert (ran.code, ran.err) == (1, "")
    verdict, _, first, advice, *_ = ran.out.splitlines()
    assert verdict.endswith("merges by id would be refused")
    assert first.startswith("error: the key column 'id' has types in the target's files that")
    assert advice == "  do: rewrite the files that have the wrong type."
    assert "warning: column 'v' is string or int64, depending on the file" in ran.out
    document = run("doctor", dataset, "-k", "id", "--json").document
    assert document["verdict"] == "refused"
    assert [finding["severity"] for finding in document["findings"]] == ["error", "warning"]


def test_inspect_of_files_that_disagree(done: Run, dataset: Path) -> None:
    pq.write_table(pa.table({"id": ["x"], "v": [1]}), dataset / "part-3.parquet")
    out = done("inspect", dataset, "-k", "id").out
    assert "warning: a merge would be refused: the key column 'id' has types" in out
    assert "warning: column 'v' is string or int64, depending on the file, such as 'part-3." in out
    document = done("inspect", dataset, "-k", "id", "--json").document
    assert [each["column"] for each in document["type_differences"]] == ["id", "v"]


def test_history(done: Run, dataset: Path, source: Path) -> None:
    assert done("history", dataset).out == f"{dataset}: no commits yet\n"
    done("merge", source, dataset, "-k", "id", *PYARROW)
    done("write", source, dataset, *PYARROW)
    lines = done("history", dataset).out.splitlines()
    assert "1 inserted, 1 updated" in lines[1]
    assert lines[2].split()[-1] == "complete"
    document = done("history", dataset, "--json", "--limit", 1).document
    assert [commit["number"] for commit in document["commits"]] == [2]


def test_recover(done: Run, dataset: Path, source: Path) -> None:
    assert "nothing to recover" in done("recover", dataset).out
    done("merge", source, dataset, "-k", "id", *PYARROW)
    _make_pending(dataset)
    assert "not complete: recover" in done("history", dataset).out
    assert "commit 1 is not complete" in done("inspect", dataset).out
    assert "commit 1 is not complete" in done("doctor", dataset, "-k", "id").out
    (completed,) = done("recover", dataset, "--json").document["completed"]
    assert completed["number"] == 1
    assert "recovered" in done("history", dataset).out
    _make_pending(dataset)
    assert "completed commit 1: 2 file(s) added, 1 removed" in done("recover", dataset).out


def test_undo_and_restore(done: Run, run: Run, dataset: Path, source: Path) -> None:
    done("merge", source, dataset, "-k", "id", *PYARROW)
    after = done("inspect", dataset, "--json").document["rows"]
    out = done("undo", dataset, "--dry-run").out
    assert "the state before the first commit would come back, without commit 1" in out
    assert done("undo", dataset, "--dry-run", "--json").document["dry_run"]
    assert done("inspect", dataset, "--json").document["rows"] == after
    document = done("undo", dataset, "--json").document
    assert (document["restores"], document["commit"], document["undone"]) == (0, 2, [1])
    assert [file["original"] for file in document["restored"]] == ["part-1.parquet"]
    assert done("inspect", dataset, "--json").document["rows"] == after - 1
    out = done("restore", dataset, "--commit", 1).out
    assert "the state after commit 1 is back by commit 3, without commit 2" in out
    assert "part-1" in out
    assert done("inspect", dataset, "--json").document["rows"] == after
    assert "has the state after commit 1 already" in done("restore", dataset, "--commit", 1).out
    lines = done("history", dataset).out.splitlines()
    assert ["undo to 0" in line for line in lines[1:]] == [False, True, False]
    assert "restore to 1" in lines[3]
    failed = run("restore", dataset, "--commit", 7)
    assert "--commit must be a number from 0 to 3" in failed.err


def test_an_undo_keeps_what_the_writers_keep(done: Run, dataset: Path, source: Path) -> None:
    io = PyarrowDatasetIO(retention=Retention(commits=30))
    for number in range(5):
        rows = pa.table({"id": pa.array([1]), "v": [f"version {number}"]})
        io.write_dataset(rows, str(dataset.parent / "kept"), mode="overwrite")
    done("undo", "kept", "--keep-commits", 30, "--keep-age", "7d")
    done("restore", "kept", "--commit", 2, "--keep-commits", 30)
    assert io.read_dataset(str(dataset.parent / "kept"), commit=1)["v"].to_pylist() == ["version 0"]
    done("restore", "kept", "--commit", 1)
    done("clean", "kept", "--keep-commits", 1, "--no-dry-run")
    assert io.read_dataset(str(dataset.parent / "kept"))["v"].to_pylist() == ["version 0"]


def test_clean(done: Run, dataset: Path, source: Path) -> None:
    assert "nothing to clean" in done("clean", dataset).out
    done("merge", source, dataset, "-k", "id", *PYARROW)
    done("delete", dataset, "--where", "id > 0", *PYARROW)
    out = done("clean", dataset, "--keep-commits", 1).out
    assert "would be removed" in out
    assert "trash/0000000001" in out
    assert out.splitlines()[-1] == "nothing was changed: this is what --no-dry-run does"
    document = done("clean", dataset, "--keep-commits", 1, "--no-dry-run", "--json").document
    assert [item["name"] for item in document["items"]] == ["trash/0000000001"]
    assert document["bytes"] == document["items"][0]["bytes"] > 0
    assert not done("clean", dataset, "--keep-bytes", "1MB", "--json").document["items"]


def _make_pending(dataset: Path) -> None:
    """Take away what marks the first commit as complete."""
    (marker,) = [
        path
        for path in (dataset.parent / f".{dataset.name}.fsspeckit" / "commits").iterdir()
        if "fsspeckit-commit-done" in path.read_text()
    ]
    marker.unlink()


def test_engines(done: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    document = done("engines", "--json").document
    assert [engine["name"] for engine in document["engines"]] == list(ENGINES)
    assert [engine["is_default"] for engine in document["engines"]] == [True, False, False]
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    lines = done("engines").out.splitlines()
    assert "Java 17 is missing" in lines[1]
    assert "openjdk" in lines[1]
    assert lines[3].split()[:2] == ["pyarrow", "installed"]


def test_an_engine_whose_library_is_missing(
    run: Run, done: Run, monkeypatch: pytest.MonkeyPatch, dataset: Path, source: Path
) -> None:
    entry = ENGINES["duckdb"]
    missing = type(entry)(entry.module, entry.class_name, "no_such_library", entry.install)
    monkeypatch.setitem(ENGINES, "duckdb", missing)
    (line,) = [line for line in done("engines").out.splitlines() if line.startswith("duckdb")]
    assert "no_such_library is missing" in line
    assert "pip install duckdb" in line
    ran = run("merge", source, dataset, "-k", "id", "--engine", "duckdb")
    assert ran.code == 1
    assert ran.err.endswith(
        "hint: pip install duckdb, or pass --engine pyarrow, which needs nothing else.\n"
    )


def test_the_choices_are_those_of_the_library() -> None:
    assert [name.value for name in EngineName] == list(ENGINES)


def test_names_with_spaces_and_more(done: Run, tmp_path: Path) -> None:
    odd = tmp_path / "zwei Wörter [x] 50% #1"
    odd.mkdir()
    pq.write_table(rows(1), odd / "eine Datei.parquet")
    done("merge", odd / "eine Datei.parquet", odd / "ziel", "-k", "id", *PYARROW)
    assert json.loads(done("history", odd / "ziel", "--json").out)["path"] == str(odd / "ziel")
    assert str(odd / "ziel") in done("inspect", odd / "ziel").out


def test_a_url_is_a_path_like_any_other(done: Run, dataset: Path, source: Path) -> None:
    done("merge", source.as_uri(), dataset.as_uri(), "-k", "id", *PYARROW)
    assert 999 in content(dataset)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@pytest.mark.parametrize("json_option", [(), ("--json",)], ids=["text", "json"])
def test_a_result_that_cannot_be_printed_is_not_a_failure(
    dataset: Path, source: Path, json_option: tuple[str, ...]
) -> None:
    script = "from fsspeckit.cli import main; main()"
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(
            [sys.executable, "-c", script, "write", source, dataset, *PYARROW, *json_option],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ran.returncode == 3
    assert "error: all is done, but the result cannot be printed: No space left" in ran.stderr
    assert "hint: do not repeat the command; 'fsspeckit history'" in ran.stderr
    assert [entry.state for entry in history(dataset)] == ["complete"]


def test_version(done: Run) -> None:
    from fsspeckit import __version__

    assert done("--version").out == f"fsspeckit {__version__}\n"


def test_the_console_script_takes_the_words_of_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fsspeckit.cli import main

    monkeypatch.setattr("sys.argv", ["fsspeckit", "engines", "--json"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "engines"


def test_compact(done: Run, source: Path, tmp_path: Path) -> None:
    for _ in range(3):
        done("write", source, "new", *PYARROW)
    before = tree(tmp_path / "new")
    planned = done("compact", "new", "--sort-by", "id", "--dry-run", *PYARROW, "--json").document
    assert (planned["dry_run"], planned["files_after"]) == (True, 1)
    assert tree(tmp_path / "new") == before
    assert "3 files, 1 afterwards" in done("compact", "new", "--dry-run", *PYARROW).out
    document = done("compact", "new", "--bloom", "id", *PYARROW, "--json").document
    assert (document["files_before"], document["files_after"]) == (3, 1)
    assert "nothing was changed" in done("compact", "new", "--target-size", "1GB", *PYARROW).out
    assert done("history", "new", "--json").document["commits"][-1]["strategy"] == "compact"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compact", "new", "--sort-by", "x"), "--sort-by ['x'] not found"),
        (("compact", "new", "--partition", "x=1"), "--partition ['x'] not found"),
        (("compact", "new", "--min-files", "1"), "--min-files must be a whole number"),
        (("repartition", "new", "--partition-by", "x"), "--partition-by ['x'] not found"),
    ],
)
def test_messages_name_the_options(
    run: Run, done: Run, source: Path, arguments: tuple[str, ...], message: str
) -> None:
    done("write", source, "new", *PYARROW)
    ran = run(*arguments, *PYARROW)
    assert (ran.code, message in ran.err) == (1, True)


def test_compact_one_partition(run: Run, done: Run, source: Path) -> None:
    for _ in range(2):
        done("write", source, "new", "--partition-by", "id", *PYARROW)
    partition = ("--partition", "id=1")
    document = done("compact", "new", *partition, *PYARROW, "--json").document
    assert [one["partition"] for one in document["bins"]] in ([], ["id=1"])
    ran = run("compact", "new", "--partition", "id", *PYARROW)
    assert (ran.code, "year=2024" in ran.err) == (2, True)
    assert run("compact", "new", "--partition", "v=1", *PYARROW).code == 1
