"""Verifies a Parquet file: what its footer, indexes and filters say, against its values."""

from __future__ import annotations
