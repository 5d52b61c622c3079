"""Data files with some of their rows replaced or deleted, and new files."""

from __future__ import annotations

from fsspeckit.core.rewrite.diff import Replacement, Rewritten, RowRules, SpliceLimits
from fsspeckit.core.rewrite.evolution import evolve_file, evolved_properties
from fsspeckit.core.rewrite.new_files import (
    BufferLimits,
    FileLimits,
    NewFile,
    NewFiles,
    basename_of,
)
from fsspeckit.core.rewrite.rewriter import read_file_properties, rewrite

__all__ = [
    "BufferLimits",
    "FileLimits",
    "NewFile",
    "NewFiles",
    "Replacement",
    "Rewritten",
    "RowRules",
    "SpliceLimits",
    "basename_of",
    "evolve_file",
    "evolved_properties",
    "read_file_properties",
    "rewrite",
]
