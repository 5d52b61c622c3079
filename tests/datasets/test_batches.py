"""One batch of a feed is one commit, applied once, on every engine."""

from __future__ import annotations

import json
import logging
import pickle
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import fsspeckit
from fsspeckit import Transaction
from fsspeckit.core.expectations import QUARANTINE_COLUMNS, parse_expectations
from fsspeckit.datasets.batches import BatchTarget, check_arrow, commit_batch
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.registry import open_engine
from fsspeckit.errors import (
    ExpectationError,
    InvalidArgumentError,
    SchemaMismatchError,
    TransactionResetError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fsspeckit.datasets.base import DatasetIO
    from fsspeckit.datasets.batches import BatchResult

UPSERT: dict[str, Any] = {"strategy": "upsert", "key_columns": "id"}
ROWS = pa.table({"id": [1, 2, 3, 4], "v": [10, -2, None, 1000]})
EXPECT: dict[str, Any] = {
    "positive": "v >= 0",
    "known": ("v IS NOT NULL", "quarantine"),
    "small": ("v < 100", "drop"),
}


@pytest.fixture(
    params=[
        "pyarrow",
        "duckdb",
        pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow]),
    ]
)
def io(request: pytest.FixtureRequest) -> DatasetIO:
    """Each engine."""
    if request.param == "spark":
        from fsspeckit.datasets.spark import SparkDatasetIO

        return SparkDatasetIO(request.getfixturevalue("spark"))
    return open_engine(request.param)


class Feed:
    """Batches of one application, as a sink commits them."""

    def __init__(self, io: DatasetIO, root: Path, run: str | None = "query") -> None:
        self.io, self.run = io, run
        self.arguments = UPSERT
        self.path, self.quarantine = str(root / "orders"), str(root / "bad")

    def target(self, expect: Mapping[str, Any] | None = None) -> BatchTarget:
        expectations = parse_expectations(expect)
        is_used = any(each.action == "quarantine" for each in expectations)
        quarantine = self.quarantine if is_used else None
        return BatchTarget(self.path, "merge", self.arguments, expectations, quarantine)

    def commit(
        self, batch: int, rows: Any = ROWS, expect: Mapping[str, Any] | None = None
    ) -> BatchResult:
        target, transaction = self.target(expect), Transaction("feed", batch, self.run)
        check = partial(check_arrow, expectations=target.expectations, transaction=transaction)
        return commit_batch(self.io, target, rows, check, transaction)

    def rows(self, path: str | None = None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (
            PyarrowDatasetIO().read_dataset(path or self.path).sort_by("id").to_pylist()
        )
        return found

    @property
    def set_apart(self) -> list[tuple[int, list[str], int]]:
        """Key, reasons and batch of each row in quarantine."""
        return [
            (row["id"], row["quarantine_reasons"], row["quarantine_batch"])
            for row in self.rows(self.quarantine)
        ]


@pytest.fixture
def feed(io: DatasetIO, tmp_path: Path) -> Feed:
    return Feed(io, tmp_path)


@pytest.fixture
def arrow_feed(tmp_path: Path) -> Feed:
    """A feed on the first engine, for what does not depend on engines."""
    return Feed(PyarrowDatasetIO(), tmp_path)


def test_rows_go_where_their_violations_say(feed: Feed) -> None:
    result = feed.commit(5, expect=EXPECT)
    assert [row["id"] for row in feed.rows()] == [1, 2]
    assert feed.set_apart == [(3, ["positive", "known", "small"], 5)]
    assert result.counts == {"dropped": 1, "quarantined": 1}
    assert result.violations == {"positive": 2, "known": 1, "small": 2}
    (entry,) = fsspeckit.history(feed.path)
    assert {**entry.counts} == {
        "inserted": 2,
        "updated": 0,
        "deleted": 0,
        "dropped": 1,
        "quarantined": 1,
    }
    assert entry.transaction == Transaction("feed", 5, "query")
    assert fsspeckit.history(feed.quarantine)[0].transaction == entry.transaction


def test_rows_in_quarantine_have_all_columns(feed: Feed) -> None:
    feed.commit(0, expect=EXPECT)
    table = PyarrowDatasetIO().read_dataset(feed.quarantine)
    assert table.column_names == [*ROWS.column_names, *QUARANTINE_COLUMNS.names]
    assert table.schema.field("quarantine_time").type == pa.timestamp("us", "UTC")
    assert table.column("quarantine_application").to_pylist() == ["feed"]


def test_a_batch_that_is_repeated_is_skipped_unread(feed: Feed) -> None:
    feed.commit(0, expect=EXPECT)
    PyarrowDatasetIO().merge(pa.table({"id": [1], "v": [11]}), feed.path, **UPSERT)
    result = feed.commit(0, rows="must not be read", expect=EXPECT)
    assert result.skipped
    assert feed.rows()[0] == {"id": 1, "v": 11}
    assert len(feed.set_apart) == 1


class DiesBeforeTheMerge(PyarrowDatasetIO):
    """An engine whose process ends when rows are in quarantine, and before they are merged."""

    path = ""

    def _run(self, data: Any, path: str, options: Any) -> Any:
        if path == self.path:
            raise KeyboardInterrupt
        return super()._run(data, path, options)


def die_before_the_merge(feed: Feed, batch: int, expect: Mapping[str, Any]) -> None:
    feed.io = DiesBeforeTheMerge()
    feed.io.path = feed.path
    with pytest.raises(KeyboardInterrupt):
        feed.commit(batch, expect=expect)


def test_the_quarantine_is_exact_whatever_dies_between_both_commits(feed: Feed) -> None:
    io = feed.io
    feed.commit(0, expect=EXPECT)
    for _ in range(2):
        die_before_the_merge(feed, 1, EXPECT)
    feed.io = io
    assert not feed.commit(1, expect=EXPECT).skipped
    reasons = ["positive", "known", "small"]
    assert sorted(feed.set_apart) == [(3, reasons, 0), (3, reasons, 1)]
    assert [entry.transaction.version for entry in fsspeckit.history(feed.path)] == [0, 1]  # type: ignore[union-attr]


def test_another_predicate_replaces_what_the_first_attempt_has_set_apart(
    arrow_feed: Feed,
) -> None:
    die_before_the_merge(arrow_feed, 0, EXPECT)
    arrow_feed.io = PyarrowDatasetIO()
    arrow_feed.commit(0, expect={"small": ("v < 5", "quarantine")})
    assert [row["id"] for row in arrow_feed.rows()] == [2]
    assert [key for key, _, _ in arrow_feed.set_apart] == [1, 3, 4]


def test_another_predicate_may_leave_nothing_to_set_apart(arrow_feed: Feed) -> None:
    die_before_the_merge(arrow_feed, 0, EXPECT)
    arrow_feed.io = PyarrowDatasetIO()
    arrow_feed.commit(0, expect={"any": ("id > 0", "quarantine")})
    assert len(arrow_feed.rows()) == 4
    assert arrow_feed.set_apart == []


def test_a_quarantine_whose_files_are_gone_is_written_again(arrow_feed: Feed) -> None:
    die_before_the_merge(arrow_feed, 0, EXPECT)
    for file in Path(arrow_feed.quarantine).iterdir():
        file.unlink()
    arrow_feed.io = PyarrowDatasetIO()
    arrow_feed.commit(0, expect=EXPECT)
    assert len(arrow_feed.set_apart) == 1


def test_datasets_do_not_share_a_quarantine(arrow_feed: Feed, tmp_path: Path) -> None:
    arrow_feed.commit(0, expect=EXPECT)
    arrow_feed.path = str(tmp_path / "others")
    with pytest.raises(InvalidArgumentError, match="a quarantine of its own"):
        arrow_feed.commit(0, expect=EXPECT)
    assert not Path(arrow_feed.path).exists()


@pytest.mark.parametrize("name", ["link", "link/bad", "x/../orders", ".orders.fsspeckit/bad"])
def test_a_quarantine_is_never_the_dataset_under_another_name(
    arrow_feed: Feed, tmp_path: Path, name: str
) -> None:
    (tmp_path / "link").symlink_to(arrow_feed.path)
    arrow_feed.commit(0)
    arrow_feed.quarantine = f"file://{tmp_path}/{name}"
    with pytest.raises(InvalidArgumentError, match=r"must not contain each other.\nHint"):
        arrow_feed.commit(1, expect=EXPECT)
    assert len(fsspeckit.history(arrow_feed.path)) == 1


def test_columns_of_the_quarantine_change_as_those_of_the_dataset(feed: Feed) -> None:
    both, more = {"all": ("v > 99", "quarantine")}, pa.table({"id": [5], "v": [1], "w": ["x"]})
    feed.commit(0, expect=both)
    with pytest.raises(SchemaMismatchError) as caught:
        feed.commit(1, more, both)
    assert feed.quarantine in caught.value.__notes__[0]
    feed.arguments = {**UPSERT, "schema_changes": "add"}
    feed.commit(1, more, both)
    assert [(row["id"], row["w"]) for row in feed.rows(feed.quarantine)[-2:]] == [
        (3, None),
        (5, "x"),
    ]


def test_the_quarantine_has_a_control_directory_of_its_own(tmp_path: Path) -> None:
    feed = Feed(PyarrowDatasetIO(control_dir=str(tmp_path / "control")), tmp_path)
    feed.commit(0, expect=EXPECT)
    assert (tmp_path / ".bad.fsspeckit").is_dir()
    assert fsspeckit.history(feed.path)[0].counts["quarantined"] == 1


def test_a_batch_that_fails_changes_nothing(feed: Feed, tmp_path: Path) -> None:
    with pytest.raises(ExpectationError, match=r"1 row\(s\) violate 'no 1' \(id <> 1\)"):
        feed.commit(0, expect={**EXPECT, "no 1": ("id <> 1", "fail")})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("batch", [0, 6])
def test_a_stream_does_not_go_back(arrow_feed: Feed, batch: int) -> None:
    arrow_feed.commit(7)
    with pytest.raises(TransactionResetError, match="Hint"):
        arrow_feed.commit(batch, rows="must not be read")


def test_a_reset_counter_of_a_quarantine_names_it(arrow_feed: Feed) -> None:
    arrow_feed.commit(7, expect=EXPECT)
    for control in Path(arrow_feed.path).parent.glob(".orders.fsspeckit/commits/*"):
        control.unlink()
    arrow_feed.run = "another"
    with pytest.raises(TransactionResetError) as caught:
        arrow_feed.commit(0, expect=EXPECT)
    assert arrow_feed.quarantine in caught.value.__notes__[0]


def test_a_job_may_repeat_any_batch(tmp_path: Path) -> None:
    feed = Feed(PyarrowDatasetIO(), tmp_path, run=None)
    feed.commit(7)
    assert feed.commit(6, rows="must not be read").skipped


def test_rows_without_a_transaction_are_applied_each_time(arrow_feed: Feed) -> None:
    target = arrow_feed.target(EXPECT)
    check = partial(check_arrow, expectations=target.expectations)
    for _ in range(2):
        result = commit_batch(arrow_feed.io, target, ROWS, check, None)
    assert str(result).startswith(f"rows into {arrow_feed.path}: 0 inserted, 2 updated")
    assert [batch for _, _, batch in arrow_feed.set_apart] == [None, None]


@pytest.mark.parametrize(
    ("call", "arguments", "ids"),
    [
        ("append", {}, [1, 1]),
        ("append", {"partition_by": "v", "compression": "zstd"}, [1, 1]),
        ("overwrite", {}, [1]),
        ("merge", UPSERT, [1]),
        ("apply_changes", {"keys": "id", "sequence_by": "v"}, [1]),
    ],
)
def test_every_call_commits_batches(
    arrow_feed: Feed, call: Any, arguments: dict[str, Any], ids: list[int]
) -> None:
    target = BatchTarget(arrow_feed.path, call, arguments)
    rows = pa.table({"id": [1], "v": [1]})
    for batch in (0, 1, 1):
        result = commit_batch(arrow_feed.io, target, rows, None, Transaction("feed", batch, "run"))
    assert result.skipped
    assert [row["id"] for row in arrow_feed.rows()] == ids


def test_each_batch_is_one_log_line(arrow_feed: Feed, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fsspeckit")
    for batch in (0, 1, 1):
        result = arrow_feed.commit(batch, expect=EXPECT)
    first, second, third = (r.message for r in caplog.records if r.name == "fsspeckit")
    assert first.startswith(
        f"batch 0 of feed into {arrow_feed.path}: 2 inserted, 0 updated, 0 deleted, 1 dropped, "
        "1 quarantined, 2 violate 'positive', 1 violate 'known', 2 violate 'small'; "
    )
    assert " written; commit 1, " in first
    assert "0 B written; commit 2" in second
    assert third.startswith(
        f"batch 1 of feed into {arrow_feed.path}: skipped: committed already; commit 2, "
    )
    assert third == str(result)


def test_a_result_can_be_shown_and_stored(arrow_feed: Feed) -> None:
    arrow_feed.commit(0)
    result = arrow_feed.commit(1, rows=pa.table({"id": [1], "v": [11]}))
    document = json.loads(json.dumps(result.to_dict()))
    assert (document["application"], document["batch"]) == ("feed", 1)
    assert document["result"]["updated"] == 1
    assert "1 file rewritten" in str(result)
    assert "1 file rewritten" in result._repr_html_()


# Gates on Arrow rows


def batches_of(directory: Path, count: int) -> ds.Dataset:
    """Rows in as many files."""
    for number in range(count):
        table = pa.table({"id": [2 * number, 2 * number + 1], "v": [number, None]})
        ds.write_dataset(
            table,
            directory,
            format="parquet",
            basename_template=f"{number}-{{i}}",
            existing_data_behavior="overwrite_or_ignore",
        )
    return ds.dataset(directory)


def test_a_dataset_is_checked_piece_by_piece(tmp_path: Path) -> None:
    rows = batches_of(tmp_path, 3)
    checked = check_arrow(rows, parse_expectations({"known": "v >= 0"}, "quarantine"))
    assert isinstance(checked.rows, pa.RecordBatchReader)
    assert sorted(checked.rows.read_all()["id"].to_pylist()) == [0, 2, 4]
    assert sorted(checked.quarantined["id"].to_pylist()) == [1, 3, 5]
    assert checked.counts == {"quarantined": 3}


def test_a_dataset_that_violates_nothing_is_passed_on(tmp_path: Path) -> None:
    rows = batches_of(tmp_path, 2)
    checked = check_arrow(rows, parse_expectations({"any": "id >= 0"}, "drop"))
    assert checked.rows is rows
    assert (checked.counts, checked.violations) == ({"dropped": 0}, {"any": 0})


def test_a_failure_counts_all_rows_and_shows_some(tmp_path: Path) -> None:
    with pytest.raises(ExpectationError, match=r"5 row\(s\)") as caught:
        check_arrow(batches_of(tmp_path, 5), parse_expectations({"known": "v >= 0"}, "fail"))
    assert len(caught.value.samples) == 3


def test_without_expectations_rows_stay_as_they_are() -> None:
    assert check_arrow(ROWS, ()).rows is ROWS


@pytest.mark.parametrize(
    ("expect", "words"),
    [
        ({"odd": "amount > 0"}, r"expect\['odd'\] 'amount > 0': there is no column 'amount'"),
        ({"odd": "v >"}, r"expect\['odd'\]"),
        ({"odd": "abs(v) > 1"}, r"expect\['odd'\]"),
    ],
)
def test_a_predicate_that_does_not_fit_is_named(expect: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        check_arrow(ROWS, parse_expectations(expect))


def test_a_source_with_a_column_of_the_quarantine_is_refused() -> None:
    rows = ROWS.append_column("quarantine_time", ROWS["v"])
    assert check_arrow(rows, parse_expectations({"known": "v >= 0"}, "drop")).rows.num_rows == 2
    with pytest.raises(InvalidArgumentError, match="quarantine_time"):
        check_arrow(rows, parse_expectations({"known": "v >= 0"}, "quarantine"))


# What a target takes


def test_a_target_can_be_pickled(arrow_feed: Feed) -> None:
    target = arrow_feed.target(EXPECT)
    assert pickle.loads(pickle.dumps(target)) == target


WARN = parse_expectations({"positive": "v > 0"})
SET_APART = parse_expectations({"positive": "v > 0"}, "quarantine")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"call": "replace"}, "call must be one of 'merge', 'apply_changes', 'append'"),
        ({"path": ""}, "path must be the path or URL"),
        ({"path": None}, "path must be the path or URL"),
        ({"arguments": {**UPSERT, "strategy": "upsrt"}}, "strategy must be one of"),
        ({"arguments": {**UPSERT, "key_columns": []}}, "key_columns"),
        ({"expectations": SET_APART}, r"Hint: pass quarantine="),
        ({"expectations": WARN, "quarantine": "bad"}, r"no expectation has the action"),
        ({"expectations": SET_APART, "quarantine": ""}, "quarantine must be the path or URL"),
        ({"expectations": SET_APART, "quarantine": "orders/"}, "must not contain each other"),
        ({"expectations": SET_APART, "quarantine": "orders/bad"}, "must not contain each other"),
    ],
)
def test_a_wrong_target_is_refused_before_any_batch(changed: dict[str, Any], words: str) -> None:
    target: dict[str, Any] = {"path": "orders", "call": "merge", "arguments": UPSERT}
    BatchTarget(**target)
    with pytest.raises(InvalidArgumentError, match=words):
        BatchTarget(**{**target, **changed})
