"""Print results as text: a sentence, a few figures, a table."""

from __future__ import annotations

from collections import Counter
from shlex import quote
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fsspeckit.cli.errors import advice_in_cli_terms
from fsspeckit.core.merge import DEDUPLICATE_TARGET, preposition
from fsspeckit.core.planning import EVOLVE
from fsspeckit.display import counted, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fsspeckit.cli.commands.init import NewProject
    from fsspeckit.cli.commands.inspect import FoundEngine
    from fsspeckit.cli.commands.report import ServedReport, WrittenReport
    from fsspeckit.core.merge import MergeResult
    from fsspeckit.core.planning import MergePlan
    from fsspeckit.datasets.inspection import Diagnosis, Finding, Inspection, KeyPruning
    from fsspeckit.datasets.pipeline import (
        CompactBin,
        CompactPlan,
        CompactResult,
        EvolveResult,
        RepartitionResult,
        WriteDatasetResult,
    )
    from fsspeckit.datasets.verification import VerifyReport
    from fsspeckit.storage import CleanReport, HistoryEntry, RecoveryReport, RestoreResult

__all__ = ["TextOutput"]

_UNBOUNDED_WIDTH = 100_000
_MAX_FILES = 20
_STYLES = {
    "affected": "yellow",
    "rewritten": "yellow",
    "candidate": "yellow",
    "guarded": "magenta",
    "pruned": "green",
    "inserted": "blue",
    "error": "red",
    "warning": "yellow",
    "note": "cyan",
}
_VERDICTS = {
    "refused": "be refused",
    "poor": "read many files without a key of the source",
    "good": "read few files without a key of the source",
}


class _Page:
    """Writes tables and sentences to a stream; texts are taken literally, not as markup."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._console = Console(file=stream)
        if not self._console.is_terminal:
            # Without a terminal there is no width to fit into.
            self._console = Console(file=stream, width=_UNBOUNDED_WIDTH)

    def _print(self, table: Table) -> None:
        if self._console.is_terminal:
            self._console.print(table)
            return
        with self._console.capture() as captured:
            self._console.print(table)
        lines = captured.get().splitlines()
        self._stream.write("".join(f"{line.rstrip()}\n" for line in lines))

    def line(self, text: str = "", style: str = "") -> None:
        """Print one sentence."""
        self._console.print(Text(text, style=style), soft_wrap=True)

    def section(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print an empty line and a table, unless there are no rows."""
        if rows:
            self.line()
            self.table(columns, rows)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table; columns whose names end in ``>`` are aligned to the right."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in columns:
            right = name.endswith(">")
            table.add_column(
                name.removesuffix(">"), justify="right" if right else "left", overflow="fold"
            )
        for row in rows:
            texts = ["" if cell is None else str(cell) for cell in row]
            table.add_row(*(Text(text, style=_STYLES.get(text, "")) for text in texts))
        self._print(table)

    def facts(self, facts: Iterable[tuple[str, str]]) -> None:
        """Print names and values."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, value in facts:
            table.add_row(Text(name), Text(value))
        self._print(table)

    def left_out(self, files: Sequence[object], indent: str = "") -> None:
        """Print how many files are more than are listed."""
        if len(files) > _MAX_FILES:
            self.line(f"{indent}… and {len(files) - _MAX_FILES:,} more; --json lists them all")


class TextOutput(_Page):
    """Tables and sentences: coloured on a terminal, and never cut off where there is none."""

    def plan(self, plan: MergePlan) -> None:
        """Print every file with the evidence that decided about it."""
        counts = Counter(file.decision for file in plan.files)
        decisions = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
        rows, keys = counted(plan.source_rows, "row"), ", ".join(plan.key_columns)
        into = f"{preposition(plan.strategy)} {plan.path}"
        by_key = f"{plan.strategy} of {rows} {into} by {keys}"
        if plan.strategy == DEDUPLICATE_TARGET:
            by_key = f"deduplicate {plan.path} by {keys or 'every column'}"
        by_condition = f"{plan.strategy} {into} where {plan.where}"
        title = by_key if plan.where is None else by_condition
        self.line(f"evolve {plan.path}" if plan.strategy == EVOLVE else title, "bold")
        affected = sum(file.bytes for file in plan.with_decision("affected"))
        total = sum(file.bytes for file in plan.files)
        self.line(
            f"{counted(len(plan.files), 'file')}: {decisions or 'none yet'}; {size(affected)} of "
            f"{size(total)} in affected files"
        )
        if plan.trusted_partitions:
            self.line("other partitions were not searched, because of --trust-partitions")
        for change in plan.schema_changes:
            self.line(f"column {change}")
        for note in plan.notes:
            self.line(note)
        self.section(
            ("decision", "file", "rows>", "size>", "row groups>", "why"),
            [
                (
                    file.decision,
                    _relative(file.path, plan.path),
                    f"{file.rows:,}",
                    size(file.bytes),
                    f"{len(file.row_groups)} of {file.row_group_count}",
                    "nothing rules the keys out" if file.evidence.kind == "none" else file.evidence,
                )
                for file in plan.files
            ],
        )

    def merged(self, path: str, result: MergeResult) -> None:
        """Print counts of rows and files, and the new files."""
        self.line(
            f"{result.title} {preposition(result.strategy)} {path}: "
            f"{result.updated:,} matched{result.of_which_moved}, {result.inserted:,} inserted, "
            f"{result.deleted:,} deleted{result.without_effect}",
            "bold",
        )
        counts = Counter(file.operation for file in result.files)
        written = sum(f.size_bytes or 0 for f in result.files if f.operation != "preserved")
        seconds = sum(result.metrics.get("seconds", {}).values())
        commit = result.metrics.get("commit", {})
        done = "none: skipped" if commit.get("skipped") else "none: nothing changed"
        facts = [
            ("rows", f"{result.target_count_before:,} before, {result.target_count_after:,} after"),
            (
                "files",
                f"{counts['rewritten']:,} rewritten, {counts['inserted']:,} new, "
                f"{counts['preserved']:,} untouched",
            ),
            ("written", f"{size(written)} in {seconds:.2f} s"),
            ("commit", f"{commit['number']}" if commit.get("published") else done),
        ]
        facts += [("note", note) for note in commit.get("notes", ())]
        self.facts(facts)
        _new_files(self, path, [f for f in result.files if f.operation != "preserved"])

    def written(self, path: str, result: WriteDatasetResult) -> None:
        """Print how much was written, and the new files."""
        written = sum(file.size_bytes or 0 for file in result.files)
        self.line(
            f"{result.mode} of {counted(result.total_rows, 'row')} into {path}: "
            f"{counted(len(result.files), 'file')}, {size(written)}",
            "bold",
        )
        for note in result.metrics.get("commit", {}).get("notes", ()):
            self.line(note)
        _new_files(self, path, result.files)

    def compaction_planned(self, path: str, plan: CompactPlan) -> None:
        """Print which files would become one."""
        self._compaction(path, plan, plan.bins)

    def compacted(self, path: str, result: CompactResult) -> None:
        """Print which files became one, and which were left because others touched them."""
        self._compaction(path, result, result.bins)

    def _compaction(
        self, path: str, found: CompactPlan | CompactResult, bins: Sequence[CompactBin]
    ) -> None:
        title, *lines = str(found).splitlines()
        self.line(title.replace("compact:", f"compact {path}:"), "bold")
        for line in lines:
            self.line(line)
        self.section(
            ("partition", "files>", "rows>", "size>", "copied>", "encoded>", "how"),
            [
                (
                    one.partition or ".",
                    f"{len(one.files):,}",
                    f"{one.rows:,}",
                    size(one.bytes_before),
                    size(one.bytes_copied),
                    size(one.bytes_encoded),
                    one.method,
                )
                for one in bins[:_MAX_FILES]
            ],
        )
        self.left_out(bins)

    def repartitioned(self, path: str, result: RepartitionResult) -> None:
        """Print how much was written, and the new files."""
        names = (result.partition_columns_before, result.partition_columns)
        before, after = (", ".join(some) or "no partitions" for some in names)
        written = sum(file.size_bytes or 0 for file in result.files)
        replaced = f"{counted(result.replaced_files, 'file')} of {size(result.replaced_bytes)}"
        done = f"{counted(len(result.files), 'file')} of {size(written)} replace {replaced}"
        if result.dry_run:
            done = f"would replace {replaced}"
        elif not result.files:
            done = "nothing to do"
        rows = counted(result.total_rows, "row")
        self.line(f"repartition of {rows} in {path} from {before} to {after}: {done}", "bold")
        for note in result.metrics.get("commit", {}).get("notes", ()):
            self.line(note)
        _new_files(self, path, result.files)

    def evolved(self, path: str, result: EvolveResult) -> None:
        """Print what changed about the columns, and the new files."""
        counts = Counter(file.operation for file in result.files)
        self.line(
            f"evolve {path}: {counted(len(result.changes), 'change')}, {counts['rewritten']:,} "
            f"of {counted(len(result.files), 'file')} rewritten",
            "bold",
        )
        for change in result.changes:
            self.line(f"  {change}")
        commit = result.metrics.get("commit", {})
        done = f"{commit['number']}" if commit.get("published") else "none: nothing changed"
        facts = [("rows", f"{result.total_rows:,}, as before"), ("commit", done)]
        facts += [("note", note) for note in commit.get("notes", ())]
        self.facts(facts)
        _new_files(self, path, [f for f in result.files if f.operation != "preserved"])

    def inspection(self, found: Inspection) -> None:
        """Print totals, columns, files and warnings."""
        self.line(found.path, "bold")
        facts = [
            ("files", f"{len(found.files):,} with {counted(found.row_groups, 'row group')}"),
            ("rows", f"{found.rows:,}"),
            ("size", size(found.bytes)),
            ("commits", f"{found.commits:,}"),
        ]
        if found.partition_columns:
            names = ", ".join(found.partition_columns)
            facts.append(("partitions", f"{found.partitions:,} by {names}"))
        if found.key_pruning is not None:
            facts.append(("key", _pruning(found.key_pruning, len(found.files))))
        self.facts(facts)
        _inspected_columns(self, found)
        _inspected_files(self, found)
        _inspected_warnings(self, found)

    def diagnosis(self, found: Diagnosis) -> None:
        """Print a verdict, what makes merges fail, and what else to change."""
        keys = ", ".join(found.key_columns)
        self.line(f"{found.path}: merges by {keys} would {_VERDICTS[found.verdict]}", "bold")
        errors = [finding for finding in found.findings if finding.severity == "error"]
        for finding in errors:
            _finding(self, finding, found.key_columns)
        if errors:
            self.line()
        if found.pruning.probes or not errors:
            self.line(_pruning(found.pruning, found.files))
        for finding in found.findings[len(errors) :]:
            _finding(self, finding, found.key_columns)

    def verified(self, report: VerifyReport) -> None:
        """Print what is wrong, where, and what to do."""
        self.line(report.title, "bold")
        for finding in report.findings[:_MAX_FILES]:
            self.line()
            self.line(f"{finding.severity}: {finding.what}", _STYLES[finding.severity])
            if finding.where:
                self.line(f"  {finding.where}")
            self.line(f"  do: {advice_in_cli_terms(finding.hint, report.key_columns)}")
        self.left_out(report.findings)
        for note in report.notes:
            self.line(note)

    def history(self, path: str, entries: Sequence[HistoryEntry]) -> None:
        """Print one line for each commit."""
        if not entries:
            self.line(f"{path}: no commits yet")
            return
        columns = ["commit>", "time (UTC)", "engine", "what", "key", "rows", "files", "state"]
        has_transactions = any(entry.transaction for entry in entries)
        has_tombstones = any(entry.tombstones is not None for entry in entries)
        self.table(
            columns + ["transaction"] * has_transactions + ["tombstones>"] * has_tombstones,
            [
                (
                    entry.number,
                    entry.time[:19].replace("T", " "),
                    entry.engine,
                    "; ".join((_what(entry), *entry.schema_changes)),
                    ", ".join(entry.key_columns),
                    entry.row_changes,
                    f"+{len(entry.added):,} -{len(entry.removed):,}",
                    _state(entry) + (", purged" if entry.purged else ""),
                    *[entry.transaction] * has_transactions,
                    *[entry.tombstones] * has_tombstones,
                )
                for entry in entries
            ],
        )

    def recovery(self, report: RecoveryReport, *, one_line: bool = False) -> None:
        """Print what recovery completed and removed."""
        lines = [str(commit) for commit in report.completed]
        lines += [f"removed {name}, which was not committed" for name in report.discarded]
        lines += [f"left {name}: its writer may still be running" for name in report.in_use]
        self.line(f"{report.path}: {'; '.join(lines) or 'nothing to recover'}")

    def restored(self, result: RestoreResult) -> None:
        """Print what an undo or a restore did, and each file."""
        self.line(str(result))
        files = [("restored", file.original, size(file.bytes)) for file in result.restored]
        files += [("removed", path, "") for path in result.removed]
        if files:
            self.table(("what", "file", "bytes>"), files)

    def cleaned(self, report: CleanReport) -> None:
        """Print what a clean removed, and each item."""
        self.line(str(report))
        if report.items:
            self.table(
                ("what", "name", "files>", "bytes>"),
                [(i.kind, i.name, f"{i.files:,}", size(i.bytes)) for i in report.items],
            )
        if report and report.dry_run:
            self.line("nothing was changed: this is what --no-dry-run does")

    def report_written(self, written: WrittenReport) -> None:
        """Print which page was written, and what it leaves out."""
        files, commits = counted(written.files, "file"), counted(written.commits, "commit")
        self.line(
            f"{written.path}: {files} and {commits} in {written.file} ({size(written.bytes)})"
        )
        for note in written.notes:
            self.line(note)

    def report_served(self, served: ServedReport) -> None:
        """Print where the page is."""
        self.line(f"{served.path} is shown, until Ctrl-C, at")
        self.line(f"  {served.url}")

    def engines(self, engines: Sequence[FoundEngine]) -> None:
        """Print one line for each engine."""
        self.table(
            ("engine", "state", "library", "to install"),
            [
                (
                    f"{engine.name} (default)" if engine.is_default else engine.name,
                    "installed" if engine.installed else f"{engine.missing} is missing",
                    f"{engine.library} {engine.version}" if engine.version else engine.library,
                    engine.install,
                )
                for engine in engines
            ],
        )

    def project(self, project: NewProject) -> None:
        """Print the files of a new project, and how to run it."""
        self.line(f"{project.kind} in {project.directory}", "bold")
        for file in project.files:
            self.line(f"  {file}")
        self.line("to run it, as README.md says:")
        self.line(f"  cd {quote(project.directory)}")
        self.line(f"  {project.command}")


def _relative(path: str, root: str) -> str:
    return path.removeprefix(root.rstrip("/") + "/")


def _new_files(page: _Page, path: str, files: Sequence[object]) -> None:
    page.section(
        ("operation", "file", "rows>", "size>"),
        [
            (
                getattr(file, "operation", "inserted"),
                _relative(file.path, path),  # type: ignore[attr-defined]
                f"{file.row_count:,}",  # type: ignore[attr-defined]
                size(file.size_bytes),  # type: ignore[attr-defined]
            )
            for file in files[:_MAX_FILES]
        ],
    )
    page.left_out(files)


def _pruning(pruning: KeyPruning, files: int) -> str:
    return (
        f"{', '.join(pruning.columns)}: by ranges alone one key may be in "
        f"{pruning.files_of_one_key:g} of {files:,} files on average, in "
        f"{pruning.most_files_of_one_key:,} at most"
    )


def _inspected_columns(page: _Page, found: Inspection) -> None:
    page.section(
        ("column", "type", "least", "greatest", "NULL>", "with ranges>", "with bloom>", ""),
        [
            (
                column.name,
                column.type,
                column.low,
                column.high,
                None if column.nulls is None else f"{column.nulls:,}",
                f"{column.known_row_groups:,}",
                f"{column.bloom_row_groups:,}",
                ", ".join(["key"] * column.is_key + ["partition"] * column.is_partition),
            )
            for column in found.columns
        ],
    )


def _inspected_files(page: _Page, found: Inspection) -> None:
    page.section(
        ("file", "rows>", "size>", "row groups>", "written by"),
        [
            (
                file.path,
                f"{file.rows:,}",
                size(file.bytes),
                f"{file.row_groups:,}",
                "cannot be read" if file.error else file.created_by,
            )
            for file in found.files[:_MAX_FILES]
        ],
    )
    page.left_out(found.files)


def _inspected_warnings(page: _Page, found: Inspection) -> None:
    warnings = [f"a merge would be refused: {obstacle}" for obstacle in found.obstacles]
    warnings += [f"a merge would be refused: {file.error}" for file in found.files if file.error]
    warnings += [
        f"column {each.column!r} is {' or '.join(each.types)}, depending on the file, such as "
        f"{each.files[0]!r}; doctor shows what to do"
        for each in found.type_differences
    ]
    warnings += [
        f"commit {number} is not complete: run recover" for number in found.pending_commits
    ]
    small = found.small_files
    if small is not None:
        warnings.append(
            f"{small.files:,} files are smaller than {size(small.limit)}; fewer and larger ones "
            "are read and merged faster"
        )
    if warnings:
        page.line()
    for text in warnings:
        page.line(f"warning: {text}", "yellow")


def _finding(page: _Page, finding: Finding, key_columns: Sequence[str]) -> None:
    page.line()
    page.line(f"{finding.severity}: {finding.what}", _STYLES[finding.severity])
    for file in finding.files[:_MAX_FILES]:
        page.line(f"  {file}")
    page.left_out(finding.files, "  ")
    page.line(f"  do: {advice_in_cli_terms(finding.advice, key_columns)}")


def _what(entry: HistoryEntry) -> str:
    return entry.strategy if entry.restores is None else f"{entry.strategy} to {entry.restores}"


def _state(entry: HistoryEntry) -> str:
    if entry.abandoned:
        return "abandoned"
    if not entry.complete:
        return "not complete: recover"
    return "recovered" if entry.recovered else "complete"
