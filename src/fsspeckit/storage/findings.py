"""Findings: what is wrong with a dataset, where, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class VerifyFinding:
    """One thing that is wrong with a dataset."""

    severity: Severity
    """``error``: some reader fails, or gets wrong rows, or a merge would. ``warning``: no row is
    wrong or lost, but something is not as it should be."""

    what: str
    """What is wrong."""

    hint: str
    """What to do."""

    file: str | None = None
    """The file it is about: below the dataset's directory, or in the control directory."""

    row_group: int | None = None
    """The row group of the file, from 0."""

    column: str | None = None
    """The column, by its full name."""

    @property
    def where(self) -> str:
        """File, row group and column, as far as it is about one."""
        parts = [self.file] if self.file is not None else []
        parts += [f"row group {self.row_group}"] if self.row_group is not None else []
        parts += [f"column {self.column}"] if self.column is not None else []
        return ", ".join(parts)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{self.severity}: {place}{self.what} Hint: {self.hint}"


@dataclass
class Findings:
    """Collects findings about one file."""

    file: str | None = None
    found: list[VerifyFinding] = field(default_factory=list)

    def error(
        self, what: str, hint: str, row_group: int | None = None, column: str | None = None
    ) -> None:
        """Add what makes some reader fail, or get wrong rows."""
        self.found.append(VerifyFinding("error", what, hint, self.file, row_group, column))

    def warning(
        self, what: str, hint: str, row_group: int | None = None, column: str | None = None
    ) -> None:
        """Add what does neither."""
        self.found.append(VerifyFinding("warning", what, hint, self.file, row_group, column))
