"""Matching: scan target keys and find the positions of rows that have a source key."""

from __future__ import annotations

from fsspeckit.core.matching.duplicates import (
    DuplicateRules,
    KeepPolicy,
    LosingRows,
    check_same_rows,
    losing_rows,
    scan_rows,
    scanned_files,
    share_of,
)
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
    "DuplicateRules",
    "FilePartition",
    "IndexedKeys",
    "KeepPolicy",
    "LosingRows",
    "Positions",
    "StoredKeyIndex",
    "check_same_rows",
    "chosen_rows",
    "confirm_affected_files",
    "find_positions",
    "index_keys",
    "key_and_order_columns",
    "keys_of_file",
    "losing_rows",
    "moving_keys",
    "prefilter_for",
    "read_columns",
    "read_positions",
    "row_group_starts",
    "scan_keys",
    "scan_rows",
    "scanned_files",
    "selected_positions",
    "share_of",
    "wrong_index_entries",
]
