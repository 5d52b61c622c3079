"""Matching: scan target keys and find the positions of rows that have a source key."""

from __future__ import annotations

from fsspeckit.core.matching.key_index import StoredKeyIndex, wrong_index_entries
from fsspeckit.core.matching.positions import (
    FilePartition,
    IndexedKeys,
    Positions,
    chosen_rows,
    confirm_affected_files,
    find_positions,
    index_keys,
    key_and_order_columns,
    keys_of_file,
    moving_keys,
    prefilter_for,
    read_columns,
    read_positions,
    row_group_starts,
    scan_keys,
    selected_positions,
)

__all__ = [
    "FilePartition",
    "IndexedKeys",
    "Positions",
    "StoredKeyIndex",
    "chosen_rows",
    "confirm_affected_files",
    "find_positions",
    "index_keys",
    "key_and_order_columns",
    "keys_of_file",
    "moving_keys",
    "prefilter_for",
    "read_columns",
    "read_positions",
    "row_group_starts",
    "scan_keys",
    "selected_positions",
    "wrong_index_entries",
]
