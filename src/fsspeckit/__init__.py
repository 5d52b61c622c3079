"""Merge rows into plain Parquet datasets, rewriting only what changes, losing nothing."""

from __future__ import annotations

__version__ = "0.1.0"
