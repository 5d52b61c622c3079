"""Benchmarks: run one with ``python -m benchmarks.bench_NAME``, all with ``make bench``."""

from __future__ import annotations
