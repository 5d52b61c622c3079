"""`write_dataset` and `read_dataset`."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

import errno
import json
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fsspeckit import errors
from fsspeckit.storage.fs import syscalls
from fsspeckit.testing.conformance.files import FOREIGN, REFUSED
from fsspeckit.testing.conformance.merging import EVERY_STORE, SOURCES, three_files
from fsspeckit.testing.conformance.partitions import PARTITIONS, days, write_days
from fsspeckit.testing.conformance.stores import data_files
from fsspeckit.testing.conformance.target import as_table, lines, numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fsspeckit.core.incremental import MergeResult
    from fsspeckit.storage import Call
    from fsspeckit.testing.conformance.target import Target

__all__ = ["ReadTests", "WriteTests"]


def write(target: Target, data: Any, **options: Any) -> Any:
    """Write, and compare the result with what is on disk."""
    before = target.store.tree()
    result = target.io.write_dataset(data, target.store.path, **options)
    after = target.store.tree()
    reported = {target.store.relative(file.path): file for file in result.files}
    assert sorted(reported) == sorted(after.keys() - before.keys())
    for name, file in reported.items():
        assert file.row_count == target.store.footer(name).num_rows
        assert file.size_bytes == len(after[name].data)
    assert result.total_rows == sum(file.row_count for file in result.files)
    gone = set(data_files(before)) if options.get("mode") == "overwrite" else set()
    stays = before.keys() - gone
    assert {name: after.get(name) for name in stays} == {name: before[name] for name in stays}
    assert not gone & after.keys()
    return result


class WriteTests:
    """Appending and overwriting."""

    @EVERY_STORE
    def test_append_writes_new_parquet_files_only(self, target: Target) -> None:
        three_files(target)
        result = write(target, numbers(8, 9), mode="append")
        assert (result.mode, result.total_rows) == ("append", 2)
        assert target.rows(numbers().schema) == Counter(lines(numbers(*range(1, 10))))

    @EVERY_STORE
    def test_overwrite_replaces_parquet_data_files(self, target: Target) -> None:
        three_files(target)
        for name in ("README.txt", "_SUCCESS", "_logs/x.parquet", ".hidden.parquet"):
            target.store.put(name, FOREIGN[name])
        result = write(target, numbers(8, 9), mode="overwrite")
        assert result.mode == "overwrite"
        assert target.rows(numbers().schema) == Counter(lines(numbers(8, 9)))

    @EVERY_STORE
    @pytest.mark.parametrize("mode", ["overwrite", "append"])
    def test_partition_columns_are_those_of_the_dataset_unless_given(
        self, target: Target, mode: str
    ) -> None:
        write_days(target, days([1, 2], 1), days([3], 2))
        result = write(target, pa.concat_tables([days([7], 1), days([8], 3)]), mode=mode)
        new = [target.store.relative(file.path).rpartition("/")[0] for file in result.files]
        assert sorted(new) == ["day=2025-01-01", "day=2025-01-03"]
        assert sorted(str(file.partition_values["day"]) for file in result.files) == [
            "2025-01-01",
            "2025-01-03",
        ]

    @pytest.mark.parametrize(("columns", "expected"), [([], [""]), (["v"], ["v=a", "v=b"])])
    def test_an_overwrite_may_give_other_partition_columns(
        self, target: Target, columns: list[str], expected: list[str]
    ) -> None:
        write_days(target, days([1, 2], 1), days([3], 2))
        rows = pa.concat_tables([days([7], 1, "a"), days([8], 3, "b")])
        result = write(target, rows, mode="overwrite", partition_by=columns)
        new = [target.store.relative(file.path).rpartition("/")[0] for file in result.files]
        assert sorted(new) == expected

    def test_an_empty_overwrite_keeps_the_partition_columns(self, target: Target) -> None:
        write_days(target, days([1, 2], 1), days([3], 2))
        write(target, days([1], 1).slice(0, 0), mode="overwrite")
        write(target, days([4], 1))
        assert "day=2025-01-01" in {n.rpartition("/")[0] for n in data_files(target.store.tree())}

    def test_an_overwrite_without_a_partition_column_is_refused(self, target: Target) -> None:
        write_days(target, days([1, 2], 1))
        before = target.store.tree()
        with pytest.raises(ValueError, match=r"partitioned by \['day'\].*\n?.*partition_by=\[\]"):
            target.io.write_dataset(numbers(2), target.store.path, mode="overwrite")
        assert target.store.tree() == before

    def test_an_overwrite_of_contradicting_partitions_needs_partition_by(
        self, target: Target
    ) -> None:
        write_days(target, days([1, 2], 1))
        target.write("other=1/f.parquet", numbers(1))
        with pytest.raises(ValueError, match=r"Hint: .*partition_by"):
            target.io.write_dataset(days([7], 1), target.store.path, mode="overwrite")
        write(target, days([7], 1), mode="overwrite", partition_by=["day"])

    @EVERY_STORE
    def test_overwrite_partitions_replaces_those_that_the_source_has(self, target: Target) -> None:
        write_days(target, days([1, 2], 1), days([3], 2))
        source = pa.concat_tables([days([7], 1), days([8, 9], 3)])
        result = target.io.write_dataset(source, target.store.path, mode="overwrite_partitions")
        assert (result.mode, result.total_rows) == ("overwrite_partitions", 3)
        assert result.metrics["replaced_files"] == 1
        expected = pa.concat_tables([days([3], 2), source])
        assert target.rows(expected.schema) == Counter(lines(expected))

    @pytest.mark.parametrize("kind", PARTITIONS)
    def test_overwriting_a_partition_of(self, target: Target, kind: str) -> None:
        values = PARTITIONS[kind].take(pa.array([0, 1, 2]))
        write(target, pa.table({"id": range(3), "p": values}), partition_by=["p"])
        source = pa.table({"id": [7, 8], "p": values.take(pa.array([0, 0]))})
        target.io.write_dataset(source, target.store.path, mode="overwrite_partitions")
        kept = pa.table({"id": [1, 2, 7, 8], "p": values.take(pa.array([1, 2, 0, 0]))})
        assert target.rows(kept.schema) == Counter(lines(kept))

    def test_overwrite_partitions_replaces_null_and_every_spelling(self, target: Target) -> None:
        null = pa.scalar(None, pa.int64())
        for number, directory in enumerate(("p=1", "p=01", "p=__HIVE_DEFAULT_PARTITION__", "p=2")):
            target.write(f"{directory}/f.parquet", pa.table({"id": [number]}))
        source = pa.table({"id": [8, 9], "p": pa.array([1, None], pa.int64())})
        target.io.write_dataset(source, target.store.path, mode="overwrite_partitions")
        expected = pa.table({"id": [3, 8, 9], "p": pa.array([2, 1, null.as_py()], pa.int64())})
        assert target.rows(expected.schema) == Counter(lines(expected))

    def test_overwrite_partitions_by_no_rows_replaces_nothing(self, target: Target) -> None:
        write_days(target, days([1, 2], 1))
        before = target.store.tree()
        nothing = days([1], 1).slice(0, 0)
        target.io.write_dataset(nothing, target.store.path, mode="overwrite_partitions")
        assert target.store.tree() == before

    def test_overwrite_partitions_creates_a_dataset(self, target: Target) -> None:
        source = pa.concat_tables([days([1, 2], 1), days([3], 2)])
        mode: Any = {"mode": "overwrite_partitions"}
        with pytest.raises(ValueError, match=r"replaces partitions.*has none"):
            target.io.write_dataset(source, target.store.path, **mode)
        write(target, source, partition_by=["day"], **mode)
        assert target.rows(source.schema) == Counter(lines(source))

    @pytest.mark.parametrize("named", [None, [], ["id"]])
    def test_overwrite_partitions_of_a_dataset_without_or_of_others_is_refused(
        self, target: Target, named: list[str] | None
    ) -> None:
        if named is None:
            three_files(target)
        else:
            write_days(target, days([1, 2], 1))
        before = target.store.tree()
        with pytest.raises(ValueError, match="partition"):
            target.io.write_dataset(
                numbers(1) if named is None else days([1], 1),
                target.store.path,
                mode="overwrite_partitions",
                partition_by=named,
            )
        assert target.store.tree() == before

    def test_append_returns_written_file_metadata(self, target: Target) -> None:
        source = pa.concat_tables([days([1, 2], 1), days([3], 2)])
        result = write(target, source, partition_by=["day"])
        reported = {str(file.partition_values["day"]): file.row_count for file in result.files}
        assert reported == {"2025-01-01": 2, "2025-01-02": 1}

    def test_append_is_the_default(self, target: Target) -> None:
        three_files(target)
        assert write(target, numbers(8)).mode == "append"

    @EVERY_STORE
    def test_a_missing_directory_is_created(self, target: Target) -> None:
        write(target, numbers(1, 2), mode="append")
        assert target.rows(numbers().schema) == Counter(lines(numbers(1, 2)))

    @pytest.mark.parametrize("form", SOURCES)
    def test_data_as(self, target: Target, form: str) -> None:
        write(target, SOURCES[form](numbers(1, 2, 3)))
        assert target.rows(numbers().schema) == Counter(lines(numbers(1, 2, 3)))

    def test_filenames_are_unique(self, target: Target) -> None:
        names = {f.path for _ in range(3) for f in write(target, numbers(1)).files}
        assert len(names) == 3

    @EVERY_STORE
    def test_two_appends_with_the_same_template_never_collide(self, target: Target) -> None:
        for _ in range(2):
            result = write(
                target, numbers(*range(5)), basename_template="day-{i}.parquet", max_rows_per_file=2
            )
            names = [target.store.relative(file.path) for file in result.files]
            assert all(name.startswith("day-") and name.endswith(".parquet") for name in names)
        assert len(data_files(target.store.tree())) == 6

    @pytest.mark.parametrize(
        "template", ["../x-{i}.parquet", "_x-{i}.parquet", "a/{i}", "{day}.parquet"]
    )
    def test_a_template_must_name_data_inside_the_dataset(
        self, target: Target, template: str
    ) -> None:
        with pytest.raises(ValueError, match=r"not allowed|basename_template"):
            target.io.write_dataset(numbers(1), target.store.path, basename_template=template)
        assert target.store.tree() == {}

    def test_max_rows_per_file_splits(self, target: Target) -> None:
        result = write(target, numbers(*range(10)), max_rows_per_file=4, row_group_size=3)
        assert sorted(file.row_count for file in result.files) == [2, 4, 4]
        footers = [target.store.footer(target.store.relative(f.path)) for f in result.files]
        groups = [f.row_group(n).num_rows for f in footers for n in range(f.num_row_groups)]
        assert max(groups) <= 3

    @pytest.mark.parametrize(
        ("option", "value"), [("max_rows_per_file", 0), ("row_group_size", -1)]
    )
    def test_sizes_must_be_positive(self, target: Target, option: str, value: int) -> None:
        with pytest.raises(ValueError, match=option):
            target.io.write_dataset(numbers(1), target.store.path, **{option: value})

    def test_compression_and_bloom_columns(self, target: Target) -> None:
        result = write(target, numbers(1, 2), compression="zstd", bloom_columns=["id"])
        group = target.store.footer(target.store.relative(result.files[0].path)).row_group(0)
        assert group.column(0).compression == "ZSTD"
        offsets = [group.column(number).bloom_filter_offset for number in (0, 1)]
        assert [offset is None for offset in offsets] == [False, True]

    def test_a_write_takes_strings_and_none(self, target: Target) -> None:
        result = write(
            target,
            numbers(1, 2),
            partition_by="v",
            compression=None,
            max_rows_per_file=None,
            row_group_size=None,
            bloom_columns="id",
        )
        (file,) = result.files
        assert json.loads(json.dumps(result.to_dict())) == {
            "files": [
                {
                    "path": file.path,
                    "row_count": 2,
                    "size_bytes": file.size_bytes,
                    "partition_values": {"v": "old"},
                }
            ],
            "total_rows": 2,
            "mode": "append",
            "metrics": result.metrics,
        }
        commit = result.metrics["commit"]
        assert (commit["number"], commit["published"], commit["skipped"]) == (1, "plain", False)
        chunk = target.store.footer(target.store.relative(file.path)).row_group(0).column(0)
        assert chunk.compression == "UNCOMPRESSED"
        assert chunk.bloom_filter_offset is not None

    def test_schema_casts_what_is_written(self, target: Target) -> None:
        wanted = pa.schema([("id", pa.int32()), ("v", pa.large_string())])
        result = write(target, numbers(1, 2), schema=wanted)
        assert target.store.schema(target.store.relative(result.files[0].path)).equals(wanted)

    def test_a_write_reports_the_beginning_and_the_end_of_every_phase(self, target: Target) -> None:
        seen: list[tuple[str, int, int]] = []
        write(target, numbers(1, 2), progress=lambda *event: seen.append(event))
        phases = ("stage", "plan", "insert", "commit")
        assert seen == [(phase, done, 1) for phase in phases for done in (0, 1)]

    def test_mode_must_exist(self, target: Target) -> None:
        with pytest.raises(ValueError, match=r"append.*overwrite|overwrite.*append"):
            target.io.write_dataset(numbers(1), target.store.path, mode="truncate")
        assert target.store.tree() == {}

    @pytest.mark.parametrize("kind", PARTITIONS)
    def test_writing_a_partition_column_of(self, target: Target, kind: str) -> None:
        values = PARTITIONS[kind].take(pa.array([0, 1, 2, 0]))
        source = pa.table({"id": range(4), "p": values, "v": ["x"] * 4})
        result = write(target, source, partition_by=["p"])
        assert len(result.files) == 3
        assert target.rows(source.schema) == Counter(lines(source))
        names = {
            name
            for f in result.files
            for name in target.store.schema(target.store.relative(f.path)).names
        }
        assert names == {"id", "v"}

    def test_appends_follow_the_layout_that_is_there(self, target: Target) -> None:
        write_days(target, days([1], 1), days([2], 2))
        write(target, days([3], 1))
        assert {name.split("/")[0] for name in target.store.tree()} == {
            "day=2025-01-01",
            "day=2025-01-02",
        }

    def test_partition_by_must_agree_with_the_layout(self, target: Target) -> None:
        write_days(target, days([1], 1))
        before = target.store.tree()
        with pytest.raises(ValueError, match="partition"):
            target.io.write_dataset(days([1], 1), target.store.path, partition_by=["id"])
        assert target.store.tree() == before

    def test_writing_an_empty_string_as_partition_value(self, target: Target) -> None:
        source = pa.table({"id": [1, 2], "p": ["a", ""]})
        with pytest.raises(ValueError, match="empty string"):
            target.io.write_dataset(source, target.store.path, partition_by=["p"])
        assert target.store.tree() == {}

    @EVERY_STORE
    @pytest.mark.parametrize("mode", ["append", "overwrite"])
    def test_the_old_data_stays_when_the_write_fails(self, target: Target, mode: str) -> None:
        def batches() -> Any:
            yield from numbers(8).to_batches()
            raise OSError("the source broke")

        three_files(target)
        before = target.store.tree()
        reader = pa.RecordBatchReader.from_batches(numbers().schema, batches())
        with pytest.raises(OSError, match="the source broke"):
            target.io.write_dataset(reader, target.store.path, mode=mode, max_rows_per_file=1)
        assert target.store.tree() == before

    def test_appends_at_the_same_time_are_all_there(
        self, connect: Callable[..., Any], target: Target
    ) -> None:
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                with connect(**target.store.options) as io:
                    io.write_dataset(numbers(number), target.store.path)
            except BaseException as error:  # a thread's error must reach the test
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert target.rows(numbers().schema) == Counter(lines(numbers(0, 1, 2, 3)))

    @pytest.mark.parametrize("mode", ["append", "overwrite", "overwrite_partitions"])
    def test_a_write_follows_partitions_that_others_change_meanwhile(
        self, connect: Callable[..., Any], target: Target, mode: str
    ) -> None:
        """A file in a directory of the old partitions would make the dataset unreadable."""
        old, new = days([1, 2], 1), days([3], 1)
        write_days(target, old)
        changed: list[str] = []

        def progress(phase: str, done: int, _: int) -> None:
            if phase == "commit" and not done and not changed:
                changed.append(phase)
                options: Any = {"mode": "overwrite", "partition_by": ["v"]}
                with connect(**target.store.options) as other:
                    other.write_dataset(old, target.store.path, **options)

        target.io.write_dataset(new, target.store.path, mode=mode, progress=progress)
        assert changed
        expected = pa.concat_tables([old, new]) if mode == "append" else new
        found = as_table(target.io.read_dataset(target.store.path))
        assert {name.split("=")[0] for name in data_files(target.store.tree())} == {"v"}
        assert Counter(lines(found.select(expected.column_names))) == Counter(lines(expected))

    @EVERY_STORE
    def test_what_was_written_can_be_merged_into(self, target: Target) -> None:
        source = pa.concat_tables([days([1, 2], 1), days([3], 2)])
        write(target, source, partition_by=["day"])
        result: MergeResult = target.merge(days([2, 4], 1, "new"))
        assert (result.updated, result.inserted) == (1, 1)


class _Stopping:
    """A disk that fails at one call and at all that follow."""

    def __init__(self, at: int) -> None:
        self._left = at

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        self._left -= 1
        if self._left < 0:
            raise OSError(errno.EIO, "injected", call.paths[0])
        yield


class ReadTests:
    """Reading what is there."""

    @EVERY_STORE
    def test_reading_and_writing_round_trip(self, target: Target) -> None:
        source = pa.concat_tables([days([1, 2], 1), days([3], 2)])
        target.io.write_dataset(source, target.store.path, partition_by=["day"])
        found = as_table(target.io.read_dataset(target.store.path))
        assert Counter(lines(found)) == Counter(lines(source))

    def test_reading_some_columns(self, target: Target) -> None:
        three_files(target)
        found = as_table(target.io.read_dataset(target.store.path, columns=["v"]))
        assert found.column_names == ["v"]
        assert found.num_rows == 7

    def test_reading_some_rows(self, target: Target) -> None:
        three_files(target)
        found = as_table(target.io.read_dataset(target.store.path, filters=[("id", ">", 5)]))
        assert sorted(found["id"].to_pylist()) == [6, 7]

    def test_reading_skips_files_without_data(self, target: Target) -> None:
        three_files(target)
        for name, data in FOREIGN.items():
            target.store.put(name, data)
        assert as_table(target.io.read_dataset(target.store.path)).num_rows == 7

    @pytest.mark.parametrize("what", ["Delta", "Iceberg", "Hudi", "'_p=1'"])
    def test_reading_other_tables_is_refused(self, target: Target, what: str) -> None:
        target.write("a.parquet", numbers(1))
        target.store.put(REFUSED[what], b"{}")
        with pytest.raises(ValueError, match=rf"{what}.*Hint:"):
            target.io.read_dataset(target.store.path)

    def test_reading_a_column_in_path_and_file_that_disagrees(self, target: Target) -> None:
        target.write("p=1/f.parquet", pa.table({"id": [1, 2], "p": [1, 2]}))
        with pytest.raises(ValueError, match="other values of 'p' than its path"):
            target.io.read_dataset(target.store.path)

    @EVERY_STORE
    def test_reading_files_by_name_and_by_glob(self, target: Target) -> None:
        for year, month in ((2024, 1), (2024, 2), (2025, 1)):
            table = numbers(year + month, v="x")
            target.write(f"year={year}/month={month}/f.parquet", table)
        target.store.put("year=2024/month=1/notes.txt", b"not data")
        for pattern, expected in (
            ("year=2024/month=1/f.parquet", [2025]),
            ("year=2024/month=1/*", [2025]),
            ("year=2024/*/*.parquet", [2025, 2026]),
            ("year=*/month=1/f.parquet", [2025, 2026]),
            ("**/f.parquet", [2025, 2026, 2026]),
            ("year=202[5-9]/**/*.parquet", [2026]),
        ):
            found = as_table(target.io.read_dataset(f"{target.store.path}/{pattern}"))
            assert found.column_names == ["id", "v", "year", "month"]
            assert sorted(found["id"].to_pylist()) == expected
            for row in found.to_pylist():
                assert row["id"] == row["year"] + row["month"]

    def test_a_glob_that_names_nothing(self, target: Target) -> None:
        three_files(target)
        for pattern in ("x*.parquet", "none/*", "*.txt"):
            with pytest.raises(FileNotFoundError, match=r"no data files that .*\n?Hint: check"):
                target.io.read_dataset(f"{target.store.path}/{pattern}")
        with pytest.raises(FileNotFoundError, match=r"x.parquet' holds no data files"):
            target.io.read_dataset(f"{target.store.path}/x.parquet")

    def test_a_glob_does_not_read_around_another_format(self, target: Target) -> None:
        target.write("a.parquet", numbers(1))
        target.store.put(REFUSED["Delta"], b"{}")
        for name in ("a.parquet", "*.parquet"):
            with pytest.raises(ValueError, match=r"Delta.*Hint:"):
                target.io.read_dataset(f"{target.store.path}/{name}")

    def test_names_with_the_characters_of_a_glob(self, target: Target) -> None:
        target.write("day=[1]/a[1].parquet", numbers(1))
        target.write("day=1/a1.parquet", numbers(2))
        found = as_table(target.io.read_dataset(f"{target.store.path}/day=[1]/a[1].parquet"))
        assert found.select(["id", "day"]).to_pylist() == [{"id": 1, "day": "[1]"}]

    def test_files_of_a_commit_that_is_not_complete(self, target: Target) -> None:
        """The state after the commit is read, whatever is on disk already."""
        target.write("p=1/a.parquet", numbers(1, 2))
        target.write("p=2/b.parquet", numbers(3))
        seen: list[list[int]] = []

        def look() -> None:
            found = as_table(target.io.read_dataset(f"{target.store.path}/p=1/*.parquet"))
            seen.append(sorted(found["id"].to_pylist()))

        for at in (12, 24, 36, 48):
            with syscalls.observed(_Stopping(at)), suppress(OSError, errors.FsspeckitError):
                target.io.delete([1], target.store.path, "id")
            look()
        assert all(ids in ([1, 2], [2]) for ids in seen)
        assert seen[-1] == [2]

    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ("id > 5", [6, 7]),
            ("id IN (1, 4, 9) OR v = 'none'", [1, 4]),
            ("NOT id BETWEEN 2 AND 6 AND v LIKE 'o%'", [1, 7]),
            ("id IS NULL", []),
        ],
    )
    def test_filters_as_sql_text(self, target: Target, filters: str, expected: list[int]) -> None:
        three_files(target)
        found = as_table(target.io.read_dataset(target.store.path, filters=filters, columns="id"))
        assert (found.column_names, sorted(found["id"].to_pylist())) == (["id"], expected)
        deleted = target.io.delete(None, target.store.path, where=filters).deleted
        assert deleted == len(expected)  # the same rows as a delete would select

    def test_sql_text_is_about_partitions_and_values_of_every_type(self, target: Target) -> None:
        write_days(target, days([1, 2], 1), days([3], 2))
        text = "day = DATE '2025-01-02'"
        found = as_table(target.io.read_dataset(target.store.path, filters=text))
        assert found["id"].to_pylist() == [3]
        table = pa.table({"id": [1, 2], "n": [[{"a": 1}], None], "f": [float("nan"), 1.0]})
        target.write("day=2025-01-03/f.parquet", table)
        for path, where in (
            ("day=2025-01-03/*", "f > 5"),
            ("day=2025-01-03/f.parquet", "n IS NOT NULL"),
        ):
            found = as_table(target.io.read_dataset(f"{target.store.path}/{path}", filters=where))
            assert found.select(["id", "n"]).to_pylist() == [{"id": 1, "n": [{"a": 1}]}]

    def test_sql_text_rules_out_files_by_their_statistics(self, target: Target) -> None:
        three_files(target)
        target.store.put(
            "b.parquet",
            target.store.tree()["b.parquet"].data[:4]
            + b"damaged" * 9
            + target.store.tree()["b.parquet"].data[67:],
        )
        found = as_table(target.io.read_dataset(target.store.path, filters="id = 7"))
        assert found["id"].to_pylist() == [7]

    @pytest.mark.parametrize(
        ("filters", "match"),
        [("nothing = 1", "filters"), ("id >", "filters"), ("id = 'a'", "id"), (7, "SQL text")],
    )
    def test_filters_that_do_not_fit(self, target: Target, filters: Any, match: str) -> None:
        three_files(target)
        with pytest.raises(ValueError, match=match):
            target.io.read_dataset(target.store.path, filters=filters)

    def test_reading_what_is_not_there(self, target: Target) -> None:
        with pytest.raises(FileNotFoundError, match="data"):
            target.io.read_dataset(target.store.path)
