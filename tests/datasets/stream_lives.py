"""The lives of a streaming query: it is started, killed, and started again, in four settings.

A life is a process that runs a query (see ``stream_job``). On a classic session it has a JVM below
it; on Connect the JVM is a server, which outlives the process that has started the query.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tests.datasets.spark_cluster import LOOPBACK, connect_process, processes_below

import fsspeckit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

    from tests.datasets.stream_job import StreamJob

    from fsspeckit.testing.landing import Day

REPOSITORY = Path(__file__).parents[2]
_TIMEOUT = 240.0

Moment = Literal["random", "quarantine", "record", "held"]
"""When a query is killed: at a random moment; when the record of a commit has just appeared, in
quarantine or of the rows; or when the sink has returned and Spark has not yet written down that the
batch is done."""

Victim = Literal["jvm", "driver", "both"]
"""What is killed: Java, Python, or all that belongs to them, with the workers."""


@dataclass(frozen=True)
class Kill:
    """When to kill what."""

    moment: Moment
    victim: Victim


def random_kills(random: Random, number: int, moments: Sequence[Moment]) -> list[Kill]:
    """As many kills of each victim and at each kind of moment, in any order."""
    victims: tuple[Victim, ...] = ("jvm", "driver", "both")
    each = [Kill(moment, victim) for moment in moments for victim in victims]
    kills = [each[n % len(each)] for n in range(number)]
    random.shuffle(kills)
    return kills


@dataclass(frozen=True)
class Process:
    """A process; another one that gets its id later is not taken for it."""

    pid: int
    started: str

    @classmethod
    def find(cls, pid: int) -> Process | None:
        """The process that has an id now, if there is one."""
        try:
            # After the name, which may have spaces and parentheses.
            values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if values[0] == "Z" else cls(pid, values[19])

    def is_alive(self) -> bool:
        return Process.find(self.pid) == self

    def send(self, sent: signal.Signals) -> None:
        if self.is_alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, sent)

    def is_java(self) -> bool:
        with suppress(OSError):
            return b"java" in Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")[0]
        return False


def tree(pid: int) -> list[Process]:
    """A process and all below it."""
    found = [Process.find(one) for one in (pid, *processes_below(pid))]
    return [process for process in found if process is not None]


def wait_until(is_so: Callable[[], bool], seconds: float = _TIMEOUT, pause: float = 0.02) -> bool:
    """Wait for something; returns whether it came to be."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


class Lives:
    """A query that is killed again and again while files land; ends all that it has started."""

    def __init__(self, job: StreamJob, day: Day, *, seconds: float, server: Server | None) -> None:
        self._job, self._day, self._server = job, day, server
        self._seconds = seconds
        """A query that is killed at a random moment has run for so long at most."""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._seen: set[Process] = set()
        """All that belonged to a life, also if it has survived it."""
        self.figures: Counter[str] = Counter()
        for directory in (job.landing, job.notes):
            directory.mkdir(parents=True)

    def __enter__(self) -> Lives:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._processes:
            if process.poll() is None:
                self._seen.update(tree(process.pid))
        for one in self._seen:
            one.send(signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def run(self, kills: Sequence[Kill], random: Random) -> None:
        """Let the files of the day land while the query is killed, and then let it end."""
        arrivals = self._day.land(self._job.landing)
        portion = len(self._day.files) // (len(kills) + 1)
        for kill in kills:
            self._live(kill, islice(arrivals, portion), random)
        for _ in arrivals:
            pass
        last = self._start(replace(self._job, ends=True))
        assert last.wait(1800) == 0, self._last_words()
        self._end_survivors()
        self.figures["files"] = len(self._day.files)
        self.figures["batches"] = _last_number(self._job.checkpoint / "commits") + 1

    def _end_survivors(self) -> None:
        """End what a life has left running, so that recovery may remove what it had opened.

        A worker of a Connect server is a client of it. If the server is killed, it asks for
        minutes whether the server is there again, and its staging directory is its own meanwhile.
        """
        running = set() if self._server is None else set(tree(self._server.pid))
        survivors = [one for one in self._seen - running if one.is_alive()]
        self.figures["survivors"] = len(survivors)
        for one in survivors:
            one.send(signal.SIGKILL)
        wait_until(lambda: not any(one.is_alive() for one in survivors), 60)

    def _live(self, kill: Kill, arrivals: Iterator[Path], random: Random) -> None:
        """Start the query, let some files land, and kill it."""
        process = self._start(self._job)
        self._wait_in_life(process, (self._job.notes / "started").exists)
        java = self._java(process)
        watched = self._job.quarantine if kill.moment == "quarantine" else self._job.path
        before = _last_record(watched)
        if kill.moment == "held":
            (self._job.notes / "hold").touch()
        for _ in arrivals:
            pass
        if kill.moment == "random":
            time.sleep(random.uniform(0, self._seconds))
            assert process.poll() is None, self._last_words()
        elif kill.moment == "held":
            self._wait_in_life(process, (self._job.notes / "held").exists)
        else:
            self._wait_in_life(process, lambda: _last_record(watched) > before, pause=0.001)
        self._kill(process, java, kill.victim)
        self._count(kill)

    def _start(self, job: StreamJob) -> subprocess.Popen[bytes]:
        for name in ("started", "hold", "held"):
            (job.notes / name).unlink(missing_ok=True)
        if self._server is not None:
            job = replace(job, settings={"spark.remote": self._server.url()})
        command = [sys.executable, "-m", "tests.datasets.stream_job", json.dumps(asdict(job))]
        with self._log(len(self._processes)).open("wb") as log:
            process = subprocess.Popen(
                command, cwd=REPOSITORY, stdout=log, stderr=subprocess.STDOUT
            )
        self._processes.append(process)
        return process

    def _java(self, process: subprocess.Popen[bytes]) -> Process:
        """The JVM that runs the query."""
        if self._server is not None:
            return tree(self._server.pid)[0]
        return next(one for one in tree(process.pid) if one.is_java())

    def _wait_in_life(
        self, process: subprocess.Popen[bytes], is_so: Callable[[], bool], pause: float = 0.02
    ) -> None:
        """Wait for something that happens unless the query ends by itself."""
        done = wait_until(lambda: is_so() or process.poll() is not None, pause=pause)
        assert done, f"nothing happens:\n{self._last_words()}"
        assert process.poll() is None, f"it has ended by itself:\n{self._last_words()}"

    def _kill(self, process: subprocess.Popen[bytes], java: Process, victim: Victim) -> None:
        """Kill, and wait until neither a driver nor its JVM is left; workers may be."""
        driver = tree(process.pid)[0]
        victims = {"jvm": [java], "driver": [driver], "both": [java, driver]}[victim]
        for one in victims:
            one.send(signal.SIGSTOP)  # at once: to find all below them takes a while
        below = [*tree(process.pid), *tree(java.pid)]
        self._seen.update(below)
        for one in below if victim == "both" else victims:
            one.send(signal.SIGKILL)
        (self._job.notes / "hold").unlink(missing_ok=True)
        if self._server is not None:
            # A client asks a server that is gone for minutes whether it is there again; a server
            # goes on with the query of a client that is gone.
            process.kill()
            if victim != "driver":
                self._server.wait()
        elif not wait_until(lambda: not (driver.is_alive() or java.is_alive()), 60):
            self.figures["hung"] += 1  # each should notice that the other is gone, and end
            java.send(signal.SIGKILL)
            process.kill()
        process.wait()

    def _count(self, kill: Kill) -> None:
        self.figures["kills"] += 1
        self.figures[kill.victim] += 1
        done = _last_number(self._job.checkpoint / "commits")
        rows, quarantined = (_last_batch(at) for at in (self._job.path, self._job.quarantine))
        self.figures["before the checkpoint"] += rows > done
        self.figures["between the commits"] += quarantined > rows

    def _log(self, number: int) -> Path:
        return Path(self._job.directory, f"life{number}.log")

    def _last_words(self) -> str:
        return self._log(len(self._processes) - 1).read_text(errors="replace")[-6000:]


def control_directory(path: Path) -> Path:
    """Where the control directory of a dataset is."""
    return path.with_name(f".{path.name}.fsspeckit")


def _last_number(directory: Path) -> int:
    """The greatest number that a file of a directory is called by, -1 if there is none."""
    names = os.listdir(directory) if directory.exists() else []
    heads = [name.partition(".")[0] for name in names]
    return max((int(head) for head in heads if head.isdigit()), default=-1)


def _last_record(path: Path) -> int:
    """The number of the last commit into a dataset, -1 if there is none."""
    return _last_number(control_directory(path) / "commits")


def _last_batch(path: Path) -> int:
    """The last batch that a dataset has a record of, -1 if there is none."""
    if not control_directory(path).exists():
        return -1
    batches = [entry.transaction for entry in fsspeckit.history(str(path))]
    return max((batch.version for batch in batches if batch is not None), default=-1)


@dataclass
class Server:
    """A Connect server, which is started again if it was killed."""

    directory: Path
    settings: dict[str, str]
    stack: ExitStack
    started: list[tuple[str, subprocess.Popen[bytes]]] = field(default_factory=list)

    def url(self) -> str:
        """The URL of a server that runs."""
        if not self.started or self.started[-1][1].poll() is not None:
            name = f"connect{len(self.started)}"
            server = connect_process(self.directory, self.settings, name)
            self.started.append(self.stack.enter_context(server))
        return self.started[-1][0]

    @property
    def pid(self) -> int:
        return self.started[-1][1].pid

    def wait(self) -> None:
        """Wait until a server that was killed is gone, with all its threads."""
        self.started[-1][1].wait(60)


SESSION = {
    "spark.ui.enabled": "false",
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.memory": "1g",
    # A life is short: most of its time goes into starting.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
