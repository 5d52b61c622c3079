"""All pages in one sitting, and again after an interruption."""

from __future__ import annotations

import fnmatch
import importlib
import re
from typing import TYPE_CHECKING

import pytest
from benchmarks.every_page import STEPS, Progress, Step, main, run_steps
from benchmarks.harness import LIMIT_MISSED
from benchmarks.peers.registry import ENTRIES
from benchmarks.peers.targets import LOCAL_TARGETS, SPARK_TARGETS
from benchmarks.peers.workloads import named_workloads, sweep
from benchmarks.state import ROOT

if TYPE_CHECKING:
    from pathlib import Path


class Counted(Step):
    """A step that writes down that it was run, and fails if it should."""

    @property
    def command(self) -> list[str]:
        return ["sh", "-c", f"echo {self.page} >> {self.options[0]}; exit {self.options[1]}"]


def steps(log: Path, **codes: int) -> list[Step]:
    return [Counted(page, "", (str(log), str(code))) for page, code in codes.items()]


def test_what_was_done_is_not_done_again(tmp_path: Path) -> None:
    log, path = tmp_path / "log", tmp_path / "progress.json"
    problems = run_steps(steps(log, a=0, b=1), Progress(path, "one"), lambda: "one")
    assert problems == {"b": "ended with 1"}
    assert run_steps(steps(log, a=0, b=0), Progress(path, "one"), lambda: "one") == {}
    assert log.read_text().split() == ["a", "b", "b"]


def test_a_page_over_its_limit_is_reported_and_not_measured_again(tmp_path: Path) -> None:
    log, path = tmp_path / "log", tmp_path / "progress.json"
    problems = run_steps(steps(log, a=LIMIT_MISSED), Progress(path, "one"), lambda: "one")
    assert problems == {"a": "measured, and over one of its limits"}
    assert run_steps(steps(log, a=0), Progress(path, "one"), lambda: "one") == {}
    assert log.read_text().split() == ["a"]


def test_the_options_of_peers_name_systems_and_workloads() -> None:
    known = [*ENTRIES, *(w.name for w in (*named_workloads(), *sweep()))]
    for step in STEPS:
        if step.module == "peers":
            names = step.options[step.options.index("--only") + 1 :]
            assert [name for name in names if not fnmatch.filter(known, name)] == []
            wanted = SPARK_TARGETS if "--spark" in step.options else LOCAL_TARGETS
            assert {target.workload for target in wanted} <= {*names}


def test_another_state_begins_again(tmp_path: Path) -> None:
    log, path = tmp_path / "log", tmp_path / "progress.json"
    run_steps(steps(log, a=0), Progress(path, "one"), lambda: "one")
    run_steps(steps(log, a=0), Progress(path, "two"), lambda: "two")
    assert log.read_text().split() == ["a", "a"]


def test_code_that_changes_meanwhile_ends_the_run(tmp_path: Path) -> None:
    states = iter(["one", "one", "two"])
    progress = Progress(tmp_path / "progress.json", "one")
    with pytest.raises(SystemExit, match="two states"):
        run_steps(steps(tmp_path / "log", a=0, b=0), progress, lambda: next(states))
    assert list(progress.seconds) == ["a"]


def test_every_page_has_a_step_and_all_take_an_hour_at_most() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "benchmarks").glob("*.md")} - {"index"}
    assert pages <= {step.page for step in STEPS}
    assert sum(step.minutes for step in STEPS) <= 60
    modules = {path.stem for path in (ROOT / "benchmarks").glob("bench_*.py")}
    assert modules <= {step.module for step in STEPS}


def test_steps_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--only", "spark*"], tmp_path / "progress.json") == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"\*Measured on commit [0-9a-f]{10} of \d{4}-", lines[0])
    assert [line.split(":")[0] for line in lines[1:]] == ["spark", "spark-peers", "spark-large"]


@pytest.mark.parametrize("module", sorted({step.module for step in STEPS}))
def test_the_module_of_every_page_can_be_imported(module: str) -> None:
    importlib.import_module(f"benchmarks.{module}")
