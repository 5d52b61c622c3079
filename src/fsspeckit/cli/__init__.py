"""The command line: parses, calls the library, hands the result to an output."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command that the command line asks for."""
    from fsspeckit.cli.app import app

    app(prog_name="fsspeckit")
