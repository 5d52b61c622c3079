"""Rewriting: one data file with some of its rows replaced, and new files."""

from __future__ import annotations

from fsspeckit.core.rewrite.new_files import FileLimits, NewFile, NewFiles, basename_of
from fsspeckit.core.rewrite.rewrite import Replacement, Rewritten, file_layout, rewrite

__all__ = [
    "FileLimits",
    "NewFile",
    "NewFiles",
    "Replacement",
    "Rewritten",
    "basename_of",
    "file_layout",
    "rewrite",
]
