"""Matching: the key scan, and the positions of target rows that have a source key."""

from __future__ import annotations

from fsspeckit.core.matching.key_scan import confirm_affected_files, prefilter_for, scan_keys
from fsspeckit.core.matching.positions import (
    IndexedKeys,
    Positions,
    chosen_rows,
    find_positions,
    index_keys,
    key_and_order_columns,
    keys_of_file,
    moving_keys,
    row_group_starts,
)

__all__ = [
    "IndexedKeys",
    "Positions",
    "chosen_rows",
    "confirm_affected_files",
    "find_positions",
    "index_keys",
    "key_and_order_columns",
    "keys_of_file",
    "moving_keys",
    "prefilter_for",
    "row_group_starts",
    "scan_keys",
]
