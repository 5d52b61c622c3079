"""What a write answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["FileWriteMetadata", "WriteDatasetResult"]


@dataclass
class FileWriteMetadata:
    """One file that a write made."""

    path: str
    row_count: int
    size_bytes: int | None = None
    partition_values: dict[str, Any] = field(default_factory=dict)


@dataclass
class WriteDatasetResult:
    """What a write did."""

    files: list[FileWriteMetadata]
    total_rows: int
    mode: str
