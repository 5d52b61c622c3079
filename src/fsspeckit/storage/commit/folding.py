"""Folding: records of old commits become one file, so that a history costs no commit anything.

The file is a *segment*: a line for each commit with its record and its mark, compressed with gzip.
It is named after its first and its last commit, is never changed, and lies beside the records that
are not folded yet. Files of its commits that are still there, or there again, are leftovers, and so
are smaller segments of the same commits.

A block of complete commits is folded in steps that may be interrupted, and repeated by anybody:

1. the segment is created, whole or not at all: from now on it answers for its commits;
2. the records go, after the segment was read back;
3. the marks go; without its mark a record would look as if it were pending;
4. ten segments are joined to a larger one in the same way.

Where there is a kernel lock, its holder folds. Elsewhere everybody may: blocks begin at fixed
numbers and records never change, so all of them create the same segment.
"""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsspeckit.errors import ConcurrentModificationError, CorruptRecordError
from fsspeckit.storage.commit.log import (
    DONE_FORMAT,
    FORMAT,
    checksum_of,
    decode_document,
    list_records,
    segment_numbers,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fsspeckit.storage.storage import RecordNames, Segment, Storage

_MAX_BLOCKS_PER_COMMIT = 8


@dataclass(frozen=True, slots=True)
class Folded:
    """What folding has done."""

    records: int = 0
    """How many records are in a segment now that were files of their own."""

    removed: tuple[str, ...] = ()
    """The files that are gone, by their name in the control directory."""


def fold_after_commit(storage: Storage) -> None:
    """Fold some records after a commit; what fails now is done after a later one."""
    with suppress(OSError, CorruptRecordError, ConcurrentModificationError):
        fold_records(storage, _MAX_BLOCKS_PER_COMMIT)


def fold_records(storage: Storage, max_blocks: int | None = None) -> Folded:
    """Fold all records that may be folded, or at most some blocks of them.

    A block with a record that cannot be read stays as it is.
    """
    if not storage.capabilities.whole_put:
        return Folded()  # half a segment would hide records that are whole
    names = list_records(storage)
    folded = [block for block in names.full_blocks()[:max_blocks] if _fold(storage, block)]
    while parts := (names := list_records(storage)).joinable():
        for whole, segments in parts:
            _join(storage, whole, segments)
    removed = _remove_leftovers(storage, names)
    return Folded(sum(block.last - block.first + 1 for block in folded), tuple(removed))


def _fold(storage: Storage, block: Segment) -> bool:
    """Create the segment of a block; False if it cannot be, or another writer was first."""
    control = storage.control
    numbers = range(block.first, block.last + 1)
    records = [control.record(number) for number in numbers]
    marks = [control.done(number) for number in numbers]
    try:
        found = storage.backend.read_all([*records, *marks])
        pairs = [
            (_checked(record, found[record], FORMAT), _checked(mark, found[mark], DONE_FORMAT))
            for record, mark in zip(records, marks, strict=True)
        ]
        storage.backend.create(control.at("commits", block.name), _encode_lines(pairs))
    except (FileNotFoundError, FileExistsError, CorruptRecordError):
        return False
    return True


def _join(storage: Storage, whole: Segment, parts: list[Segment]) -> None:
    """Create a segment of smaller ones, which then are leftovers."""
    paths = [storage.control.at("commits", part.name) for part in parts]
    found = storage.backend.read_all(paths)
    data = b"".join(found[path] for path in paths)
    with suppress(FileExistsError):
        storage.backend.create(storage.control.at("commits", whole.name), data)


def _checked(path: str, data: bytes, kind: str) -> dict[str, object]:
    """Return a whole document, with its checksum."""
    document = decode_document(path, data, kind)
    return {**document, "checksum": checksum_of(document)}


def _remove_leftovers(storage: Storage, names: RecordNames) -> list[str]:
    """Remove files whose content is in a segment, once that was read back."""
    folded: dict[str, Segment] = {}
    for name in names.leftovers:
        segment = names.segment_of(int(name[:10]))
        if segment is not None:
            folded[name] = segment
    intact = {segment for segment in set(folded.values()) if _is_intact(storage, segment)}
    found = [name for name, segment in folded.items() if segment in intact]
    marks = [name for name in found if name.endswith(".done.json")]
    # Should the power fail between the two, no record may come back without its mark.
    for group in ([name for name in found if name not in set(marks)], marks):
        if group:
            storage.backend.discard_all([storage.control.at("commits", name) for name in group])
            storage.backend.sync_directory(storage.control.commits)
    return [f"commits/{name}" for name in found]


def _is_intact(storage: Storage, segment: Segment) -> bool:
    """Whether a segment holds all its commits."""
    path = storage.control.at("commits", segment.name)
    try:
        found = segment_numbers(path, storage.backend.read(path))
    except (FileNotFoundError, CorruptRecordError):
        return False
    return found == list(range(segment.first, segment.last + 1))


def _encode_lines(pairs: Iterable[tuple[dict[str, object], dict[str, object]]]) -> bytes:
    """Encode records and their marks, which are documents with their own checksums.

    The same pairs give the same bytes. Segments one after the other are a segment.
    """
    lines = (
        json.dumps({"record": record, "done": done}, separators=(",", ":"), ensure_ascii=False)
        for record, done in pairs
    )
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)
