"""Rewriting: one data file with some of its rows replaced, and new files."""

from __future__ import annotations
