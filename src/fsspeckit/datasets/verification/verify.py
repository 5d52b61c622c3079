"""The way of a verification: list, verify files, compare them, look for keys, check what is kept.

Nothing is changed. Others may write meanwhile: what is wrong with a file that a commit has removed
since is not a finding.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fsspeckit.core.keys import as_names, check_names
from fsspeckit.core.matching import wrong_index_entries
from fsspeckit.core.planning import read_target, wrong_summaries
from fsspeckit.datasets.pipeline import lazy_staging, partition_schema
from fsspeckit.datasets.verification.agreement import (
    check_layout,
    check_partitions,
    check_schemas,
)
from fsspeckit.datasets.verification.files import (
    FileState,
    VerifyFooter,
    VerifyRowGroups,
    joined,
    shares_of,
)
from fsspeckit.datasets.verification.report import VerifyReport
from fsspeckit.datasets.verification.unique_keys import MAX_HASHES, check_unique
from fsspeckit.display import counted
from fsspeckit.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    UnsupportedLayoutError,
)
from fsspeckit.storage import (
    Findings,
    PinnedFile,
    VerifyFinding,
    files_to_verify,
    list_snapshot,
    removed_since,
    verify_control,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from fsspeckit.core.planning import Target
    from fsspeckit.datasets.engine import Engine, OpenStage
    from fsspeckit.display import Phases, Progress
    from fsspeckit.storage import StableFiles, Storage

T = TypeVar("T")

VerifyNulls = Literal["ignore", "match"]
"""Whether keys that are NULL may occur more than once."""

_NULLS = ("ignore", "match")
_FOOTER_BYTES = 64 * 1024


def run_verify(
    engine: Engine[Any, Any, Any],
    storage: Storage,
    key_columns: str | Sequence[str] | None = None,
    *,
    checksums: bool = True,
    null_keys: VerifyNulls = "ignore",
    progress: Progress | bool | None = None,
) -> VerifyReport:
    """Verify a dataset; see :meth:`fsspeckit.datasets.base.DatasetIO.verify`."""
    keys: tuple[str, ...] = ()
    if key_columns is not None:
        keys = as_names(key_columns)
        check_names("key_columns", keys)
    if null_keys not in _NULLS:
        raise InvalidArgumentError.choice("null_keys", null_keys, _NULLS)
    if not isinstance(checksums, bool):
        raise InvalidArgumentError.flag("checksums", checksums)
    storage.check_exists()
    observed = storage.observe("verify", engine=engine.name, progress=progress)
    with observed as phases, lazy_staging(storage) as stage:
        return _Verification(engine, storage, stage, phases, checksums).run(keys, null_keys)


@dataclass
class _Verification:
    """One call of `verify`."""

    engine: Engine[Any, Any, Any]
    storage: Storage
    stage: OpenStage
    phases: Phases
    checksums: bool

    def run(self, keys: tuple[str, ...], null_keys: VerifyNulls) -> VerifyReport:
        started = time.perf_counter()
        state = files_to_verify(self.storage)
        with self.phases.timed("footers") as facts:
            items = [(pinned, _FOOTER_BYTES) for pinned in state.files]
            read = VerifyFooter(self.storage.root, self.checksums)
            footers = joined(self._map("footers", read, items))
            facts["files"] = len(footers)
        self._check_keys(state, footers, keys)
        with self.phases.timed("verify") as facts:
            found = joined([*footers.values(), *self._row_groups(state, footers)])
            found |= self._published_since(state, found)
            facts["files"] = len(found)
            facts["rows"] = sum(file.footer.rows for file in found.values())
        findings = list(check_layout(state, self.storage))
        findings += check_schemas(
            {path: file.footer for path, file in footers.items() if file.footer.schema is not None}
        )
        findings += self._partitions(state, found)
        if keys:
            with self.phases.timed("keys"):
                findings += self._unique(state, found, keys, with_nulls=null_keys == "match")
        with self.phases.timed("control"):
            findings += self._kept(state, found)
            rows = {path: file.footer.rows for path, file in found.items() if file.is_sound}
            findings += verify_control(self.storage, rows)
        findings = self._still_true(state, found, findings)
        self.phases.facts["findings"] = len(findings)
        return self._report(state, found, keys, findings, time.perf_counter() - started)

    def _map(
        self, phase: str, task: Callable[[Any], Any], items: Sequence[tuple[Any, int]]
    ) -> list[Any]:
        if not items:
            return []
        return self.engine.map_items(phase, task, items, self.stage, self.phases.report)

    def _row_groups(self, state: StableFiles, footers: Mapping[str, FileState]) -> list[FileState]:
        items = [
            item
            for pinned in state.files
            for item in shares_of(pinned, footers[pinned.relative].footer)
        ]
        return self._map("verify", VerifyRowGroups(self.storage.root, self.checksums), items)

    def _published_since(
        self, state: StableFiles, found: Mapping[str, FileState]
    ) -> dict[str, FileState]:
        """Verify files again that were staged when they were listed and have been published."""
        missing = [one for one in state.files if found[one.relative].is_missing]
        if not missing:
            return {}
        later = list_snapshot(self.storage)[0].by_path
        moved = [
            PinnedFile(one.relative, later[one.relative])
            for one in missing
            if one.relative in later and later[one.relative].path != one.file.path
        ]
        read = VerifyFooter(self.storage.root, self.checksums)
        footers = joined(self._map("verify", read, [(one, _FOOTER_BYTES) for one in moved]))
        again = replace(state, files=tuple(moved))
        return joined([*footers.values(), *self._row_groups(again, footers)])

    def _check_keys(
        self, state: StableFiles, footers: Mapping[str, FileState], keys: tuple[str, ...]
    ) -> None:
        """Refuse key columns that no file has."""
        schemas = [file.footer.schema for file in footers.values()]
        names = {name for schema in schemas if schema is not None for name in schema.names}
        names.update(partition_schema([pinned.relative for pinned in state.files]).names)
        is_known = any(schema is not None for schema in schemas)
        if is_known and (missing := [name for name in keys if name not in names]):
            raise InvalidArgumentError.missing_columns("key_columns", missing, sorted(names))

    def _unique(
        self,
        state: StableFiles,
        found: Mapping[str, FileState],
        keys: tuple[str, ...],
        *,
        with_nulls: bool,
    ) -> list[VerifyFinding]:
        parts = partition_schema([pinned.relative for pinned in state.files])
        read = partial(self.engine.footers, stage=self.stage)

        def read_present(pinned: Sequence[PinnedFile]) -> Target:
            files = [one.file for one in pinned]
            return read_target(self.storage.root, files, keys, parts, read=read)

        try:
            target = self._of_present(_sound(state, found), read_present)
        except (SchemaMismatchError, InvalidArgumentError, UnsupportedLayoutError) as error:
            findings = Findings()
            what, _, hint = str(error).partition("\nHint: ")
            findings.error(f"keys cannot be compared: {what}", hint)
            return findings.found
        numbers = [n for n, footer in enumerate(target.footers) if footer.error is None]
        sizes = {n: target.footers[n].file.size // 4 for n in numbers}

        def call(task: Callable[[int], Any], numbers: Sequence[int]) -> list[Any]:
            return self._map("keys", task, [(number, sizes[number]) for number in numbers])

        return check_unique(target, numbers, call, with_nulls=with_nulls, max_hashes=MAX_HASHES)

    def _partitions(
        self, state: StableFiles, found: Mapping[str, FileState]
    ) -> list[VerifyFinding]:
        parts = partition_schema([pinned.relative for pinned in state.files])
        files = [one for one in _sound(state, found) if _stores(found[one.relative], parts)]
        if not files:
            return []
        return self._of_present(files, lambda left: check_partitions(self.storage, left, parts))

    def _of_present(
        self, files: Sequence[PinnedFile], call: Callable[[Sequence[PinnedFile]], T]
    ) -> T:
        """Call a function of files, again without those that others have removed."""
        while True:
            try:
                return call(files)
            except FileNotFoundError:
                stat = self.storage.backend.stat
                left = [one for one in files if stat(one.file.path) is not None]
                if len(left) == len(files):
                    raise
                files = left

    def _kept(self, state: StableFiles, found: Mapping[str, FileState]) -> list[VerifyFinding]:
        """Compare what is kept of files in the control directory with the files."""
        findings, files = Findings(), _sound(state, found)

        def wrong_footers(left: Sequence[PinnedFile]) -> list[tuple[str, str]]:
            return wrong_summaries(self.storage, [one.file for one in left])

        def wrong_keys(left: Sequence[PinnedFile]) -> list[str]:
            return wrong_index_entries(self.storage, [one.file for one in left])

        for path, what in self._of_present(files, wrong_footers):
            findings.file = path
            findings.error(
                f"the footer cache says of it {what}: merges may skip it.",
                "delete footers.arrow in the control directory.",
            )
        try:
            wrong = self._of_present(files, wrong_keys)
        except (SchemaMismatchError, InvalidArgumentError, UnsupportedLayoutError):
            wrong = []  # of other key columns: it is not used
        for path in wrong:
            findings.file = path
            findings.error(
                "the key index has other keys than the file: merges may insert rows that are there "
                "already.",
                "merge with key_index=False once, then with key_index=True.",
            )
        return findings.found

    def _still_true(
        self,
        state: StableFiles,
        found: Mapping[str, FileState],
        findings: Sequence[VerifyFinding],
    ) -> list[VerifyFinding]:
        """Add the findings about files, without those that others have removed or changed."""
        suspects = {path for path, file in found.items() if file.findings}
        suspects |= {one.file for one in findings if one.file is not None and one.file in found}
        if not suspects:
            return list(findings)
        later = list_snapshot(self.storage)[0].by_path
        pinned = {one.relative: one.file for one in state.files}
        gone = {p for p in suspects if p not in later or not pinned[p].is_same_file(later[p])}
        removed = removed_since(self.storage, state.number) if gone else set()
        kept = [finding for finding in findings if finding.file not in gone]
        kept += [f for path in sorted(suspects - gone) for f in found[path].findings]
        for path in sorted(gone - removed):
            what = "vanished" if path not in later else "was changed by another program"
            text = f"it {what} while it was verified."
            hint = "verify again when nobody changes files but by commits."
            severity: Literal["error", "warning"] = "error" if path not in later else "warning"
            kept.append(VerifyFinding(severity, text, hint, path))
        return kept

    def _report(
        self,
        state: StableFiles,
        files: Mapping[str, FileState],
        keys: tuple[str, ...],
        findings: Sequence[VerifyFinding],
        seconds: float,
    ) -> VerifyReport:
        ordered = sorted(
            dict.fromkeys(findings),
            key=lambda one: (one.severity != "error", one.file or "", one.row_group or 0),
        )
        known = [file.footer for file in files.values()]
        return VerifyReport(
            self.storage.root.display_path,
            state.number,
            len(state.files),
            sum(len(footer.row_groups) for footer in known),
            sum(footer.rows for footer in known),
            sum(pinned.file.size for pinned in state.files),
            keys,
            tuple(ordered),
            self._notes(files, keys),
            seconds=round(seconds, 6),
        )

    def _notes(self, files: Mapping[str, FileState], keys: tuple[str, ...]) -> tuple[str, ...]:
        """Say what was not verified."""
        notes = []
        without = sum(not file.has_checksums for file in files.values())
        if not self.checksums:
            notes.append("checksums were not compared.")
        elif without:
            notes.append(
                f"{without:,} of {len(files):,} files have no checksums of their pages: a value "
                "that was changed on the disk may go unnoticed if statistics and encoding still "
                "fit."
            )
        if keys and (left_out := sum(not file.is_sound for file in files.values())):
            notes.append(f"keys in {counted(left_out, 'file')} with errors were not compared.")
        return tuple(notes)


def _sound(state: StableFiles, found: Mapping[str, FileState]) -> list[PinnedFile]:
    return [pinned for pinned in state.files if found[pinned.relative].is_sound]


def _stores(file: FileState, parts: pa.Schema) -> bool:
    schema = file.footer.schema
    return schema is not None and not set(schema.names).isdisjoint(parts.names)
