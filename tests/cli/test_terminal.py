"""Every command on a real terminal, with what its screen shows."""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from tests.cli.running import content, rows, tree
from tests.cli.terminal import Terminal

from fsspeckit.storage.commit.recovery import recover

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PYARROW = ("--engine", "pyarrow")
COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


def test_merge_shows_progress_and_its_result(dataset: Path, source: Path) -> None:
    words = ("merge", source, dataset, "--key", "id", *PYARROW)
    with Terminal(*words, cwd=dataset.parent, columns=120) as terminal:
        assert terminal.end() == 0
    phases = [line.split()[0] for line in terminal.lines[:6]]
    assert phases == ["stage", "plan", "match", "rewrite", "insert", "commit"]
    assert all(re.search(r"━+ .*0:00:0\d$", line) for line in terminal.lines[:6])
    assert "upsert of 2 rows into" in terminal.text
    assert "files    1 rewritten, 1 new, 2 untouched" in terminal.text
    assert "commit   1" in terminal.text
    assert COLOUR.search(terminal.raw)
    assert content(dataset)[999]["v"] == "new"


def test_progress_counts_files_and_rates(dataset: Path) -> None:
    text = "".join(f"{number},new\n" for number in (0, 100, 200))
    (dataset.parent / "all.csv").write_text(f"id,v\n{text}")
    with Terminal("merge", "all.csv", dataset, "-k", "id", *PYARROW, cwd=dataset.parent) as screen:
        assert screen.end() == 0
    (line,) = [line for line in screen.lines if line.startswith("rewrite")]
    assert re.search(r"3 of 3, [\d,]+/s", line)


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet_is_quiet(dataset: Path, source: Path, quiet: bool) -> None:
    words = ("merge", source, dataset, "-k", "id", *PYARROW, *(["--quiet"] if quiet else []))
    with Terminal(*words, cwd=dataset.parent, columns=120) as terminal:
        terminal.end()
    assert ("stage" in terminal.text) != quiet


def test_no_color_is_respected(dataset: Path, source: Path) -> None:
    words = ("plan", source, dataset, "-k", "id", *PYARROW)
    with Terminal(*words, cwd=dataset.parent, variables={"NO_COLOR": "1"}) as terminal:
        assert terminal.end() == 0
    coloured = [code for code in COLOUR.findall(terminal.raw) if re.search(rb"\b[349]\d\b", code)]
    assert coloured == []
    with Terminal("inspect", "nowhere", cwd=dataset.parent, variables={"NO_COLOR": "1"}) as failed:
        failed.end()
    assert b"\x1b" not in failed.raw


def test_plan(dataset: Path, source: Path) -> None:
    words = ("plan", source.name, dataset.name, "-k", "id", *PYARROW, "-q")
    with Terminal(*words, cwd=dataset.parent, columns=120) as terminal:
        assert terminal.end() == 0
    assert terminal.lines[-4].split() == [
        *("decision", "file", "rows", "size", "row", "groups", "why")
    ]
    assert [line.split()[:2] for line in terminal.lines[-3:]] == [
        ["pruned", "part-0.parquet"],
        ["affected", "part-1.parquet"],
        ["pruned", "part-2.parquet"],
    ]
    assert terminal.lines[-1].endswith("statistics of id: 200 to 202")


def test_write_prints_the_types_it_inferred(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,v\n1,x\n")
    with Terminal("write", "a.csv", "new", *PYARROW, cwd=tmp_path) as terminal:
        assert terminal.end() == 0
    assert terminal.lines[0] == (
        "note: the types of the columns were inferred from their values: id int64, v string"
    )
    assert "append of 1 row into" in terminal.text


def test_inspect(dataset: Path) -> None:
    with Terminal("inspect", dataset, "-k", "id", cwd=dataset.parent, columns=120) as terminal:
        assert terminal.end() == 0
    assert "files    3 with 3 row groups" in terminal.text
    assert re.search(r"^id +int64 +0 +202 +0 +3 +0 +key$", terminal.text, re.MULTILINE)
    assert re.search(r"^part-0.parquet +3 +\d+ B +1 +parquet-cpp", terminal.text, re.MULTILINE)


def test_doctor(dataset: Path) -> None:
    with Terminal("doctor", "data", "-k", "id", cwd=dataset.parent, columns=160) as terminal:
        assert terminal.end() == 0
    assert "merges by id would read few files without a key of the source" in terminal.text


def test_history_and_recover(dataset: Path) -> None:
    with Terminal("history", "data", cwd=dataset.parent, columns=160) as terminal:
        assert terminal.end() == 0
    assert terminal.text.endswith("data: no commits yet")
    with Terminal("recover", "data", cwd=dataset.parent, columns=160) as terminal:
        assert terminal.end() == 0
    assert terminal.text.endswith("data: nothing to recover")


def test_engines(tmp_path: Path) -> None:
    with Terminal("engines", cwd=tmp_path) as terminal:
        assert terminal.end() == 0
    assert terminal.lines[0].split() == ["engine", "state", "library", "to", "install"]
    assert terminal.lines[-1].startswith("pyarrow")


def test_help(tmp_path: Path) -> None:
    with Terminal("--help", cwd=tmp_path, columns=90, lines=60) as terminal:
        assert terminal.end() == 0
    assert terminal.lines[0] == "Usage: fsspeckit [OPTIONS] COMMAND [ARGS]..."
    assert "Commands:" in terminal.lines
    assert 80 < max(map(len, terminal.lines)) <= 90
    assert any(line.split()[:3] == ["merge", "Merge", "rows"] for line in terminal.lines)
    with Terminal("-h", cwd=tmp_path, lines=60, variables={"NO_COLOR": "1"}) as plain:
        plain.end()
    assert b"\x1b" not in plain.raw


def test_an_error(tmp_path: Path) -> None:
    with Terminal("inspect", "nowhere", cwd=tmp_path, columns=300) as terminal:
        assert terminal.end() == 1
    first, second = terminal.lines
    assert first.startswith("error: ")
    assert second == "hint: check the path; a relative one begins at the working directory."
    assert b"\x1b[1;31merror:" in terminal.raw


def test_stdin_that_is_a_terminal(dataset: Path) -> None:
    with Terminal("merge", "-", "data", "-k", "id", *PYARROW, cwd=dataset.parent) as terminal:
        assert terminal.end() == 1
    assert "nothing is piped into this command" in terminal.text


@contextmanager
def another_writer(dataset: Path) -> Iterator[None]:
    """Hold the lock of a dataset, as a second terminal would."""
    control = dataset.parent / f".{dataset.name}.fsspeckit"
    control.mkdir(exist_ok=True)
    descriptor = os.open(control / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, b'{"pid": 7, "host": "elsewhere", "time": "noon"}')
        yield
    finally:
        os.close(descriptor)


def test_another_writer_holds_the_lock(dataset: Path, source: Path) -> None:
    before = tree(dataset)
    words = ("merge", source, dataset, "-k", "id", *PYARROW, "--lock-timeout", "0.1", "-q")
    with another_writer(dataset), Terminal(*words, cwd=dataset.parent, columns=300) as terminal:
        assert terminal.end() == 1
    assert "for 0.1 s: process 7 on elsewhere, since noon" in terminal.lines[-2]
    assert terminal.lines[-1].startswith("hint: wait for it, or end that process")
    assert tree(dataset) == before


def test_ctrl_c_while_another_writer_holds_the_lock(dataset: Path, source: Path) -> None:
    before = tree(dataset)
    words = ("merge", source, dataset, "-k", "id", *PYARROW)
    with another_writer(dataset), Terminal(*words, cwd=dataset.parent, columns=150) as terminal:
        terminal.wait_for(lambda text: "commit  " in text)
        terminal.press(b"\x03")
        terminal.wait_for(lambda text: "press Ctrl-C again to stop it" in text)
        terminal.press(b"\x03")
        assert terminal.end() == 1
    assert terminal.lines[-1] == "interrupted: nothing was changed"
    assert tree(dataset) == before


def test_ctrl_c_once_lets_the_commit_complete(dataset: Path, source: Path) -> None:
    words = ("merge", source, dataset, "-k", "id", *PYARROW)
    with Terminal(*words, cwd=dataset.parent, columns=150) as terminal:
        with another_writer(dataset):
            terminal.wait_for(lambda text: "commit  " in text)
            terminal.press(b"\x03")
            terminal.wait_for(lambda text: "press Ctrl-C again to stop it" in text)
        assert terminal.end() == 0
    assert "interrupted after the commit had begun: it is complete" in terminal.text
    assert content(dataset)[999]["v"] == "new"


@pytest.mark.spark
@pytest.mark.slow
def test_ctrl_c_while_spark_works(dataset: Path, source: Path) -> None:
    pq.write_table(rows(*range(70_000), v="new"), source)  # too many rows for the driver alone
    before = tree(dataset)
    words = ("merge", source, dataset, "-k", "id", "--engine", "spark")
    variables = {"TMPDIR": str(dataset.parent)}
    with Terminal(*words, cwd=dataset.parent, columns=150, variables=variables) as terminal:
        terminal.wait_for(lambda text: "match  " in text)  # the first job takes seconds
        terminal.press(b"\x03")
        assert terminal.end() == 1
    assert terminal.lines[-1] == "interrupted: nothing was changed"
    assert "Traceback" not in terminal.text
    assert "commit  " not in terminal.text
    assert tree(dataset) == before
    report = recover(dataset)
    assert (report.completed, report.discarded, report.in_use) == ((), (), ())
