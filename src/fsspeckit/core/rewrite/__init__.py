"""Data files with rows replaced or deleted, several joined into one, and new files."""

from __future__ import annotations

from fsspeckit.core.rewrite.diff import Replacement, Rewritten, RowRules, SpliceLimits
from fsspeckit.core.rewrite.evolution import evolve_file, evolved_properties
from fsspeckit.core.rewrite.joining import (
    DEFAULT_JOIN_LIMITS,
    Joined,
    JoinLimits,
    join_files,
    sort_files,
)
from fsspeckit.core.rewrite.new_files import (
    BufferLimits,
    FileLimits,
    NewFile,
    NewFiles,
    basename_of,
)
from fsspeckit.core.rewrite.rewriter import read_file_properties, rewrite

__all__ = [
    "DEFAULT_JOIN_LIMITS",
    "BufferLimits",
    "FileLimits",
    "JoinLimits",
    "Joined",
    "NewFile",
    "NewFiles",
    "Replacement",
    "Rewritten",
    "RowRules",
    "SpliceLimits",
    "basename_of",
    "evolve_file",
    "evolved_properties",
    "join_files",
    "read_file_properties",
    "rewrite",
    "sort_files",
]
