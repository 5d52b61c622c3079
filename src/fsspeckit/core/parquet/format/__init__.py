"""The Parquet format: Thrift structures, layout, pages, values and bloom filters."""

from __future__ import annotations
