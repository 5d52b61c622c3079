"""Where results go: text for people and JSON for programs, two classes behind one interface."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from fsspeckit.cli.output import documents, text

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
    """Shows the result of each command."""

    def plan(self, plan: MergePlan) -> None:
        """What a merge would do."""
        ...

    def merged(self, path: str, result: MergeResult) -> None:
        """What a merge did."""
        ...

    def written(self, path: str, result: WriteDatasetResult) -> None:
        """What a write did."""
        ...

    def inspection(self, found: Inspection) -> None:
        """What a dataset looks like."""
        ...

    def diagnosis(self, found: Diagnosis) -> None:
        """How merges on a key would do."""
        ...

    def history(self, path: str, entries: Sequence[HistoryEntry]) -> None:
        """The commits of a dataset."""
        ...

    def recovery(self, report: RecoveryReport) -> None:
        """What recovery did."""
        ...

    def engines(self, engines: Sequence[FoundEngine]) -> None:
        """Which engines are there."""
        ...


class JsonOutput:
    """One JSON document on one stream, as the schemas of this package describe it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def _write(self, document: dict[str, Any]) -> None:
        self._stream.write(json.dumps(document, indent=2) + "\n")

    def plan(self, plan: MergePlan) -> None:
        """What a merge would do."""
        self._write(documents.of_plan(plan))

    def merged(self, path: str, result: MergeResult) -> None:
        """What a merge did."""
        self._write(documents.of_merge(path, result))

    def written(self, path: str, result: WriteDatasetResult) -> None:
        """What a write did."""
        self._write(documents.of_write(path, result))

    def inspection(self, found: Inspection) -> None:
        """What a dataset looks like."""
        self._write(documents.of_inspection(found))

    def diagnosis(self, found: Diagnosis) -> None:
        """How merges on a key would do."""
        self._write(documents.of_diagnosis(found))

    def history(self, path: str, entries: Sequence[HistoryEntry]) -> None:
        """The commits of a dataset."""
        self._write(documents.of_history(path, entries))

    def recovery(self, report: RecoveryReport) -> None:
        """What recovery did."""
        self._write(documents.of_recovery(report))

    def engines(self, engines: Sequence[FoundEngine]) -> None:
        """Which engines are there."""
        self._write(documents.of_engines(engines))


class TextOutput:
    """Tables and sentences; coloured on a terminal, and never cut where it is none."""

    def __init__(self, stream: TextIO) -> None:
        self._page = text.Page(stream)

    def plan(self, plan: MergePlan) -> None:
        """What a merge would do."""
        text.show_plan(self._page, plan)

    def merged(self, path: str, result: MergeResult) -> None:
        """What a merge did."""
        text.show_merge(self._page, path, result)

    def written(self, path: str, result: WriteDatasetResult) -> None:
        """What a write did."""
        text.show_write(self._page, path, result)

    def inspection(self, found: Inspection) -> None:
        """What a dataset looks like."""
        text.show_inspection(self._page, found)

    def diagnosis(self, found: Diagnosis) -> None:
        """How merges on a key would do."""
        text.show_diagnosis(self._page, found)

    def history(self, path: str, entries: Sequence[HistoryEntry]) -> None:
        """The commits of a dataset."""
        text.show_history(self._page, path, entries)

    def recovery(self, report: RecoveryReport) -> None:
        """What recovery did."""
        text.show_recovery(self._page, report)

    def engines(self, engines: Sequence[FoundEngine]) -> None:
        """Which engines are there."""
        text.show_engines(self._page, engines)
