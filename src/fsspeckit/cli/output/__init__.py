"""Print the result of a command: as text or as JSON, by two classes with the same methods."""

from __future__ import annotations

from fsspeckit.cli.output.json import JsonOutput
from fsspeckit.cli.output.text import TextOutput

__all__ = ["JsonOutput", "Output", "TextOutput"]

Output = JsonOutput | TextOutput
