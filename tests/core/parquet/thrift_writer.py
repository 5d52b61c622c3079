"""Footers as bytes, and structs written back to bytes by the package's own writer."""

from __future__ import annotations

from fsspeckit.core.parquet.format.thrift import encode

__all__ = ["encode", "footer_of"]


def footer_of(file: bytes) -> bytes:
    """Cut the footer out of a Parquet file."""
    return file[-8 - int.from_bytes(file[-8:-4], "little") : -8]
