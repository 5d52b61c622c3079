"""Segments: records of complete commits that are folded into one file, and the names of records.

A segment holds the records and marks of a block of commits, one pair in a line, compressed with
gzip. It is named after its first and its last commit, is never changed, and lies beside the records
that are not folded yet::

    commits/0000000001_0000000500.jsonl.gz
    commits/0000000501_0000000550.jsonl.gz
    commits/0000000551.json
    commits/0000000551.done.json

Blocks begin at fixed numbers, so writers that fold at the same moment write the same segment. What
a segment holds is complete: files of its commits that are still there, or there again, are
leftovers, and so are smaller segments of the same commits.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fsspeckit.errors import CorruptRecordError
from fsspeckit.storage.commit.documents import check_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BLOCK = 50
"""How many commits the smallest segment holds."""

KEPT = 20
"""How many of the last records are never folded: people read them, and so do older writers."""

_FACTOR = 10
_SIZES = (BLOCK, BLOCK * _FACTOR, BLOCK * _FACTOR * _FACTOR)
_SEGMENT = re.compile(r"^(\d{10})_(\d{10})\.jsonl\.gz$")
_DIGITS = 10


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """The name of a segment says which commits it holds."""

    first: int
    last: int

    @property
    def name(self) -> str:
        """Its name in the directory of the records."""
        return f"{self.first:010}_{self.last:010}.jsonl.gz"

    def covers(self, number: int) -> bool:
        """Whether it holds a commit."""
        return self.first <= number <= self.last

    def __contains__(self, other: Segment) -> bool:
        return self != other and self.first <= other.first and other.last <= self.last


@dataclass(frozen=True, slots=True)
class RecordNames:
    """What a listing of the records says."""

    recorded: list[int] = field(default_factory=list)
    """The commits whose records are files of their own, ascending."""

    done: set[int] = field(default_factory=set)
    """Those with a mark that they are complete."""

    segments: list[Segment] = field(default_factory=list)
    """The segments, ascending; none holds what another one holds."""

    leftovers: list[str] = field(default_factory=list)
    """Files whose content is in a segment, and marks of no record."""

    @classmethod
    def of(cls, names: Iterable[str]) -> RecordNames:
        """Sort the names of the files in the directory of the records, which come sorted."""
        recorded, done, segments = [], [], []
        for name in names:  # as few steps as possible: this runs several times in each commit
            if name[_DIGITS:] == ".json":
                if name[:_DIGITS].isdecimal():
                    recorded.append(int(name[:_DIGITS]))
            elif name[_DIGITS:] == ".done.json":
                if name[:_DIGITS].isdecimal():
                    done.append(int(name[:_DIGITS]))
            elif found := _SEGMENT.match(name):
                segments.append(Segment(int(found[1]), int(found[2])))
        return cls(recorded, set(done), segments)._without_leftovers()

    def _without_leftovers(self) -> RecordNames:
        """Leave out what a segment, or a larger one, holds."""
        segments = sorted(self.segments)
        first_free = max((segment.last for segment in segments), default=0) + 1
        is_nested = any(later.first <= former.last for former, later in pairwise(segments))
        if not is_nested and min([*self.recorded, *self.done], default=first_free) >= first_free:
            return self
        largest = [one for one in segments if not any(one in other for other in segments)]
        folded = {n for n in {*self.recorded, *self.done} if _find(largest, n) is not None}
        leftovers = [f"{number:010}.json" for number in self.recorded if number in folded]
        leftovers += [f"{number:010}.done.json" for number in sorted(self.done & folded)]
        leftovers += [segment.name for segment in segments if segment not in largest]
        recorded = [number for number in self.recorded if number not in folded]
        return RecordNames(recorded, self.done - folded, largest, leftovers)

    @property
    def last(self) -> int:
        """The number of the last commit; 0 if there is none."""
        folded = self.segments[-1].last if self.segments else 0
        return max(folded, self.recorded[-1] if self.recorded else 0)

    @property
    def pending(self) -> list[int]:
        """The commits that are not complete."""
        return [number for number in self.recorded if number not in self.done]

    @property
    def can_be_folded(self) -> bool:
        """Whether there are so many records that some may be folded, or leftovers of folding."""
        return len(self.recorded) >= BLOCK + KEPT or bool(self.leftovers)

    def without(self, numbers: set[int]) -> RecordNames:
        """Leave out records that are gone."""
        return replace(self, recorded=[number for number in self.recorded if number not in numbers])

    def segment_of(self, number: int) -> Segment | None:
        """Return the segment that holds a commit."""
        return _find(self.segments, number)

    def has_gap_after(self, number: int) -> bool:
        """Whether a commit after a number, and before the last one, is nowhere."""
        known = sum(
            segment.last - max(segment.first - 1, number)
            for segment in self.segments
            if segment.last > number
        )
        known += sum(recorded > number for recorded in self.recorded)
        return known < self.last - number

    def full_blocks(self) -> list[Segment]:
        """Return the blocks of which every commit has a record and a mark, and may be folded."""
        complete = self.done.intersection(self.recorded)
        pending = self.pending
        limit = min(self.last - KEPT, pending[0] - 1 if pending else self.last)
        starts = {(number - 1) // BLOCK * BLOCK + 1 for number in complete}
        blocks = [Segment(first, first + BLOCK - 1) for first in sorted(starts)]
        return [
            block
            for block in blocks
            if block.last <= limit
            and all(number in complete for number in range(block.first, block.last + 1))
        ]

    def joinable(self) -> list[tuple[Segment, list[Segment]]]:
        """Return the segments that can be made of smaller ones, and of which."""
        found = []
        for small, large in pairwise(_SIZES):
            parts = [s for s in self.segments if s.last - s.first + 1 == small]
            for first in sorted({(part.first - 1) // large * large + 1 for part in parts}):
                whole = Segment(first, first + large - 1)
                within = [part for part in parts if part in whole]
                if len(within) == large // small:
                    found.append((whole, within))
        return found


def _find(segments: list[Segment], number: int) -> Segment | None:
    return next((segment for segment in segments if segment.covers(number)), None)


def encode_lines(pairs: Iterable[tuple[dict[str, Any], dict[str, Any]]]) -> bytes:
    """Encode records and their marks, which are documents with their own checksums.

    The same pairs give the same bytes. Segments one after the other are a segment.
    """
    lines = (
        json.dumps({"record": record, "done": done}, separators=(",", ":"), ensure_ascii=False)
        for record, done in pairs
    )
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)


def read_lines(
    path: str, data: bytes, record_format: str, done_format: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Decode what :func:`encode_lines` has encoded, and check each document.

    Raises:
        CorruptRecordError: If a document is damaged, or the segment itself.
    """
    for record, done in _documents(path, data):
        yield check_document(path, record, record_format), check_document(path, done, done_format)


def read_numbers(path: str, data: bytes) -> list[int]:
    """Return the commits that a segment holds; CorruptRecordError if it is damaged."""
    return [int(record["number"]) for record, _ in _documents(path, data)]


def _documents(path: str, data: bytes) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    try:
        pairs = [json.loads(line) for line in gzip.decompress(data).splitlines()]
        return [(pair["record"], pair["done"]) for pair in pairs]
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise CorruptRecordError.damaged(path, f"{type(error).__name__}: {error}") from error
