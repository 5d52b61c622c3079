"""`progress=`: a function, True for bars where somebody watches, or nothing."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from rich.live import Live

from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.display import reporting
from fsspeckit.display.progress import show_progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fsspeckit.datasets.base import DatasetIO

EVENTS = [("match", 0, 1), ("match", 1, 3), ("match", 3, 3), ("match", 1, 1), ("commit", 0, 1)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")


def on_terminal(call: Callable[[], object]) -> str:
    """What a call writes to standard error, if that is a terminal."""
    with contextlib.redirect_stderr(Terminal()) as terminal:
        call()
    return terminal.getvalue()


def tell(progress: bool, events: list[tuple[str, int, int]] = EVENTS) -> None:
    with show_progress(progress) as called:
        for event in events:
            called(*event)


def test_a_function_is_called_itself() -> None:
    def function(phase: str, done: int, total: int) -> None: ...

    with reporting(function) as called:
        assert called is function


@pytest.mark.parametrize("progress", [True, False])
def test_nothing_is_printed_without_a_terminal(
    capsys: pytest.CaptureFixture[str], progress: bool
) -> None:
    tell(progress)
    assert capsys.readouterr() == ("", "")


def test_bars_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    last = on_terminal(lambda: tell(True)).split("match")[-1]
    assert re.search(r"3 of 3, [\d,]+/s", last)
    assert "commit" in last
    assert capsys.readouterr() == ("", "")


def test_a_phase_that_begins_again_begins_at_nothing() -> None:
    again = [*EVENTS, ("match", 0, 1), ("match", 1, 2)]
    assert "1 of 2" in on_terminal(lambda: tell(True, again)).split("match")[-1]


def test_no_bars_when_not_asked_for() -> None:
    assert on_terminal(lambda: tell(False)) == ""


def test_plain_lines_in_a_notebook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(
        sys.modules,
        "IPython",
        SimpleNamespace(get_ipython=lambda: shell),
    )
    tell(True, [*EVENTS, ("commit", 1, 1)])
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("match: 3 of 3, ")
    assert second.startswith("commit: 0.")


def test_a_shell_without_a_kernel_is_not_a_notebook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(
        sys.modules,
        "IPython",
        SimpleNamespace(get_ipython=lambda: SimpleNamespace()),
    )
    tell(True)
    assert capsys.readouterr().err == ""


def test_every_call_that_works_shows_bars(tmp_path: Path) -> None:
    handler, path = PyarrowDatasetIO(), f"{tmp_path}/data"
    rows = pa.table({"id": [1, 2]})
    calls: list[Callable[[], object]] = [
        lambda: handler.write_dataset(rows, path, progress=True),
        lambda: handler.merge(rows, path, "upsert", ["id"], progress=True),
        lambda: handler.plan_merge(rows, path, "upsert", ["id"], progress=True),
        lambda: handler.execute(handler.plan_merge(rows, path, "upsert", ["id"]), progress=True),
        lambda: handler.merge_parquet_dataset(rows, path, ["id"], progress=True),
        lambda: handler.write_parquet_dataset(rows, path, progress=True),
        lambda: handler.write_parquet_dataset(
            rows, path, strategy="upsert", key_columns=["id"], progress=True
        ),
    ]
    for call in calls:
        assert "plan" in on_terminal(call)


@pytest.mark.parametrize("engine", [PyarrowDatasetIO, DuckDBDatasetIO])
@pytest.mark.parametrize(
    ("options", "phases"),
    [
        ({}, ["stage", "plan", "insert", "commit"]),
        (
            {"strategy": "upsert", "key_columns": ["id"]},
            ["stage", "plan", "match", "rewrite", "insert", "commit"],
        ),
    ],
    ids=["write", "merge"],
)
def test_a_function_is_called_for_every_phase(
    tmp_path: Path, engine: Callable[[], DatasetIO], options: dict[str, Any], phases: list[str]
) -> None:
    events: list[tuple[str, int, int]] = []
    rows = pa.table({"id": [1, 2]})
    with engine() as handler:
        handler.write_parquet_dataset(rows, f"{tmp_path}/data")
        handler.write_parquet_dataset(
            rows, f"{tmp_path}/data", progress=lambda *event: events.append(event), **options
        )
    for moment in ((0, 1), (1, 1)):
        assert list(dict.fromkeys(phase for phase, *rest in events if (*rest,) == moment)) == phases


def test_an_error_ends_the_bars() -> None:
    def broken() -> None:
        with pytest.raises(ZeroDivisionError), show_progress():
            _ = 1 / 0

    assert on_terminal(broken).endswith("\x1b[?25h")  # the cursor is shown again


def test_bars_give_back_the_streams_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Live.stop

    def interrupted(live: Live) -> None:
        replaced = sys.stdout, sys.stderr
        stop(live)
        sys.stdout, sys.stderr = replaced
        raise KeyboardInterrupt

    monkeypatch.setattr(Live, "stop", interrupted)
    streams = sys.stdout, Terminal()
    with contextlib.redirect_stderr(streams[1]):
        with pytest.raises(KeyboardInterrupt):
            tell(True)
        assert (sys.stdout, sys.stderr) == streams
