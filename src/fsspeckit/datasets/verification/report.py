"""The report of a verification: what was read, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsspeckit.display import MAX_LINES, Card, Displayed, FileGroup, Listing, counted

if TYPE_CHECKING:
    from fsspeckit.storage import VerifyFinding


@dataclass(frozen=True)
class VerifyReport(Displayed):
    """What `verify` found; ``str()`` lists it."""

    path: str
    """The dataset, without credentials."""

    commit: int
    """The last commit of the state that was verified; 0 if there is none."""

    files: int
    """How many data files there are."""

    row_groups: int
    """Row groups of the files that can be read."""

    rows: int
    """Rows of the files that can be read."""

    bytes: int
    """The size of all data files."""

    key_columns: tuple[str, ...]
    """The columns whose values are unique, or were found not to be."""

    findings: tuple[VerifyFinding, ...]
    """What is wrong, errors first."""

    notes: tuple[str, ...] = ()
    """What could not be verified."""

    seconds: float = 0.0
    """How long it took."""

    @property
    def ok(self) -> bool:
        """Whether there is no finding of severity ``error``."""
        return not self.errors

    @property
    def errors(self) -> tuple[VerifyFinding, ...]:
        """What makes some reader fail, or get wrong rows."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def warnings(self) -> tuple[VerifyFinding, ...]:
        """What does neither, and should not be so."""
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    @property
    def title(self) -> str:
        """The outcome in one line."""
        found = [
            counted(len(these), what)
            for these, what in ((self.errors, "error"), (self.warnings, "warning"))
            if these
        ]
        outcome = ", ".join(found) or "nothing is wrong"
        return (
            f"verified {self.path}: {outcome} in {counted(self.files, 'file')} with "
            f"{counted(self.rows, 'row')}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all fields of the report, and ``ok``, as values that ``json`` can write."""
        return {"ok": self.ok, **super().to_dict()}

    def __str__(self) -> str:
        listed = self.findings[:MAX_LINES]
        left_out = len(self.findings) - len(listed)
        more = [f"… and {left_out:,} more"] if left_out else []
        return "\n".join([self.title, *map(str, listed), *more, *self.notes])

    def _card(self) -> Card:
        damaged = len({finding.file for finding in self.errors if finding.file is not None})
        groups = (
            FileGroup("with errors", "removed", min(damaged, self.files)),
            FileGroup("without errors", "kept", max(self.files - damaged, 0)),
        )

        def line(finding: VerifyFinding) -> tuple[str, ...]:
            group = "" if finding.row_group is None else str(finding.row_group)
            where = (finding.file or "", group, finding.column or "")
            return (finding.severity, *where, finding.what, finding.hint)

        columns = ("severity", "file", "row group", "column", "what", "what to do")
        return Card(
            self.title,
            tuple(group for group in groups if group.count),
            Listing.of(columns, self.findings, line),
            self.notes,
        )
