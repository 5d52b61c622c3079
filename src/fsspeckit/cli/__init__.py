"""The command line: parses, calls the library, hands the result to an output."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command that the command line asks for."""
    try:
        from fsspeckit.cli.app import app

        app(prog_name="fsspeckit")
    except KeyboardInterrupt:  # before a command has begun
        sys.stderr.write("interrupted: nothing was changed\n")
        sys.exit(1)
