"""What was measured, kept in a file of JSON while the benchmark runs, so that it can be resumed."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pathlib import Path

Status = Literal["ok", "wrong", "failed", "over"]


@dataclass(frozen=True)
class Run:
    """One merge of one system."""

    workload: str
    system: str
    status: Status
    seconds: float = 0.0
    read: float = 0.0
    """Seconds of a full read after the merge; 0 in rounds that read nothing."""

    memory: float = 0.0
    """Megabytes, see :mod:`benchmarks.peers.memory`."""

    written: float = 0.0
    """Megabytes."""

    error: str = ""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds of each phase, where the system tells."""


@dataclass
class Results:
    """All runs, with what a reader needs to judge them."""

    path: Path
    rows: int
    titles: dict[str, str] = field(default_factory=dict)
    """What each workload is, by its name; in the order in which they are reported."""

    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    """Why a system could not be run, by its name."""

    commands: list[str] = field(default_factory=list)
    machine: str = ""
    state: str = ""
    """Of the code: the first line of the page."""

    runs: list[Run] = field(default_factory=list)

    def save(self) -> None:
        """Write the file anew, whole or not at all."""
        content = asdict(self)
        del content["path"]
        content["runs"] = [_short(run) for run in content["runs"]]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(_compact(content), encoding="utf-8")
        new.replace(self.path)

    def add(self, run: Run) -> None:
        """Keep a run, on disk as well."""
        self.runs.append(run)
        self.save()

    def of(self, workload: str, system: str) -> list[Run]:
        """The runs of one system on one workload."""
        return [run for run in self.runs if (run.workload, run.system) == (workload, system)]

    def good(self, workload: str, system: str) -> list[Run]:
        """Those of them that ended and were right."""
        return [run for run in self.of(workload, system) if run.status == "ok"]

    def median(self, workload: str, system: str, what: str = "seconds") -> float | None:
        """The median of a measure, or None where nothing was measured."""
        values = [getattr(run, what) for run in self.good(workload, system)]
        if what == "read":
            values = [value for value in values if value] or values
        return statistics.median(values) if values else None

    def phases(self, workload: str, system: str) -> dict[str, float]:
        """Which share of a merge each phase takes, as medians; none where nothing is told."""
        good = [run for run in self.good(workload, system) if run.phases]
        names = dict.fromkeys(name for run in good for name in run.phases)
        return {
            name: statistics.median(run.phases.get(name, 0.0) / run.seconds for run in good)
            for name in names
        }


def load(path: Path) -> Results:
    """The results of an earlier run."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    runs = [Run(**run) for run in content.pop("runs")]
    return Results(path, runs=runs, **content)


def _short(run: dict[str, Any]) -> dict[str, Any]:
    """A run without what is empty, and with digits that mean something."""
    rounded = {key: _rounded(value) for key, value in run.items()}
    return {key: value for key, value in rounded.items() if value}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inside) for key, inside in value.items()}
    return round(value, 5) if isinstance(value, float) else value


def _compact(content: dict[str, Any]) -> str:
    """One line for each run, so that a difference can be read."""
    runs = ",\n    ".join(json.dumps(run) for run in content.pop("runs"))
    head = json.dumps(content, indent=2, ensure_ascii=False).rstrip("}\n")
    return f'{head},\n  "runs": [\n    {runs}\n  ]\n}}\n'
