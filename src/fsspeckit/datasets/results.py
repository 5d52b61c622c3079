"""What a write answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fsspeckit.display import Card, Displayed, FileGroup, Listing
from fsspeckit.display.card import size

__all__ = ["FileWriteMetadata", "WriteDatasetResult"]


@dataclass
class FileWriteMetadata:
    """One file that a write made."""

    path: str
    row_count: int
    size_bytes: int | None = None
    partition_values: dict[str, Any] = field(default_factory=dict)


@dataclass
class WriteDatasetResult(Displayed):
    """What a write did.

    ``str()`` tells it in a few lines; rich and notebooks show a table and a picture of the files.
    """

    files: list[FileWriteMetadata]
    total_rows: int
    mode: str

    def _card(self) -> Card:
        def line(file: FileWriteMetadata) -> tuple[str, ...]:
            parts = ", ".join(f"{name}={value}" for name, value in file.partition_values.items())
            return file.path, parts, f"{file.row_count:,}", size(file.size_bytes)

        written = sum(file.size_bytes or 0 for file in self.files)
        return Card(
            f"{self.mode} of {self.total_rows:,} rows",
            (FileGroup("written", "added", len(self.files), written),),
            Listing.of(("file", "partition", "rows", "size"), self.files, line),
        )
