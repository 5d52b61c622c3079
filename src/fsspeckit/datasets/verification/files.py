"""Verifies data files, in tasks of an engine: first their footers, then their row groups."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from fsspeckit.core.parquet import VerifiedFooter, verify_footer, verify_row_groups
from fsspeckit.storage import Findings, read_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fsspeckit.storage import PinnedFile, Root, VerifyFinding

_SHARE_BYTES: Final = 64 * 1024 * 1024
"""Row groups of a file are verified together up to this number of bytes."""

_SIDE_MAGIC: Final = b"crc\0"
_MAX_SIDE_BYTES: Final = 1 << 28
_BLOCK_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True)
class FileState:
    """What is known of a file after its footer or some of its row groups were verified."""

    relative: str
    findings: tuple[VerifyFinding, ...] = ()
    footer: VerifiedFooter = field(default_factory=VerifiedFooter)
    is_missing: bool = False
    """Whether it could not be opened."""

    has_checksums: bool = True
    """Whether all its pages with values have checksums."""

    @property
    def is_sound(self) -> bool:
        """Whether other code may read it: pyarrow ends the process at some damaged footers."""
        is_damaged = any(finding.severity == "error" for finding in self.findings)
        return self.footer.schema is not None and not is_damaged


@dataclass(frozen=True)
class VerifyFooter:
    """Verifies the footer of a file; picklable."""

    root: Root
    checksums: bool

    def __call__(self, pinned: PinnedFile) -> FileState:
        """Return what its footer says."""
        findings, file = Findings(pinned.relative), pinned.file
        read = partial(read_range, self.root, file.path)
        try:
            footer = verify_footer(read, file.size, findings)
            if self.checksums and self.root.is_local:
                _check_side_file(self.root, pinned, findings)
        except OSError as error:
            return _unread(pinned, error)
        return FileState(pinned.relative, tuple(findings.found), footer)


@dataclass(frozen=True)
class Share:
    """Row groups of a file that are verified together."""

    pinned: PinnedFile
    row_groups: tuple[int, ...]


@dataclass(frozen=True)
class VerifyRowGroups:
    """Verifies row groups of a file; picklable."""

    root: Root
    checksums: bool

    def __call__(self, share: Share) -> FileState:
        """Return what is wrong with them."""
        file, findings = share.pinned.file, Findings(share.pinned.relative)
        read = partial(read_range, self.root, file.path)
        try:
            has_checksums = verify_row_groups(
                read, file.size, share.row_groups, findings, checksums=self.checksums
            )
        except OSError as error:
            return _unread(share.pinned, error)
        found = tuple(findings.found)
        return FileState(share.pinned.relative, found, has_checksums=has_checksums)


def shares_of(pinned: PinnedFile, footer: VerifiedFooter) -> Iterator[tuple[Share, int]]:
    """Divide the row groups of a file; yields shares and their bytes."""
    numbers: list[int] = []
    size = 0
    for number, (_, count) in enumerate(footer.row_groups):
        if numbers and size + count > _SHARE_BYTES:
            yield Share(pinned, tuple(numbers)), size
            numbers, size = [], 0
        numbers.append(number)
        size += count
    if numbers:
        yield Share(pinned, tuple(numbers)), size


def joined(states: Iterable[FileState]) -> dict[str, FileState]:
    """Return what is known of each file, by its path below the root."""
    found: dict[str, FileState] = {}
    for state in states:
        known = found.get(state.relative)
        if known is not None:
            state = replace(
                known,
                findings=tuple(dict.fromkeys(known.findings + state.findings)),
                is_missing=known.is_missing or state.is_missing,
                has_checksums=known.has_checksums and state.has_checksums,
            )
        found[state.relative] = state
    return found


def _unread(pinned: PinnedFile, error: OSError) -> FileState:
    findings = Findings(pinned.relative)
    what = str(error).partition("\n")[0]
    findings.error(f"it cannot be read: {what}.", "check the disk and who may read the file.")
    is_missing = isinstance(error, FileNotFoundError)
    return FileState(pinned.relative, tuple(findings.found), is_missing=is_missing)


# Hadoop keeps the checksums of a file on a local disk beside it, and refuses to read it if they do
# not fit.


def _check_side_file(root: Root, pinned: PinnedFile, findings: Findings) -> None:
    directory, _, name = pinned.file.path.rpartition("/")
    path = f"{directory}/.{name}.crc"
    try:
        data = read_range(root, path, 0, _MAX_SIDE_BYTES)
    except FileNotFoundError:
        return
    if len(data) < 8 or data[:4] != _SIDE_MAGIC:
        fits = False
    else:
        block = struct.unpack(">i", data[4:8])[0]
        fits = block > 0 and _sums_fit(root, pinned, block, data[8:])
    if not fits:
        findings.error(
            f"the checksums in '.{name}.crc' do not fit it: Spark refuses to read it.",
            "delete the .crc file if the data file is right, else restore the data file.",
        )


def _sums_fit(root: Root, pinned: PinnedFile, block: int, sums: bytes) -> bool:
    file, position = pinned.file, 0
    if len(sums) != 4 * -(-file.size // block):
        return False
    step = max(1, _BLOCK_BYTES // block) * block
    for start in range(0, file.size, step):
        part = memoryview(read_range(root, file.path, start, min(step, file.size - start)))
        found: Sequence[int] = [
            zlib.crc32(part[at : at + block]) for at in range(0, len(part), block)
        ]
        expected = sums[position : position + 4 * len(found)]
        if struct.pack(f">{len(found)}I", *found) != expected:
            return False
        position += 4 * len(found)
    return True
