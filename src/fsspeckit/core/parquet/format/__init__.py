"""The Parquet format: Thrift structures, footers, pages, values and bloom filters."""

from __future__ import annotations
