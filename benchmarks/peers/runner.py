"""Runs systems on workloads: fresh copies, interleaved rounds, every result checked."""

from __future__ import annotations

import json
import math
import os
import select
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.peers import targets
from benchmarks.peers.digest import Digest, digest_of
from benchmarks.peers.environments import environment_of, problem_of
from benchmarks.peers.results import Run
from benchmarks.peers.tables import WriterProperties, rows_of, schema_of, write_files
from benchmarks.peers.workloads import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.peers.protocol import Entry
    from benchmarks.peers.results import Results

ROOT = Path(__file__).parents[2]
TINY = Workload(
    "warm-up", "Warm-up", WriterProperties("warm-up", 2000, 2), lambda t: _every_tenth(t)
)
# On Spark it is enough work for both cores: each of them has a Python worker of its own.
SMALL = Workload(
    "warm-up-2", "Warm-up", WriterProperties("warm-up-2", 40_000, 2), lambda t: _every_tenth(t)
)


_MAKING = 900.0
"""Seconds that a table may take to make."""

_ROUNDS_OF_SLOW = 2


class WorkerError(Exception):
    """A worker gave no answer: it could not start, has died, or was stopped."""


class OverLimitError(WorkerError):
    """A worker took longer than it may, and was stopped."""


class Process:
    """A worker of one system, in the environment of that system."""

    def __init__(self, entry: Entry, log: Path, module: str = "worker") -> None:
        python = environment_of(entry.environment) / "bin" / "python"
        if not python.exists():
            raise WorkerError(f"there is no {entry.environment}")
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            [str(python), "-W", "ignore", "-m", f"benchmarks.peers.{module}", entry.name],
            cwd=ROOT,
            # The code of this checkout, whichever one is installed in the environment.
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self._log_path = log

    def ask(self, task: dict[str, Any], limit: float | None = None) -> dict[str, Any]:
        """Send a task and wait for its answer, for so many seconds at most."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(task).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(self._last_words()) from None
        if not select.select([self._process.stdout], [], [], limit)[0]:
            raise OverLimitError(f"took more than {limit:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        return answer | ({"error": _without_place(answer["error"])} if "error" in answer else {})

    def _last_words(self) -> str:
        self._process.wait()
        lines = self._log_path.read_text(errors="replace").strip().splitlines()
        return _without_place(lines[-1] if lines else f"ended with {self._process.returncode}")

    def close(self) -> None:
        """End it, and what it has started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(20)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            os.killpg(self._process.pid, signal.SIGKILL)  # its own session, and so nobody else
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def stop(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.close()


@contextmanager
def worker(entry: Entry, log: Path) -> Iterator[Process]:
    """A worker for as long as it is needed."""
    process = Process(entry, log)
    try:
        yield process
    except OverLimitError:
        process.stop()
        raise
    finally:
        process.close()


class Sessions:
    """The open sessions, one for each system; made when they are needed first."""

    def __init__(self, make: Callable[[Entry], Process]) -> None:
        self._make = make
        self._open: dict[str, Process] = {}

    def __enter__(self) -> Sessions:
        return self

    def __exit__(self, *args: object) -> None:
        for process in self._open.values():
            process.close()

    def of(self, entry: Entry) -> Process:
        """The session of a system."""
        if entry.name not in self._open:
            self._open[entry.name] = self._make(entry)
        return self._open[entry.name]

    def end(self, entry: Entry) -> None:
        """End a session; the next one is new."""
        if (process := self._open.pop(entry.name, None)) is not None:
            process.close()


@dataclass(frozen=True)
class Settings:
    """How much is run, and where."""

    scratch: Path
    rounds: int = 5
    limit: float = 300.0
    """Seconds that a merge may take, with its read and its check."""

    warm_ups: int = 3
    """How many merges into a tiny table a session begins with."""

    other_rounds: int = 3
    """Of merges that no target depends on."""

    seconds_each: float = math.inf
    """A system that has merged for so long gets no further rounds of a workload."""

    def rounds_of(self, entry: Entry, workload: Workload) -> int:
        """How often a system merges a workload."""
        decides = targets.decides(entry, workload.name)
        return self.rounds if decides else min(self.rounds, self.other_rounds)


class Bench:
    """The files, sources and tables of a run, and the merges into them."""

    def __init__(self, settings: Settings, results: Results) -> None:
        self._settings = settings
        self._results = results
        self._base: dict[str, Digest] = {}
        self._expected: dict[str, Digest] = {}

    def install_check(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those that can be run; why the others cannot goes into the results."""
        usable = []
        for entry in entries:
            try:
                with worker(entry, self._log(entry)) as process:
                    found = process.ask({"action": "versions"}, 120)
                if "error" in found:
                    raise WorkerError(found["error"])
            except WorkerError as error:
                self._results.absent[entry.name] = f"{error}{_why_not_installed(entry)}"
                continue
            self._results.absent.pop(entry.name, None)
            self._results.versions[entry.name] = found
            usable.append(entry)
        self._results.save()
        return usable

    def run_local(self, entries: Sequence[Entry], workloads: Sequence[Workload]) -> None:
        """One process for each merge; the systems take turns."""
        progress = Progress(self._pending(entries, workloads))
        for layout, group in _by_layout(workloads):
            for entry in entries:
                if self._pending([entry], group):
                    with worker(entry, self._log(entry)) as process:
                        self._make(process, entry, TINY.layout)
                        self._make(process, entry, layout)
            for workload in group:
                for entry, _ in self._turns(entries, workload):
                    with progress.timing(workload, entry):
                        run = self._merge_once(entry, workload)
                        self._results.add(run)
                        progress.tell(run, self._left(entry, workload))
            self._forget(layout)

    def run_sessions(self, entries: Sequence[Entry], workloads: Sequence[Workload]) -> None:
        """One warm session for each system, all of them open; the systems take turns."""
        progress = Progress(self._pending(entries, workloads))
        with Sessions(self._warm) as sessions:
            for layout, group in _by_layout(workloads):
                for entry in entries:
                    if self._pending([entry], group):
                        self._make_in(sessions, entry, layout)
                for workload in group:
                    for entry, _ in self._turns(entries, workload):
                        with progress.timing(workload, entry):
                            run = self._merge_in(sessions, entry, workload)
                            self._results.add(run)
                            progress.tell(run, self._left(entry, workload))
                self._forget(layout)

    def _warm(self, entry: Entry) -> Process:
        """A session that has merged a few times."""
        process = Process(entry, self._log(entry))
        try:
            self._make(process, entry, SMALL.layout)
            for _ in range(self._settings.warm_ups):
                process.ask(self._task(entry, SMALL), _MAKING)
        except WorkerError:
            process.stop()
            raise
        return process

    def _make_in(self, sessions: Sessions, entry: Entry, layout: WriterProperties) -> None:
        try:
            self._make(sessions.of(entry), entry, layout)
        except WorkerError as error:  # told by every merge into it
            print(f"{entry.title} cannot make {layout.name}: {error}", flush=True)
            sessions.end(entry)

    def _merge_in(self, sessions: Sessions, entry: Entry, workload: Workload) -> Run:
        try:
            session = sessions.of(entry)
            # Others had their turns since: Spark ends Python workers that are idle for a minute.
            session.ask(self._task(entry, SMALL), _MAKING)
            run = self._ask(session, entry, workload)
        except WorkerError as error:
            run = Run(workload.name, entry.name, "failed", error=str(error))
        if run.status in ("over", "failed"):
            sessions.end(entry)  # it is stopped, or may be in any state
        return run

    def _pending(
        self, entries: Sequence[Entry], workloads: Sequence[Workload]
    ) -> list[tuple[str, str]]:
        """What is left to run, each merge once."""
        return [
            (workload.name, entry.name)
            for workload in workloads
            for entry in entries
            for _ in range(self._left(entry, workload))
        ]

    def _left(self, entry: Entry, workload: Workload) -> int:
        runs = self._results.of(workload.name, entry.name)
        if any(run.status != "ok" for run in runs):
            return 0  # once is enough to know that it fails, or that it takes too long
        if sum(run.seconds for run in runs) > self._settings.seconds_each:
            return 0
        rounds = self._settings.rounds_of(entry, workload)
        found = targets.ratio(self._results, workload.name, entry)
        if found is not None and found.value > targets.SLOW:
            rounds = min(rounds, _ROUNDS_OF_SLOW)
        return max(0, rounds - len(runs))

    def _turns(self, entries: Sequence[Entry], workload: Workload) -> Iterator[tuple[Entry, int]]:
        for number in range(self._settings.rounds):
            for entry in entries:
                done = len(self._results.of(workload.name, entry.name))
                # Asked each time: a failure ends the turns of a system.
                if done <= number and self._left(entry, workload):
                    yield entry, number

    def _merge_once(self, entry: Entry, workload: Workload) -> Run:
        try:
            with worker(entry, self._log(entry)) as process:
                process.ask(self._task(entry, TINY))
                return self._ask(process, entry, workload)
        except WorkerError as error:
            return Run(workload.name, entry.name, "failed", error=str(error))

    def _ask(self, process: Process, entry: Entry, workload: Workload) -> Run:
        names = (workload.name, entry.name)
        try:
            answer = process.ask(self._task(entry, workload), self._settings.limit)
        except OverLimitError as error:
            process.stop()
            return Run(*names, "over", self._settings.limit, error=str(error))
        if "error" in answer:
            return Run(*names, "failed", error=answer["error"])
        if "found" not in answer:
            return Run(*names, "ok", **answer)
        found = Digest(**answer.pop("found"))
        if wrong := found.difference(self._expectation(entry, workload)):
            return Run(*names, "wrong", error=wrong)
        return Run(*names, "ok", **answer)

    def _expectation(self, entry: Entry, workload: Workload) -> Digest:
        if entry.kind == "floor":  # it copies and merges nothing
            return self._base[workload.layout.name]
        return self._expected[workload.name]

    def _task(self, entry: Entry, workload: Workload) -> dict[str, Any]:
        return {
            "action": "merge",
            "layout": asdict(workload.layout),
            "place": str(self._place(entry, workload.layout)),
            "original": str(self._original(entry, workload.layout)),
            "source": str(self._source(workload)),
            "strategy": workload.strategy,
            # Reading it back takes longer than most merges: once is enough.
            "check": not self._results.good(workload.name, entry.name),
        }

    def _make(self, process: Process, entry: Entry, layout: WriterProperties) -> None:
        original = self._original(entry, layout)
        if original.exists():
            return
        task = {
            "action": "make",
            "layout": asdict(layout),
            "place": str(self._place(entry, layout)),
            "original": str(original),
            "files": str(self._files(layout)),
        }
        try:
            answer = process.ask(task, _MAKING)
        except OverLimitError:
            process.stop()
            raise
        if "error" in answer:
            # Told as the result of every merge into it: there is no table to copy.
            print(f"{entry.title} cannot make {layout.name}: {answer['error']}", flush=True)

    def _files(self, layout: WriterProperties) -> Path:
        """The rows of a layout as plain Parquet, written when they are needed first."""
        directory = self._settings.scratch / "files" / layout.name
        if layout.name not in self._base:
            shutil.rmtree(directory, ignore_errors=True)
            write_files(layout, directory)
            self._base[layout.name] = _digest_of_layout(layout)
        return directory

    def _source(self, workload: Workload) -> Path:
        """The source of a workload as a file, and what the merge has to result in."""
        path = self._settings.scratch / "sources" / f"{workload.name}.arrow"
        if workload.name not in self._expected:
            self._files(workload.layout)
            path.parent.mkdir(parents=True, exist_ok=True)
            source, schema = workload.source(), schema_of(workload.layout)
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                writer.write_table(source)
            old, new = (digest_of(t, schema) for t in (workload.replaced(), workload.brought()))
            self._expected[workload.name] = self._base[workload.layout.name].replacing(old, new)
        return path

    def _forget(self, layout: WriterProperties) -> None:
        for directory in ("files", "tables/*", "work/*"):
            for found in self._settings.scratch.glob(f"{directory}/{layout.name}"):
                shutil.rmtree(found)
        self._base.pop(layout.name, None)

    def _place(self, entry: Entry, layout: WriterProperties) -> Path:
        return self._settings.scratch / "work" / entry.name / layout.name

    def _original(self, entry: Entry, layout: WriterProperties) -> Path:
        return self._settings.scratch / "tables" / entry.name / layout.name

    def _log(self, entry: Entry) -> Path:
        # Beside the scratch directory, which ends with the run.
        return self._settings.scratch.parent / "logs" / f"{entry.name}.txt"


class Progress:
    """Tells what was done, and how long the rest will take."""

    def __init__(self, pending: list[tuple[str, str]]) -> None:
        self._pending = pending
        self._total = len(pending)
        self._spent: dict[tuple[str, str], float] = {}

    @contextmanager
    def timing(self, workload: Workload, entry: Entry) -> Iterator[None]:
        """Remember how long a merge took with everything around it."""
        start = time.monotonic()
        merge = (workload.name, entry.name)
        if merge in self._pending:
            self._pending.remove(merge)
        else:  # too slow by the first rounds, and not by all of them
            self._total += 1
        yield
        self._spent[workload.name, entry.name] = time.monotonic() - start

    def tell(self, run: Run, rounds_left: int) -> None:
        """Print a line about a run."""
        if not rounds_left:  # its other rounds will not be run
            self._pending = [p for p in self._pending if p != (run.workload, run.system)]
        done = self._total - len(self._pending)
        what = f"{run.seconds:.3f} s" if run.status == "ok" else f"{run.status}: {run.error}"
        left = f", about {self._left() / 60:.0f} min left" if self._spent else ""
        print(f"[{done}/{self._total}] {run.workload}, {run.system}: {what}{left}", flush=True)

    def _left(self) -> float:
        """Each pending merge takes as long as the last of its kind, or of its system, or of all."""
        usual = sum(self._spent.values()) / len(self._spent)
        by_system: dict[str, float] = {system: spent for (_, system), spent in self._spent.items()}
        return sum(self._spent.get(p, by_system.get(p[1], usual)) for p in self._pending)


def _without_place(error: str) -> str:
    """An error as it reads on any machine."""
    return error.replace(f"{ROOT}/", "")[:300]


def _why_not_installed(entry: Entry) -> str:
    """What was written down about its packages when its environment was made."""
    said = [problem_of(environment_of(entry.environment), package) for package in entry.packages]
    return "".join(f"; {problem}" for problem in said if problem)


def _every_tenth(table: WriterProperties) -> Any:
    from benchmarks.peers.workloads import Source

    # Of every file: each is the work of a task, and each core has to have one.
    codes = np.concatenate([table.codes(number)[::10] for number in range(table.files)])
    return Source(codes, codes + 1)


def _by_layout(workloads: Sequence[Workload]) -> list[tuple[WriterProperties, list[Workload]]]:
    groups: dict[WriterProperties, list[Workload]] = {}
    for workload in workloads:
        groups.setdefault(workload.layout, []).append(workload)
    return list(groups.items())


def _digest_of_layout(layout: WriterProperties) -> Digest:
    """Of a table as it begins, computed file by file."""
    total = Digest(0, 0, 0)
    for number in range(layout.files):
        part = digest_of(rows_of(layout, layout.codes(number)), schema_of(layout))
        total = total.replacing(Digest(0, 0, 0), part)
    return total
