"""Build or fetch real object stores for the tests; once, into a cache outside of the checkout.

MinIO and fake-gcs-server are Go modules, so Go is needed, and minutes. Azurite is an npm package
and needs Node. What is there already is not made again.

Usage: ``python -m scripts.stores minio azurite fake-gcs``
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
}


def make(program: Program) -> None:
    """Make the program under another name, then give it its own: it is whole or not there."""
    place = program.place()
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as directory:
        made = Path(directory) / "made"
        made.mkdir()
        environment = {**os.environ, "GOBIN": str(made), "CGO_ENABLED": "0"}
        go = ["go", "install", "-trimpath", "-ldflags=-s -w", program.source]
        npm = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(made), program.source]
        command = go if program.tool == "go" else npm
        # Both print what they do; the output of a command belongs to its result.
        subprocess.run(command, env=environment, cwd=made, check=True, stdout=sys.stderr)
        (next(made.iterdir()) if program.tool == "go" else made).replace(place)


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
