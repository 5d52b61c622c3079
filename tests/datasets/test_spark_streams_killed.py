"""A day of orders, applied by a query that is killed at random: every row counts once.

With FSSPECKIT_TORTURE=1 the day has 500 files and the query is killed 30 times, on a local session
and on a cluster of two workers, classic and on Connect; the figures go into the documentation.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from tests.datasets.spark_cluster import standalone_cluster
from tests.datasets.stream_job import StreamJob
from tests.datasets.stream_lives import (
    SESSION,
    Kill,
    Lives,
    Server,
    control_directory,
    random_kills,
)
from tests.storage.figures import write_line

import fsspeckit
from fsspeckit.testing.landing import Day, make_day

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.datasets.stream_job import Sink
    from tests.datasets.stream_lives import Moment

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.untraced]

TORTURE = bool(os.environ.get("TORTURE"))
PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "commit-protocol.md"
SINKS: tuple[Sink, ...] = ("foreachBatch", "format")
PLACES = ("local", "cluster", "local Connect", "Connect on the cluster")
CASES = [(place, sink) for place in PLACES for sink in SINKS]
UNFINISHED = (".staging_", ".opening_", ".shadow_", ".old_", ".dropped_")
"""What a writer that is killed leaves in a control directory."""


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    """Whatever is started for a test and ends with it.

    None of it is measured: a process that is killed leaves half a file of coverage.
    """
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    with ExitStack() as opened:
        yield opened


@pytest.mark.parametrize(("place", "sink"), CASES if TORTURE else CASES[:1])
def test_a_day_of_a_query_that_is_killed(
    tmp_path: Path, stack: ExitStack, place: str, sink: Sink
) -> None:
    day, random = make_day(files=500, orders=4000, seed=7), Random(f"{place} {sink}")
    # Spark calls no function of ours after the commit of a format: it cannot be held there.
    moments: list[Moment] = ["random", "record", "quarantine", "held"]
    kills = random_kills(random, 30, moments if sink == "foreachBatch" else moments[:3])
    if not TORTURE:
        day = make_day(files=12, orders=200, seed=7)
        kills = [Kill("held", "driver"), Kill("random", "jvm")]
    settings, server = _session(tmp_path, stack, place)
    job = StreamJob(str(tmp_path / "day"), sink, settings)
    lives = stack.enter_context(
        Lives(job, day, seconds=5 if place == "local" else 8, server=server)
    )
    lives.run(kills, random)
    _check(job, day)
    assert lives.figures["kills"] == len(kills)
    assert lives.figures["before the checkpoint"] > 0
    _report(place, sink, lives.figures)


def _session(directory: Path, stack: ExitStack, place: str) -> tuple[dict[str, str], Server | None]:
    """The settings of a session, and the server that has it."""
    settings = {**SESSION, "spark.master": "local[2]"}
    settings["spark.sql.warehouse.dir"] = str(directory / "warehouse")
    if "cluster" in place:
        cluster = stack.enter_context(standalone_cluster(directory, memory="1g"))
        settings["spark.master"] = cluster.url
    if "Connect" in place:
        return {}, Server(directory, settings, stack)
    return settings, None


def _check(job: StreamJob, day: Day) -> None:
    """The rows are those of the model, each bad one is in quarantine once, and nothing is left."""
    batches = {path: _check_dataset(path) for path in (job.path, job.quarantine)}
    rows = _rows(job.path)
    assert rows == _counted(day.expected_rows())
    quarantined = pq.read_table(job.quarantine)
    assert {tuple(reasons) for reasons in quarantined["quarantine_reasons"].to_pylist()} == {
        ("valid amount",)
    }
    added = [name for name in quarantined.column_names if name.startswith("quarantine_")]
    assert _counted(quarantined.drop_columns(added).to_pylist()) == _counted(
        day.expected_quarantine()
    )
    assert batches[job.path] == list(range(len(batches[job.path])))
    assert set(batches[job.quarantine]) <= set(batches[job.path])


def _check_dataset(path: Path) -> list[int]:
    """Nothing is left of those who were killed; gives the batches on record, each of them once."""
    control = control_directory(path)
    fsspeckit.recover(str(path))
    assert [one.name for one in control.iterdir() if one.name.startswith(UNFINISHED)] == []
    assert [file for file in (control / "incoming").rglob("*") if file.is_file()] == []
    batches = [entry.transaction for entry in fsspeckit.history(str(path))]
    assert len({batch.application for batch in batches if batch is not None}) == 1
    return sorted(batch.version for batch in batches if batch is not None)


def _rows(path: Path) -> Counter[str]:
    """The rows as any reader of plain Parquet finds them, and as ours does."""
    plain = _counted(pq.read_table(path).to_pylist())
    assert _counted(fsspeckit.read_dataset(str(path), engine="pyarrow").to_pylist()) == plain
    return plain


def _counted(rows: list[dict[str, Any]]) -> Counter[str]:
    """How often each row is there, whatever the order of its columns."""
    return Counter(json.dumps(row, sort_keys=True, default=_as_text) for row in rows)


def _as_text(value: date) -> str:
    return (value.astimezone(UTC) if isinstance(value, datetime) else value).isoformat()


def _report(place: str, sink: str, figures: Counter[str]) -> None:
    names = [
        *("files", "batches", "kills", "jvm", "driver", "both"),
        *("before the checkpoint", "between the commits", "hung"),
    ]
    line = (f"{place}, {sink}", *(f"{figures[name]:,}" for name in names))
    sys.stdout.write(" | ".join(line) + "\n")
    if TORTURE:
        write_line(PAGE, "streams", line)
