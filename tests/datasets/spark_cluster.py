"""Spark servers on the loopback interface, started from the installed package, stopped by id."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    """A standalone cluster."""

    url: str
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def kill_worker(self) -> None:
        """End a worker, and its executors with it, as a machine that loses power does."""
        self.workers[0].kill()


@contextmanager
def standalone_cluster(
    directory: Path, *, workers: int = 2, memory: str = "2g"
) -> Iterator[Cluster]:
    """A master and some workers of one core each."""
    port, page = free_port(), free_port()
    where = ("--host", LOOPBACK, "--port", str(port), "--webui-port", str(page))
    with ExitStack() as stack:
        master = stack.enter_context(
            running(directory, "master", "org.apache.spark.deploy.master.Master", *where)
        )
        wait_for(directory, "master", master, "I have been elected leader")
        cluster = Cluster(f"spark://{LOOPBACK}:{port}")
        for number in range(workers):
            name = f"worker{number}"
            # Spark runs a second copy of a task on another host only.
            host = f"127.0.0.{number + 1}"
            place = ("--host", host, "--webui-port", str(free_port()))
            size = ("--cores", "1", "--memory", memory, "--work-dir", str(directory / name))
            process = stack.enter_context(
                running(
                    directory,
                    name,
                    "org.apache.spark.deploy.worker.Worker",
                    *place,
                    *size,
                    cluster.url,
                    host=host,
                )
            )
            wait_for(directory, name, process, "Successfully registered with master")
            cluster.workers.append(process)
        yield cluster
