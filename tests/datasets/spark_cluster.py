"""Spark servers on the loopback interface, started from the installed package, stopped by id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_HOME = Path(pyspark.__file__).parent
_PATIENCE = 300.0
LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(
    directory: Path, name: str, *arguments: str, host: str = LOOPBACK
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Spark, which writes into a log file of the directory and is ended at the end."""
    environment = {
        **os.environ,
        "SPARK_HOME": str(_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": host,
        "SPARK_WORKER_DIR": str(directory / f"{name}-work"),
        "SPARK_LOCAL_DIRS": str(directory / f"{name}-local"),
    }
    with open(directory / f"{name}.log", "wb") as log:
        process = subprocess.Popen(
            [str(_HOME / "bin" / "spark-class"), *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=directory,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(directory: Path, name: str, process: subprocess.Popen[bytes], text: str) -> None:
    """Wait until a process has written a text."""
    log = directory / f"{name}.log"
    end = time.monotonic() + _PATIENCE
    while text not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{name} did not start:\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.1)


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """A Spark Connect server in local mode; gives its URL."""
    port = free_port()
    settings = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": port,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": directory / "warehouse",
        "spark.log.level": "INFO",
    }
    options = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    with running(
        directory,
        "connect",
        "org.apache.spark.deploy.SparkSubmit",
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        *options,
        "spark-internal",
    ) as process:
        wait_for(directory, "connect", process, "Spark Connect server started")
        yield f"sc://{LOOPBACK}:{port}"


@dataclass
class Cluster:
    """A standalone cluster: a master and workers of one core each, on one host each."""

    directory: Path
    size: int
    memory: str
    stack: ExitStack
    url: str = ""
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """By name, those that run, and those that have been lost."""

    def start_master(self) -> None:
        """Start the one that workers register with."""
        port, page = free_port(), free_port()
        where = ("--host", LOOPBACK, "--port", str(port), "--webui-port", str(page))
        kind = "org.apache.spark.deploy.master.Master"
        master = self.stack.enter_context(running(self.directory, "master", kind, *where))
        wait_for(self.directory, "master", master, "I have been elected leader")
        self.url = f"spark://{LOOPBACK}:{port}"

    def mend(self) -> None:
        """Start workers that are not there, or no longer, and wait until the master knows them."""
        missing = [n for n in range(self.size) if self._is_missing(f"worker{n}")]
        for number in missing:
            self._start_worker(number)
        for number in missing:
            name = f"worker{number}"
            ready = "Successfully registered with master"
            wait_for(self.directory, name, self.workers[name], ready)

    def _is_missing(self, name: str) -> bool:
        return name not in self.workers or self.workers[name].poll() is not None

    def _start_worker(self, number: int) -> None:
        name = f"worker{number}"
        # Spark runs a second copy of a task on another host only.
        host = f"127.0.0.{number + 1}"
        place = ("--host", host, "--webui-port", str(free_port()))
        size = ("--cores", "1", "--memory", self.memory, "--work-dir", str(self.directory / name))
        arguments = ("org.apache.spark.deploy.worker.Worker", *place, *size, self.url)
        self.workers[name] = self.stack.enter_context(
            running(self.directory, name, *arguments, host=host)
        )


@contextmanager
def standalone_cluster(
    directory: Path, *, workers: int = 2, memory: str = "2g"
) -> Iterator[Cluster]:
    """A master and some workers."""
    with ExitStack() as stack:
        cluster = Cluster(directory, workers, memory, stack)
        cluster.start_master()
        cluster.mend()
        yield cluster


def lose_power(machines: Sequence[int], process: int) -> None:
    """End one of some processes, and all below it, at once: that one which another descends from.

    Args:
        machines: The ids of processes.
        process: The id of a process below one of them.
    """
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
    parents = {pid: parent for pid, parent in pairs if pid != 0}
    while process not in machines:
        process = parents[process]
    lost = [process]
    for one in lost:
        lost += [pid for pid, parent in parents.items() if parent == one]
    for one in lost:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
