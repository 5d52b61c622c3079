"""Build or fetch real object stores and HDFS for the tests; once, into a cache elsewhere.

MinIO and fake-gcs-server are Go modules, so Go is needed, and minutes. Azurite is an npm package
and needs Node. HDFS is a set of jars, which Maven fetches, and so is hadoop-aws, with which Spark
itself reads S3. What is there is not made again.

Usage: ``python -m scripts.stores minio azurite fake-gcs hdfs hadoop-aws``
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fsspeckit.testing import object_stores

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Program:
    """A program that is made with a tool."""

    tool: str
    """The command that must be on PATH."""

    source: str
    """What is built or fetched, with its version."""

    place: Callable[[], Path]
    """Where it belongs."""

    minutes: int
    """How long that takes."""


PROGRAMS = {
    "minio": Program(
        "go",
        f"github.com/minio/minio@{object_stores.MINIO_VERSION}",
        object_stores.minio_program,
        10,
    ),
    "azurite": Program(
        "npm", f"azurite@{object_stores.AZURITE_VERSION}", object_stores.azurite_program, 1
    ),
    "fake-gcs": Program(
        "go",
        f"github.com/fsouza/fake-gcs-server@{object_stores.FAKE_GCS_VERSION}",
        object_stores.fake_gcs_program,
        5,
    ),
    # The cluster and its clients, with the libraries of both inside.
    "hdfs": Program(
        "mvn",
        f"org.apache.hadoop:hadoop-client-minicluster:{object_stores.HADOOP_VERSION}",
        object_stores.hadoop_jars,
        1,
    ),
    # S3A and the SDK of AWS for Java, which is 0.7 GB.
    "hadoop-aws": Program(
        "mvn",
        f"org.apache.hadoop:hadoop-aws:{object_stores.HADOOP_AWS_VERSION}",
        object_stores.hadoop_aws_jars,
        1,
    ),
}

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>tests</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
  </dependency></dependencies>
</project>
"""


def make(program: Program) -> None:
    """Make the program under another name, then give it its own: it is whole or not there."""
    place = program.place()
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as directory:
        made = Path(directory) / "made"
        made.mkdir()
        environment = {**os.environ, "GOBIN": str(made), "CGO_ENABLED": "0"}
        # All print what they do; the output of a command belongs to its result.
        subprocess.run(
            _command(program, made), env=environment, cwd=made, check=True, stdout=sys.stderr
        )
        (next(made.iterdir()) if program.tool == "go" else made).replace(place)


def _command(program: Program, made: Path) -> list[str]:
    """What makes a program in an empty directory."""
    if program.tool == "go":
        return ["go", "install", "-trimpath", "-ldflags=-s -w", program.source]
    if program.tool == "npm":
        return ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(made), program.source]
    pom = made / "pom.xml"
    pom.write_text(_POM.format(*program.source.split(":")), encoding="utf-8")
    fetch = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    return [*fetch, "-DincludeScope=runtime", f"-DoutputDirectory={made}"]


def main(names: list[str]) -> int:
    """Make what is missing, and return the exit code."""
    for name in names:
        program = PROGRAMS[name]
        if program.place().exists():
            continue
        if shutil.which(program.tool) is None:
            text = f"{name}: {program.tool} is needed to make it, and is not on PATH."
            print(f"{text} Hint: install {program.tool}.", file=sys.stderr)
            return 1
        text = f"making {program.source} (about {program.minutes} minutes, once)"
        print(f"{name}: {text}", file=sys.stderr)
        try:
            make(program)
        except subprocess.CalledProcessError as error:
            print(f"{name}: {program.tool} ended with {error.returncode}.", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(PROGRAMS)))
