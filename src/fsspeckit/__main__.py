"""``python -m fsspeckit`` is the command line, also where the command is not on PATH."""

from __future__ import annotations

from fsspeckit.cli import main

if __name__ == "__main__":
    main()
