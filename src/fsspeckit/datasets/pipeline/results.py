"""What a write answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fsspeckit.display import Card, Displayed, FileGroup, Listing
from fsspeckit.display.card import counted, shortened, size

__all__ = ["FileWriteMetadata", "WriteDatasetResult"]


@dataclass
class FileWriteMetadata:
    """One file that a write made."""

    path: str
    """The file, spelled like the path of the dataset."""

    row_count: int
    """Its rows."""

    size_bytes: int | None = None
    """Its size."""

    partition_values: dict[str, Any] = field(default_factory=dict)
    """The values of the partition columns."""


@dataclass
class WriteDatasetResult(Displayed):
    """What a write did.

    ``str()`` tells it in a few lines; rich and notebooks show a table and a picture of the files.
    """

    files: list[FileWriteMetadata]
    """Every new file."""

    total_rows: int
    """The rows of all of them."""

    mode: str
    """``append`` or ``overwrite``."""

    def _card(self) -> Card:
        short = shortened(file.path for file in self.files)

        def line(file: FileWriteMetadata) -> tuple[str, ...]:
            parts = ", ".join(f"{name}={value}" for name, value in file.partition_values.items())
            return short(file.path), parts, f"{file.row_count:,}", size(file.size_bytes)

        written = sum(file.size_bytes or 0 for file in self.files)
        return Card(
            f"{self.mode} of {counted(self.total_rows, 'row')}",
            (FileGroup("written", "added", len(self.files), written),),
            Listing.of(("file", "partition", "rows", "size"), self.files, line),
        )
