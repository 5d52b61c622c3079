"""The five strategies: what each does to rows, files and counters."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

import datetime as dt
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from fsspeckit.core.merge import MergeStrategy
from fsspeckit.errors import InvalidArgumentError, RewriteLimitError
from fsspeckit.storage import history, recover
from fsspeckit.testing.conformance.stores import data_files, every_store, every_store_and_strategy
from fsspeckit.testing.conformance.target import Target, as_table, lines, numbers
from fsspeckit.testing.model import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "EdgeTests",
    "FullMergeTests",
    "OptionTests",
    "StrategyTests",
]

EVERY_STORE = pytest.mark.parametrize("store", every_store(), indirect=True)
EVERY_STRATEGY = pytest.mark.parametrize("strategy", STRATEGIES)


def three_files(target: Target) -> None:
    """Seven rows in files whose ranges of keys do not overlap."""
    target.write("a.parquet", numbers(3, 1, 2))
    target.write("b.parquet", numbers(4, 5))
    target.write("c.parquet", numbers(7, 6))


class Stream:
    """Anything that speaks the Arrow C stream, as Polars and DuckDB do."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


SOURCES: dict[str, Callable[[pa.Table], Any]] = {
    "a table": lambda table: table,
    "a list of tables": lambda table: [table.slice(0, 1), table.slice(1)],
    "a list of batches": lambda table: table.to_batches(max_chunksize=1),
    "a reader": lambda table: table.to_reader(max_chunksize=1),
    "a dataset": ds.dataset,
    "a scanner": lambda table: ds.dataset(table).scanner(),
    "a pandas frame": lambda table: table.to_pandas(),
    "a Polars frame": lambda table: pytest.importorskip("polars").from_arrow(table),
    "a DuckDB relation": lambda table: pytest.importorskip("duckdb").from_arrow(table),
    "an Arrow C stream": Stream,
}


ODD_DIRECTORIES = (
    *("two words", "50%", "a%20b", "a#b", "a?b", "a*b", "[ab]", "{a,b}", "it's", 'say "hi"'),
    *("größe", "k=v", "data.parquet", "a;b", "a&b=c"),
)
"""Names of directories that URLs, globs and quoting could break."""

SPELLINGS: dict[str, Callable[[str], Any]] = {
    "a relative path": lambda _: "data",
    "a path with a slash at its end": lambda local: f"{local}/",
    "a path that goes up and down": lambda local: f"{local}/../data",
    "a URL": lambda local: f"file://{local}",
    "a Path": Path,
}


class StrategyTests:
    """What the strategies do."""

    @EVERY_STORE
    @EVERY_STRATEGY
    def test_strategy_on_known_unchanged_and_new_keys(self, target: Target, strategy: str) -> None:
        three_files(target)
        source = pa.concat_tables([numbers(2, 9, v="new"), numbers(4), numbers(8, v="new")])
        target.merge(source, strategy)

    def test_insert_appends_only_new_keys(self, target: Target) -> None:
        target.write("a.parquet", numbers(1))
        result = target.merge(numbers(1, 2, v="new"), "insert")
        (path,) = result.inserted_files
        table = target.store.read(target.store.relative(path), numbers().schema)
        assert table.equals(numbers(2, v="new"))
        assert result.rewritten_files == []

    def test_update_preserves_unaffected_rows(self, target: Target) -> None:
        target.write("a.parquet", numbers(1, 2))
        target.merge(numbers(2, v="new"), "update")
        expected = pa.concat_tables([numbers(1), numbers(2, v="new")])
        assert list(target.rows(expected.schema)) == list(lines(expected))

    @EVERY_STORE
    def test_update_rewrites_only_affected_files(self, target: Target) -> None:
        for number in range(10):
            target.write(f"f{number}.parquet", numbers(*range(number * 10, number * 10 + 10)))
        result = target.merge(numbers(13, 57, 1000, v="new"), "update")
        assert (len(result.rewritten_files), len(result.preserved_files)) == (2, 8)
        assert result.inserted == 0

    def test_conservative_pruning_and_key_scan_confirmation(self, target: Target) -> None:
        """The ranges of all files overlap: only a scan finds out which ones contain a key."""
        for number in range(5):
            target.write(f"f{number}.parquet", numbers(*range(number, 100 + number, 5)))
        result = target.merge(numbers(12, 57, v="new"), "update")
        assert len(result.rewritten_files) == 1

    def test_update_replaces_full_rows(self, target: Target) -> None:
        """NULL of the source replaces a value too."""
        target.write("a.parquet", pa.table({"id": [1, 2], "a": ["x", "y"], "b": [1.5, None]}))
        source = pa.table({"id": [1, 2], "a": [None, "z"], "b": [2.5, None]})
        target.merge(source, "update")
        assert list(target.rows(source.schema)) == list(lines(source))

    def test_composite_keys_work_for_upsert(self, target: Target) -> None:
        target.write("a.parquet", pa.table({"id": [1, 2], "category": ["A", "B"], "v": [0, 0]}))
        source = pa.table({"id": [1, 1, 2], "category": ["A", "B", "B"], "v": [1, 2, 3]})
        result = target.merge(source, "upsert", ["id", "category"])
        assert (result.updated, result.inserted) == (2, 1)

    def test_upsert_returns_metadata_for_rewritten_and_inserted_files(self, target: Target) -> None:
        three_files(target)
        result = target.merge(numbers(1, 8, v="new"))
        operations = sorted(file.operation for file in result.files)
        assert operations == ["inserted", "preserved", "preserved", "rewritten"]

    def test_parquet_metadata_is_the_default_metadata_source(self, target: Target) -> None:
        three_files(target)
        for file in target.merge(numbers(1, 8, v="new")).files:
            data = target.store.filesystem.cat_file(file.path)
            assert file.row_count == pq.read_metadata(pa.BufferReader(data)).num_rows
            assert file.size_bytes == len(data)

    @EVERY_STRATEGY
    def test_every_duplicate_target_row_is_replaced_and_none_collapses(
        self, target: Target, strategy: str
    ) -> None:
        target.write("a.parquet", numbers(1, 2, 1, 3, 1))
        target.write("b.parquet", numbers(1, 4))
        result = target.merge(numbers(1, 5, v="new"), strategy)
        matched = result.deleted if strategy == "delete" else result.updated
        assert matched == (0 if strategy == "insert" else 4)

    def test_updated_counts_matched_rows_whose_values_do_not_differ(self, target: Target) -> None:
        target.write("a.parquet", numbers(1, 2))
        result = target.merge(numbers(1, 2), "update")
        assert (result.updated, result.rewritten_files) == (2, [])

    def test_rows_keep_their_order_in_large_files(self, target: Target) -> None:
        ids = [(number * 7919) % 5000 for number in range(5000)]
        target.write("a.parquet", numbers(*ids), row_group_size=700)
        target.merge(numbers(*range(0, 5000, 97), v="new"), "update")


class FullMergeTests:
    """The target equals the source by key, and its files go with their rows."""

    @EVERY_STORE
    def test_full_merge_removes_a_file_that_loses_all_rows(self, target: Target) -> None:
        three_files(target)
        result = target.merge(numbers(1, 2, 3, 5), "full_merge")
        assert (result.deleted, len(result.files)) == (3, 2)

    def test_full_merge_deletes_rows_with_null_keys(self, target: Target) -> None:
        target.write("a.parquet", numbers(1, None, 2))
        assert target.merge(numbers(1, 2), "full_merge").deleted == 1

    def test_full_merge_of_an_empty_source_is_refused(self, target: Target) -> None:
        three_files(target)
        target.refuses(ValueError, numbers(), "full_merge", match="allow_empty")

    @EVERY_STORE
    def test_the_last_file_stays_empty_with_its_schema(self, target: Target) -> None:
        three_files(target)
        target.merge(numbers(), "full_merge", allow_empty=True)
        (name,) = data_files(target.store.tree())
        assert target.store.schema(name).equals(numbers().schema)

    def test_an_emptied_dataset_can_be_filled_again(self, target: Target) -> None:
        three_files(target)
        target.merge(numbers(), "full_merge", allow_empty=True)
        target.merge(numbers(5, 6, v="new"))

    def test_full_merge_replaces_every_row(self, target: Target) -> None:
        three_files(target)
        assert target.merge(numbers(8, 9, v="new"), "full_merge").deleted == 7


class EdgeTests:
    """Targets that are not there, and sources without rows."""

    @every_store_and_strategy(["insert", "upsert", "full_merge", "deduplicate"])
    def test_missing_target_is_created(self, target: Target, strategy: str) -> None:
        result = target.merge(numbers(1, 2), strategy)
        assert (result.target_count_before, result.target_count_after) == (0, 2)

    @EVERY_STORE
    def test_update_of_a_missing_target_is_refused(self, target: Target) -> None:
        target.refuses(ValueError, numbers(1), "update", match="non-existent target")

    @every_store_and_strategy(["insert", "update", "upsert", "deduplicate"])
    def test_empty_source_changes_nothing(self, target: Target, strategy: str) -> None:
        three_files(target)
        result = target.merge(numbers(), strategy)
        assert (result.source_count, len(result.preserved_files)) == (0, 3)

    def test_a_strategy_may_be_a_member(self, target: Target) -> None:
        three_files(target)
        result = target.io.merge(numbers(1), target.store.path, MergeStrategy.UPSERT, ("id",))
        assert result.strategy == "upsert"

    @EVERY_STORE
    @pytest.mark.parametrize("name", ODD_DIRECTORIES)
    def test_dataset_in_a_directory_named(self, target: Target, name: str) -> None:
        moved = Target(target.io, target.store.moved(name))
        three_files(moved)
        moved.merge(numbers(1, 8, v="new"))
        assert as_table(moved.io.read_dataset(moved.store.path)).num_rows == 8

    @pytest.mark.parametrize("spelled", SPELLINGS)
    def test_path_spelled_as(
        self, target: Target, spelled: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        three_files(target)
        monkeypatch.chdir(Path(target.store.local).parent)
        path = SPELLINGS[spelled](target.store.local)
        result = target.io.merge(numbers(1, 8, v="new"), path, "upsert", ["id"])
        names = [target.store.relative(file.path) for file in result.files]
        assert sorted(names) == data_files(target.store.tree())

    def test_a_strategy_must_exist(self, target: Target) -> None:
        three_files(target)
        assert "upsert" in target.refuses(ValueError, numbers(1), "replace", match="replace")

    @pytest.mark.parametrize("keys", [["nope"], [], ["id", "id"]], ids=str)
    def test_key_columns_must_exist_once(self, target: Target, keys: list[str]) -> None:
        three_files(target)
        target.refuses(ValueError, numbers(1), "upsert", keys, match="key")

    def test_one_name_is_not_taken_letter_by_letter(self, target: Target) -> None:
        target.write("a.parquet", pa.table({"i": [1], "d": [1]}))
        source = pa.table({"i": [1], "d": [1]})
        target.refuses(ValueError, source, "upsert", "id", match=r"key_columns \['id'\] not found")

    @pytest.mark.parametrize("option", ["null_keys", "duplicate_keys"])
    def test_a_choice_must_exist(self, target: Target, option: str) -> None:
        three_files(target)
        target.refuses(ValueError, numbers(1), match=option, **{option: "maybe"})


class OptionTests:
    """Forms of the source, and what a caller may ask for besides."""

    @pytest.mark.parametrize("form", SOURCES)
    @pytest.mark.parametrize("strategy", ["insert", "upsert"])
    def test_source_as(self, target: Target, form: str, strategy: str) -> None:
        three_files(target)
        source = numbers(1, 8, 5, v="new")
        target.merge(source, strategy, data=SOURCES[form](source))

    @pytest.mark.parametrize("as_list", [False, True], ids=["a path", "a list of paths"])
    def test_source_as_parquet_files(self, target: Target, tmp_path: Any, as_list: bool) -> None:
        three_files(target)
        source = numbers(1, 8, v="new")
        path = str(tmp_path / "source.parquet")
        pq.write_table(source, path)
        target.merge(source, data=[path] if as_list else path)

    def test_int96_of_source_files_are_instants(self, target: Target, tmp_path: Any) -> None:
        """Whatever the engine, and outside the range of nanoseconds too."""
        instants = [dt.datetime(1500, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]
        kind = pa.timestamp("us", "UTC")
        target.write("a.parquet", pa.table({"id": [1, 2], "t": pa.array(instants[::-1], kind)}))
        source = pa.table({"id": [1, 3], "t": pa.array(instants, kind)})
        path = str(tmp_path / "source.parquet")
        pq.write_table(source, path, use_deprecated_int96_timestamps=True)
        assert target.merge(source, data=path).updated == 1

    @pytest.mark.parametrize(
        "limit", [{"max_rewrite_fraction": 0.5}, {"max_rewrite_bytes": 1000}], ids=str
    )
    def test_a_merge_that_would_rewrite_too_much_is_refused(
        self, target: Target, limit: dict[str, Any]
    ) -> None:
        three_files(target)
        target.refuses(
            RewriteLimitError, numbers(1, 4, 6, v="new"), match=next(iter(limit)), **limit
        )
        assert len(target.plan(numbers(1, 4, 6, v="new"), **limit).with_decision("affected")) == 3
        target.merge(numbers(1, 4, 6, 8, v="new"), "insert", **limit)
        target.merge(numbers(1, v="new"), **{name: value * 2 for name, value in limit.items()})

    def test_a_source_is_never_modified(self, target: Target) -> None:
        three_files(target)
        source = numbers(1, 8, v="new")
        target.merge(source)
        assert source.equals(numbers(1, 8, v="new"))

    def test_a_reader_that_fails_changes_nothing(self, target: Target) -> None:
        def batches() -> Any:
            yield from numbers(1, 8, v="new").to_batches()
            raise OSError("the source broke")

        three_files(target)
        reader = pa.RecordBatchReader.from_batches(numbers().schema, batches())
        target.refuses(OSError, reader, match="the source broke")

    def test_progress_that_fails_leaves_the_old_or_the_new_state(self, target: Target) -> None:
        states = [sorted(lines(numbers(1, v=v))) for v in ("old", "new")]
        event = 0
        target.write("a.parquet", numbers(1))
        while self._fail_at(target, event) > event:
            assert sorted(target.rows(numbers().schema)) in states
            assert not recover(target.store.path)
            for name in target.store.tree():
                target.store.filesystem.rm_file(target.store.at(name))
            target.write("a.parquet", numbers(1))
            event += 1
        assert event > 4

    def _fail_at(self, target: Target, at: int) -> int:
        seen = 0

        def progress(*_: Any) -> None:
            nonlocal seen
            seen += 1
            if seen > at:
                raise RuntimeError("the callback broke")

        with suppress(RuntimeError):
            target.io.merge(
                numbers(1, v="new"), target.store.path, "update", ["id"], progress=progress
            )
        return seen

    @EVERY_STORE
    def test_inserts_honour_max_rows_per_file_and_row_group_size(self, target: Target) -> None:
        target.write("a.parquet", numbers(100))
        result = target.merge(numbers(*range(10)), max_rows_per_file=4, row_group_size=2)
        footers = [target.store.footer(target.store.relative(p)) for p in result.inserted_files]
        assert sorted(footer.num_rows for footer in footers) == [2, 4, 4]
        groups = [f.row_group(n).num_rows for f in footers for n in range(f.num_row_groups)]
        assert groups == [2] * 5

    @pytest.mark.parametrize("limit", ["max_rows_per_file", "row_group_size"])
    def test_a_limit_beyond_any_count_is_none(self, target: Target, limit: str) -> None:
        options: dict[str, Any] = {limit: 2**70}
        target.merge(numbers(1, 2), **options)

    @pytest.mark.parametrize("option", ["order_by", "bloom_columns"])
    def test_columns_may_be_an_array_and_no_name_is_refused(
        self, target: Target, option: str
    ) -> None:
        options: dict[str, Any] = {option: np.array(["v", "id"])}
        result = target.io.merge(numbers(1, 2), target.store.path, "upsert", ["id"], **options)
        assert result.inserted == 2
        options = {option: ""}
        target.refuses(ValueError, numbers(3), match=f"{option}.*''", **options)

    def test_reading_a_column_that_is_not_there_is_refused(self, target: Target) -> None:
        target.write("a.parquet", numbers(1))
        with pytest.raises(InvalidArgumentError, match=r"columns.*'nope'"):
            target.io.read_dataset(target.store.path, columns="nope")

    @pytest.mark.parametrize("codec", ["zstd", "gzip", "ZSTD"])
    def test_inserts_honour_compression(self, target: Target, codec: str) -> None:
        result = target.merge(numbers(1, 2), compression=codec)
        footer = target.store.footer(target.store.relative(result.inserted_files[0]))
        assert footer.row_group(0).column(0).compression == codec.upper()

    def test_inserts_honour_bloom_columns(self, target: Target) -> None:
        result = target.merge(numbers(1, 2), bloom_columns=["id"])
        group = target.store.footer(target.store.relative(result.inserted_files[0])).row_group(0)
        offsets = [group.column(number).bloom_filter_offset for number in (0, 1)]
        assert [offset is None for offset in offsets] == [False, True]

    @pytest.mark.parametrize("codec", [None, "none", "UNCOMPRESSED"], ids=str)
    def test_inserts_need_not_be_compressed(self, target: Target, codec: str | None) -> None:
        result = target.merge(numbers(1, 2), compression=codec)
        footer = target.store.footer(target.store.relative(result.inserted_files[0]))
        assert footer.row_group(0).column(0).compression == "UNCOMPRESSED"

    def test_one_column_may_be_a_string_wherever_columns_are_named(self, target: Target) -> None:
        source = pa.table({"id": [1, 2, 2], "p": ["a", "b", "b"], "word": ["x", "z", "y"]})
        options: dict[str, Any] = {"order_by": "word", "bloom_columns": "id"}
        path = target.store.path
        first = target.io.merge(source, path, "upsert", "id", partition_by="p", **options)
        again = target.io.merge(source, path, "upsert", "id", partition_columns="p", **options)
        assert (first.inserted, again.updated, again.rewritten_files) == (2, 2, [])
        group = target.store.footer(target.store.relative(first.inserted_files[0])).row_group(0)
        assert group.column(0).bloom_filter_offset is not None
        words = as_table(target.io.read_dataset(path, columns="word"))
        assert sorted(words.to_pydict()["word"]) == ["x", "z"]

    def test_none_means_no_limit_for_files(self, target: Target) -> None:
        result = target.merge(numbers(*range(9)), max_rows_per_file=None, row_group_size=None)
        (new,) = result.inserted_files
        assert target.store.footer(target.store.relative(new)).num_row_groups == 1

    def test_a_result_is_a_dictionary_for_json(self, target: Target) -> None:
        three_files(target)
        plan = target.plan(numbers(1, 8, v="new"))
        document = json.loads(json.dumps(plan.to_dict()))
        assert document == plan.to_dict()
        assert [file["decision"] for file in document["files"]] == ["affected", "pruned", "pruned"]
        result = target.io.execute(plan)
        document = json.loads(json.dumps(result.to_dict()))
        assert document == result.to_dict()
        assert (document["updated"], document["inserted"]) == (1, 1)
        assert [file["path"] for file in document["files"]] == [file.path for file in result.files]

    def test_progress_reaches_the_end_of_every_phase(self, target: Target) -> None:
        three_files(target)
        seen: list[tuple[str, int, int]] = []
        target.merge(numbers(1, 4, 8, v="new"), progress=lambda *event: seen.append(event))
        last = {phase: (done, total) for phase, done, total in seen}
        assert len(last) > 1
        assert all(done == total for done, total in last.values())
        assert all(0 <= done <= total for _, done, total in seen)

    def test_history_lists_what_a_merge_did(self, target: Target, engine: str) -> None:
        three_files(target)
        target.merge(numbers(1, 4, 8, v="new"))
        (entry,) = history(target.store.path, **target.store.opening)
        assert (entry.engine, entry.strategy, entry.key_columns) == (engine, "upsert", ("id",))
        assert {name: entry.counts[name] for name in ("inserted", "updated", "deleted")} == {
            "inserted": 1,
            "updated": 2,
            "deleted": 0,
        }

    def test_metrics_tell_old_and_new_names_and_seconds(self, target: Target) -> None:
        three_files(target)
        result = target.merge(numbers(1, 4, 8, v="new"))
        renamed = result.metrics["renamed"]
        assert sorted(renamed.values()) == sorted(result.rewritten_files)
        assert {path.rpartition("/")[2] for path in renamed} == {"a.parquet", "b.parquet"}
        assert all(seconds >= 0 for seconds in result.metrics["seconds"].values())

    def test_a_filesystem_may_be_given_to_the_call(self, target: Target) -> None:
        directory = target.store.local.removesuffix("/data")
        filesystem = DirFileSystem(directory, LocalFileSystem())
        three_files(target)
        target.io.merge(numbers(8), "data", "upsert", ["id"], filesystem=filesystem)
        assert sum(target.rows(numbers().schema).values()) == 8

    def test_a_control_directory_may_be_elsewhere(
        self, connect: Callable[..., Any], target: Target, tmp_path: Any
    ) -> None:
        elsewhere = str(tmp_path / "control")
        with connect(control_dir=elsewhere) as io:
            Target(io, target.store).merge(numbers(1, 2))
        assert len(history(target.store.path, control_dir=elsewhere)) == 1

    @EVERY_STORE
    def test_read_dataset_after_a_merge(self, target: Target) -> None:
        three_files(target)
        target.merge(numbers(1, 8, v="new"))
        table = as_table(target.io.read_dataset(target.store.path))
        assert sorted(lines(table)) == sorted(target.rows(table.schema).elements())
