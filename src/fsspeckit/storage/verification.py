"""Verifies the control directory: records, the files they speak of, and what writers have left."""

from __future__ import annotations

import time
from itertools import chain
from typing import TYPE_CHECKING, Final

from fsspeckit.errors import ConcurrentModificationError, CorruptRecordError, LostFileError
from fsspeckit.storage.commit.log import (
    list_records,
    read_completion,
    read_record,
    read_records,
    read_segment,
)
from fsspeckit.storage.commit.staging import (
    current_names,
    find_staged,
    owner_state,
    staging_paths,
)
from fsspeckit.storage.commit.tombstones import read_tombstones
from fsspeckit.storage.commit.uploads import find_abandoned_uploads
from fsspeckit.storage.findings import Findings
from fsspeckit.storage.incoming import find_abandoned
from fsspeckit.storage.snapshot import PinnedFile, StableFiles, list_snapshot, stable_files
from fsspeckit.storage.storage import staging_names, tree_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fsspeckit.storage.commit.log import Add, CommitRecord, Completion
    from fsspeckit.storage.findings import VerifyFinding
    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.snapshot import Snapshot
    from fsspeckit.storage.storage import RecordNames, Storage

_MAX_ATTEMPTS: Final = 10
_PAUSE_SECONDS: Final = 0.2
_SET_ASIDE: Final = ".damaged.json"
_RECOVER: Final = "call recover(); the next writer would do it, too."
_NO_COPY: Final = "find out who did it; rows of the file may be lost, or be there twice."


def files_to_verify(storage: Storage) -> StableFiles:
    """List the data files of a consistent state, or those that are there if records are damaged."""
    try:
        return stable_files(storage)
    except (LostFileError, CorruptRecordError):  # which `verify_control` reports
        snapshot, _ = list_snapshot(storage)
        files = (PinnedFile(path, file) for path, file in sorted(snapshot.by_path.items()))
        listing = snapshot.listing
        return StableFiles(snapshot.number, tuple(files), listing.exists, listing.read_obstacles)


def removed_since(storage: Storage, number: int) -> set[str]:
    """Return the files, below the root, that commits after this one remove."""
    damaged: list[CorruptRecordError] = []  # which `verify_control` reports
    later = read_records(storage, number, damaged)
    return {path for record, _ in later for path in record.removed}


def verify_control(storage: Storage, rows: Mapping[str, int]) -> list[VerifyFinding]:
    """Verify the control directory at a moment when nobody commits; changes nothing.

    What is found is checked again after a moment: a writer may have been in between two steps.

    ``rows`` has the rows of files, by their path below the root, as their footers say.

    Raises:
        ConcurrentModificationError: If commits come faster than records can be read.
    """
    found = _verify_state(storage, rows)
    if not found:
        return []
    time.sleep(_PAUSE_SECONDS)
    later = set(_verify_state(storage, rows))
    return [finding for finding in found if finding in later]


def _verify_state(storage: Storage, rows: Mapping[str, int]) -> list[VerifyFinding]:
    for _ in range(_MAX_ATTEMPTS):
        snapshot, _ = list_snapshot(storage)
        state = list_records(storage)
        found = _ControlCheck(storage, snapshot, rows).run()
        if list_records(storage) == state:
            return found
    raise ConcurrentModificationError(
        f"{storage.root.display_path!r} changes faster than it can be verified."
    )


class _ControlCheck:
    """Verifies one state of the control directory."""

    def __init__(self, storage: Storage, snapshot: Snapshot, rows: Mapping[str, int]) -> None:
        self._storage = storage
        self._rows = rows
        self._listed: Mapping[str, DataFile] = snapshot.by_path
        self._findings = Findings()
        self._pending: set[int] = set()
        self._is_known = True
        """Whether every record is there: else it is not known what should be there."""

    def run(self) -> list[VerifyFinding]:
        names = list_records(self._storage)
        self._check_numbers(names)
        self._check_files([*self._read_segments(names), *self._read_records(names)])
        if names.last:
            self._check_tombstones()
        self._check_leftovers()
        return self._findings.found

    def _check_numbers(self, records: RecordNames) -> None:
        folded = (range(one.first, one.last + 1) for one in records.segments)
        known = {*records.recorded, *chain.from_iterable(folded)}
        names = self._storage.backend.names(self._storage.control.commits)
        set_aside = {name for name in names if name.endswith(_SET_ASIDE)}
        aside = {int(name.partition(".")[0]) for name in set_aside if name[:10].isdigit()}
        every = range(1, max(known | records.done, default=0) + 1)
        self._is_known = known.issuperset(every)
        missing = [number for number in every if number not in known | aside]
        if missing:
            self._findings.file = "commits"
            self._findings.error(
                f"the record of commit {', '.join(map(str, missing[:10]))} is missing: what it "
                "added and removed is not known.",
                "restore the record from a copy of the control directory.",
            )
        for name in sorted(set_aside):
            self._findings.file = f"commits/{name}"
            self._findings.warning(
                "recovery has set aside a record that could not be read.",
                "check that the rows of that commit are there.",
            )

    def _read_segments(
        self, names: RecordNames
    ) -> Iterator[tuple[CommitRecord, Completion | None]]:
        """Read the records that are folded, and report segments that are damaged."""
        for segment in names.segments:
            try:
                yield from read_segment(self._storage, segment)
            except FileNotFoundError:
                continue  # joined with others since it was listed: listed again
            except CorruptRecordError as error:
                self._findings.file = f"commits/{segment.name}"
                self._report_damaged(error)

    def _report_damaged(self, error: CorruptRecordError) -> None:
        what = str(error).partition("\n")[0]
        self._findings.error(what, "restore it from a copy of the control directory.")
        self._is_known = False

    def _read_records(self, names: RecordNames) -> list[tuple[CommitRecord, Completion | None]]:
        """Read other records and marks, and report those that are damaged or not complete."""
        found = []
        for number in names.recorded:
            self._findings.file = f"commits/{number:010}.json"
            try:
                record = read_record(self._storage, number)
                self._findings.file = f"commits/{number:010}.done.json"
                is_marked = number in names.done
                completion = read_completion(self._storage, number) if is_marked else None
            except FileNotFoundError:
                continue  # removed since it was listed: listed again
            except CorruptRecordError as error:
                self._report_damaged(error)
                continue
            if completion is None:
                self._check_pending(record)
            found.append((record, completion))
        return found

    def _check_pending(self, record: CommitRecord) -> None:
        self._pending.add(record.number)
        self._findings.file = f"commits/{record.number:010}.json"
        storage = self._storage
        owners = [owner_state(storage, name) for name in current_names(storage, record.staging)]
        if "running" in owners:
            return  # it is being published
        self._findings.warning(f"commit {record.number} is not complete.", _RECOVER)
        directories = staging_paths(storage, record.staging)
        for add in record.adds:
            # Staged before published: it may be moved in between.
            is_there = (
                add.final in self._listed
                or find_staged(storage, directories, add.staged) is not None
                or storage.backend.stat(storage.path(add.final)) is not None
            )
            if not is_there:
                self._findings.error(
                    f"commit {record.number} adds {add.final!r}, which is neither in the dataset "
                    "nor in its staging directory.",
                    "restore the file, or give up the commit: recover(path, abandon=True).",
                )

    def _check_files(self, records: list[tuple[CommitRecord, Completion | None]]) -> None:
        """Compare the dataset with what complete commits have made of it."""
        if not self._is_known:
            return
        alive: dict[str, tuple[Add, int]] = {}
        gone: dict[str, tuple[CommitRecord, int]] = {}
        for record, completion in records:
            if completion is None or completion.abandoned:
                continue
            for position, remove in enumerate(record.removes):
                alive.pop(remove.path, None)
                gone[remove.path] = (record, position)
            for add in record.adds:
                alive[add.final] = (add, record.number)
                gone.pop(add.final, None)
        pending = [record for record, completion in records if completion is None]
        touched = {path for record in pending for path in (*record.added, *record.removed)}
        for path, (add, number) in alive.items():
            if path not in touched:
                self._check_added(path, add, number)
        for path, (record, position) in gone.items():
            file = self._listed.get(path)
            if file is not None and record.removes[position].is_still(file):
                self._findings.file = path
                self._findings.error(
                    f"commit {record.number} has removed it, and it is there again: its rows are "
                    "there twice.",
                    "delete the file, unless its rows should be there.",
                )

    def _check_added(self, path: str, add: Add, number: int) -> None:
        self._findings.file = path
        file = self._listed.get(path)
        if file is None:
            self._findings.error(
                f"commit {number} has added it, no commit has removed it, and it is not there.",
                "restore it from a copy, or merge its rows again.",
            )
        elif file.size != add.size:
            self._findings.warning(
                f"commit {number} has added it with {add.size:,} bytes, and it has {file.size:,}: "
                "another program has changed it.",
                _NO_COPY,
            )
        elif add.rows is not None and self._rows.get(path, add.rows) != add.rows:
            self._findings.error(
                f"commit {number} has added it with {add.rows:,} rows, and it has "
                f"{self._rows[path]:,}.",
                "restore it from a copy, or merge its rows again.",
            )

    def _check_tombstones(self) -> None:
        self._findings.file = "tombstones"
        try:
            # However old they are: a file that is needed must be there.
            read_tombstones(self._storage, float(2**31))
        except CorruptRecordError as error:
            what, _, hint = str(error).partition("\nHint: ")
            if "commits/" not in what:  # damaged records are reported as such
                self._findings.error(what, hint or "restore it from a copy.")
        except FileNotFoundError:
            return

    def _check_leftovers(self) -> None:
        """Report what writers that are gone have left; it costs space only."""
        storage = self._storage
        names = storage.backend.names(storage.control.path)
        needed = {name for n in self._pending for name in self._staging_of(n)}
        found = [
            name
            for name in staging_names(names)
            if name not in needed and owner_state(storage, name) == "gone"
        ]
        found += [name for name, _, number in tree_names(names) if number not in self._pending]
        found += find_abandoned(storage)
        for name in found:
            self._findings.file = name
            self._findings.warning("a writer that is gone has left it.", _RECOVER)
        for upload in find_abandoned_uploads(storage):
            self._findings.file = upload.name
            self._findings.warning(
                "a writer that is gone has left an upload that nobody finishes: the store keeps "
                "its parts.",
                "call recover() to abort it.",
            )

    def _staging_of(self, number: int) -> list[str]:
        try:
            record = read_record(self._storage, number)
        except (FileNotFoundError, CorruptRecordError):
            return []
        paths = staging_paths(self._storage, record.staging)
        return [path.rpartition("/")[2] for path in paths]
