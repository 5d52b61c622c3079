"""The strategies of a merge, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal

from fsspeckit.display import (
    Card,
    Displayed,
    FileGroup,
    Lane,
    Listing,
    Mark,
    Paged,
    counted,
    lanes_by_partition,
    shortened,
    size,
    tone_of,
)
from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.display import Tone

__all__ = [
    "MergeFileMetadata",
    "MergeResult",
    "MergeStrategy",
    "validate_rewrite_mode_compatibility",
]

RewriteMode = Literal["full", "incremental"]
_REWRITE_MODES = ("full", "incremental")


class MergeStrategy(StrEnum):
    """How source and target are combined.

    Examples:
        >>> MergeStrategy("upsert")
        <MergeStrategy.UPSERT: 'upsert'>
    """

    INSERT = "insert"
    """Append the rows whose key is not in the target; rewrite nothing."""

    UPDATE = "update"
    """Replace the rows whose key is in the source; insert nothing."""

    UPSERT = "upsert"
    """Replace the rows whose key is in the source and append the others."""

    FULL_MERGE = "full_merge"
    """Make the target equal the source by key: rows whose key is not in the source are deleted."""

    DEDUPLICATE = "deduplicate"
    """Reduce the source to one row for each key, then upsert."""

    DELETE = "delete"
    """Delete the rows whose key is in the source; of the source only its keys are used."""

    @classmethod
    def of(cls, value: str) -> MergeStrategy:
        """Return the strategy of this name.

        Raises:
            InvalidArgumentError: If there is none.
        """
        try:
            return cls(value)
        except ValueError:
            raise InvalidArgumentError.choice("strategy", value, [s.value for s in cls]) from None


DEDUPLICATE_TARGET: Final = "deduplicate_target"
"""What results and the history name a call that takes duplicates out of a dataset; the strategy
``deduplicate`` takes them out of the source of a merge."""


def preposition(strategy: str) -> str:
    """Return the word between what a merge takes and the dataset."""
    if strategy == DEDUPLICATE_TARGET:
        return "in"
    return "from" if strategy == MergeStrategy.DELETE else "into"


def validate_rewrite_mode_compatibility(strategy: str, rewrite_mode: str) -> None:
    """Refuse to rewrite incrementally where the strategy needs the whole dataset.

    Raises:
        InvalidArgumentError: A ``ValueError`` naming the strategy.

    Examples:
        >>> validate_rewrite_mode_compatibility("upsert", "incremental")
    """
    wanted = MergeStrategy.of(strategy)
    if rewrite_mode not in _REWRITE_MODES:
        raise InvalidArgumentError.choice("rewrite_mode", rewrite_mode, _REWRITE_MODES)
    whole = (MergeStrategy.FULL_MERGE, MergeStrategy.DEDUPLICATE)
    if rewrite_mode == "incremental" and wanted in whole:
        raise InvalidArgumentError(
            f"incremental rewrite is not supported for the strategy {wanted.value!r}.\n"
            'Hint: use rewrite_mode="full", or the strategy "insert", "update" or "upsert".'
        )


@dataclass
class MergeFileMetadata:
    """One file after a merge."""

    path: str
    """The file, spelled like the path of the dataset."""

    row_count: int
    """Its rows."""

    operation: Literal["rewritten", "inserted", "preserved"]
    """What happened to it."""

    size_bytes: int | None = None
    """Its size."""

    evidence: str | None = None
    """What ruled a preserved file out, such as ``statistics``; None if nothing did."""

    def _mark(self, name: str) -> Mark:
        label: str = self.operation
        tone: Tone = _TONES.get(self.operation, "kept")
        if self.evidence is not None:
            label, tone = f"{label}: pruned by {self.evidence}", tone_of(self.evidence)
        return Mark(name, tone, self.size_bytes, label=label)


_TONES: dict[str, Tone] = {"rewritten": "changed", "inserted": "added"}


def file_lanes(files: Sequence[MergeFileMetadata]) -> tuple[Lane, ...]:
    """Return files of a result as a picture shows them."""
    short = shortened(file.path for file in files)
    return lanes_by_partition(file._mark(short(file.path)) for file in files)


@dataclass
class MergeResult(Paged, Displayed):
    """What a merge did.

    ``str()`` is a short report; rich and notebooks show a table and a picture of the files.
    """

    strategy: str
    """The strategy."""

    source_count: int
    """Rows of the source."""

    target_count_before: int
    """Rows of the target before."""

    target_count_after: int
    """Rows of the target now."""

    inserted: int
    """Rows that were appended."""

    updated: int
    """Target rows that matched a source row, whether or not a value differed."""

    deleted: int
    """Rows that were deleted."""

    files: list[MergeFileMetadata]
    """Every rewritten, inserted and preserved file."""

    rewritten_files: list[str]
    """The new paths of the files that were rewritten."""

    inserted_files: list[str]
    """New files with new rows, or with rows that went to another partition."""

    preserved_files: list[str]
    """Files that stayed as they were, byte for byte."""

    metrics: dict[str, Any] = field(default_factory=dict)
    """Files and bytes at each step of pruning, seconds of each phase, and other facts."""

    late: int = 0
    """Target rows that stayed because they are at least as new as their source row."""

    not_found: int = 0
    """Source rows that changed nothing because the target does not have their key: those that
    delete, and with ``update`` all of them."""

    moved: int = 0
    """Of the updated rows, those that went to another partition."""

    origin: Any = field(default=None, repr=False, compare=False)
    """What its page needs: the dataset, and the plan with its evidence; None for a copy from
    another process."""

    def _card(self) -> Card:
        short = shortened(file.path for file in self.files)

        def line(file: MergeFileMetadata) -> tuple[str, ...]:
            return short(file.path), file.operation, f"{file.row_count:,}", size(file.size_bytes)

        return Card(
            f"{self.title}: {self.inserted:,} inserted, "
            f"{self.updated:,} updated{self.of_which_moved}, {self.deleted:,} deleted"
            f"{self.without_effect}; "
            f"{counted(self.target_count_after, 'row')} now",
            tuple(group for group in self._groups() if group.count),
            Listing.of(("file", "operation", "rows", "size"), self.files, line),
            self._notes(),
        )

    def _lanes(self) -> tuple[Lane, ...]:
        return file_lanes(self.files)

    @property
    def title(self) -> str:
        """What was done, and with how many rows of a source, if there is one."""
        if self.strategy == DEDUPLICATE_TARGET:
            return "deduplicate"
        if not self.source_count and self.strategy == MergeStrategy.DELETE:
            return self.strategy
        return f"{self.strategy} of {counted(self.source_count, 'row')}"

    @property
    def of_which_moved(self) -> str:
        """How many of the updated rows went to another partition; empty if none did."""
        return f" ({self.moved:,} to another partition)" if self.moved else ""

    @property
    def without_effect(self) -> str:
        """What had no effect, in words; empty if there is nothing."""
        counts = {"late": self.late, "not found": self.not_found}
        return "".join(f", {count:,} {name}" for name, count in counts.items() if count)

    def _groups(self) -> list[FileGroup]:
        """Return the files by what happened to them; preserved files by what ruled them out."""
        pruned: dict[str, int] = self.metrics.get("pruned_by", {})
        kept = len(self.preserved_files)
        unchanged = "preserved: no value changed" if self.metrics else "preserved"
        there = self.metrics.get("files", {}).get("total", 0)
        removed = max(0, there - len(self.rewritten_files) - kept)
        return [
            self._written("rewritten", "changed"),
            self._written("inserted", "added"),
            FileGroup("removed", "removed", removed),
            *(
                FileGroup(f"preserved: pruned by {kind}", tone_of(kind), count)
                for kind, count in pruned.items()
            ),
            FileGroup(unchanged, "kept", max(0, kept - sum(pruned.values()))),
        ]

    def _written(self, operation: str, tone: Tone) -> FileGroup:
        sizes = [file.size_bytes or 0 for file in self.files if file.operation == operation]
        return FileGroup(operation, tone, len(sizes), sum(sizes))

    def _notes(self) -> tuple[str, ...]:
        commit = self.metrics.get("commit", {})
        if not commit:
            return ()
        if commit.get("skipped"):
            return tuple(commit["notes"])
        if commit["published"] is None:
            return ("nothing had to be written", *commit["notes"])
        return (f"commit {commit['number']}, published by {commit['published']}", *commit["notes"])
