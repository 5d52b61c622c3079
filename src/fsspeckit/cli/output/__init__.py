"""Print the result of a command: as text or as JSON, behind one interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fsspeckit.cli.output.json import JsonOutput
from fsspeckit.cli.output.text import TextOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.cli.commands.inspect import FoundEngine
    from fsspeckit.core.merge import MergeResult
    from fsspeckit.core.planning import MergePlan
    from fsspeckit.datasets.inspection import Diagnosis, Inspection
    from fsspeckit.datasets.pipeline import WriteDatasetResult
    from fsspeckit.storage import HistoryEntry, RecoveryReport

__all__ = ["JsonOutput", "Output", "TextOutput"]


class Output(Protocol):
    """Prints the result of each command."""

    def plan(self, plan: MergePlan) -> None:
        """Print what a merge would do."""

    def merged(self, path: str, result: MergeResult) -> None:
        """Print what a merge did."""

    def written(self, path: str, result: WriteDatasetResult) -> None:
        """Print what a write did."""

    def inspection(self, found: Inspection) -> None:
        """Print the files, columns and statistics of a dataset."""

    def diagnosis(self, found: Diagnosis) -> None:
        """Print how well merges on a key would prune."""

    def history(self, path: str, entries: Sequence[HistoryEntry]) -> None:
        """Print the commits of a dataset."""

    def recovery(self, report: RecoveryReport) -> None:
        """Print what recovery completed and removed."""

    def engines(self, engines: Sequence[FoundEngine]) -> None:
        """Print which engines are installed."""
