"""Build MinIO, a real object store, for the tests; once, into a cache outside of the checkout.

It is a Go module, so Go is needed, and about ten minutes. What is there already is not built again.

Usage: ``python -m scripts.minio``
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fsspeckit.testing.object_stores import MINIO_VERSION, minio_program

MODULE = "github.com/minio/minio"


def build(program: Path) -> None:
    """Build the program under another name, then give it its own: it is whole or not there."""
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as directory:
        environment = {**os.environ, "GOBIN": directory, "CGO_ENABLED": "0"}
        command = ["go", "install", "-trimpath", "-ldflags=-s -w", f"{MODULE}@{MINIO_VERSION}"]
        subprocess.run(command, env=environment, cwd=directory, check=True)
        (Path(directory) / "minio").replace(program)


def main() -> int:
    """Build what is missing, and return the exit code."""
    program = minio_program()
    if program.exists():
        return 0
    if shutil.which("go") is None:
        print(
            "minio: Go is needed to build it, and is not on PATH. Hint: install Go.",
            file=sys.stderr,
        )
        return 1
    print(f"minio: building {MODULE} {MINIO_VERSION} (about ten minutes, once)", file=sys.stderr)
    try:
        build(program)
    except subprocess.CalledProcessError as error:
        print(f"minio: building it failed with exit code {error.returncode}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
