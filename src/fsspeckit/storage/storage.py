"""One open dataset: its root, its filesystem, and the names in its control directory.

The control directory sits beside the dataset, ``<parent>/.<name>.fsspeckit/``, because several
readers take hidden files below a root for data::

    .events.fsspeckit/
        lock                         locked by the writer that publishes
        location.json                only where control_dir= points elsewhere: the pointer
        dataset.json                 only in a control directory given by control_dir=
        footers.arrow                summaries of footers; may be deleted at any time
        keys.index                   the key index: where the fingerprints of each file are
        keys/<id>.keys               fingerprints of keys; may be deleted at any time
        tombstones/0000000007_<id>.arrow  keys that a change feed has deleted, written by commit 7
        incoming/<query>/<batch>/    rows that tasks of a stream have written for a commit
        commits/0000000007.json      the commit record: journal and history in one
        commits/0000000007.done.json says that the commit is complete
        commits/0000000001_0000000050.jsonl.gz  records and marks of old commits
        commits/0000000007.damaged.json a record that could not be read, set aside by recovery
        .staging_<id>/               files of a writer, not visible yet; phases.json
        .opening_<id>/               a staging directory that nobody uses yet
        .shadow_<number>_<id>/       the new tree of a directory, before it is swapped in
        .old_<number>_<id>/          the old tree, after it was swapped out
        .dropped_<number>_<id>/      a new tree that was not needed, while it is deleted
        trash/0000000007/            what commit 7 replaced

None of our files in it ends in a Parquet suffix, so a reader of the parent finds no staged and no
trashed file. (New and old trees hold final names, for as long as one commit publishes.)
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from fsspeckit.display import observed_call, warn, without_queries
from fsspeckit.errors import Argument, CorruptRecordError, InvalidArgumentError
from fsspeckit.storage.fs.attributes import Capabilities, capabilities_of, mount_points
from fsspeckit.storage.fs.backends import Backend, open_backend
from fsspeckit.storage.listing import list_files
from fsspeckit.storage.roots import Root, open_root
from fsspeckit.storage.schemes import scheme_of, schemes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from fsspeckit.display import Fact, Phases, Progress
    from fsspeckit.storage.fs.tasks import Task
    from fsspeckit.storage.listing import Listing

STAGED_SUFFIX = ".staged"
TRASH_SUFFIX = ".trash"
_MAX_NAME_BYTES = 255
OWNER_FILE = "owner.json"
POINTER = "location.json"
MANIFEST_FILE = "manifest.json"
TREE = "tree"
INCOMING = "incoming"
TRASH = "trash"
_STAGING = re.compile(r"^\.(staging|opening)_[0-9a-f]{32}(~\d+)?$")
_TREES = re.compile(r"^\.(shadow|old|dropped)_(\d{10})_[0-9a-f]{32}$")
_SEGMENT = re.compile(r"^(\d{10})_(\d{10})\.jsonl\.gz$")
_DIGITS = 10

BLOCK = 50
"""How many commits the smallest segment holds."""

KEPT = 20
"""How many of the last records are never folded: people read them, and so do older writers."""

_SIZES = (BLOCK, BLOCK * 10, BLOCK * 100)


@dataclass(frozen=True, slots=True)
class ControlDirectory:
    """Names inside one control directory."""

    path: str

    def at(self, *parts: str) -> str:
        """Return the path of an entry."""
        return "/".join((self.path, *parts))

    @property
    def lock(self) -> str:
        """The file that the publishing writer locks."""
        return self.at("lock")

    @property
    def footers(self) -> str:
        """The summaries of footers."""
        return self.at("footers.arrow")

    @property
    def key_index(self) -> str:
        """The entries of the key index; deleting it deletes the index."""
        return self.at("keys.index")

    @property
    def key_segments(self) -> str:
        """The directory of the fingerprints that the key index refers to."""
        return self.at("keys")

    @property
    def tombstones(self) -> str:
        """The directory of the keys that change feeds have deleted."""
        return self.at("tombstones")

    @property
    def commits(self) -> str:
        """The directory of the commit records."""
        return self.at("commits")

    def record(self, number: int) -> str:
        """Return the path of a commit record."""
        return self.at("commits", f"{number:010}.json")

    def damaged(self, number: int) -> str:
        """Return the path where a record is kept that could not be read."""
        return self.at("commits", f"{number:010}.damaged.json")

    def done(self, number: int) -> str:
        """Return the path of the mark that a commit is complete."""
        return self.at("commits", f"{number:010}.done.json")

    @property
    def trash(self) -> str:
        """The directory of replaced files, with a directory for each commit."""
        return self.at(TRASH)

    def trashed(self, number: int, relative: str) -> str:
        """Return where a replaced file goes: under its name, hashed where that is too long."""
        directory, slash, name = relative.rpartition("/")
        if len(os.fsencode(name)) > _MAX_NAME_BYTES - len(TRASH_SUFFIX):
            name = hashlib.sha256(os.fsencode(name)).hexdigest()
        return f"{self.trash}/{number:010}/{directory}{slash}{name}{TRASH_SUFFIX}"


def staging_names(names: list[str]) -> list[str]:
    """Return the staging directories among the entries of a control directory."""
    return [name for name in names if _STAGING.match(name)]


def renamed_staging(names: list[str], staging: str) -> list[str]:
    """Return the names that a staging directory has now, after recoveries have renamed it."""
    return [name for name in names if name == staging or name.startswith(f"{staging}~")]


def new_tree_name(kind: str, number: int) -> str:
    """Return a name of its own for the new or old tree of a commit."""
    return f"{kind}_{number:010}_{uuid.uuid4().hex}"


def tree_names(names: list[str]) -> list[tuple[str, str, int]]:
    """Return the new and old trees among the entries: name, kind, commit number."""
    return [(name, found[1], int(found[2])) for name in names if (found := _TREES.match(name))]


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


def _find_control_directory(
    root: Root,
    backend: Backend,
    control_dir: str | os.PathLike[str] | None = None,
    *,
    only_reads: bool = False,
    found: FirstListings,
) -> tuple[ControlDirectory, ControlDirectory | None]:
    """Find the control directory of a dataset, and the default one if that is another.

    ``found`` gets what is in it, where that was listed.
    """
    parent, _, name = root.path.rpartition("/")
    has_parent = name and (parent or root.path.startswith("/"))
    default = ControlDirectory(f"{parent}/.{name}.fsspeckit") if has_parent else None
    pointed = None
    if default is not None and _has_pointer(root, backend, default, found):
        pointer = default.at(POINTER)
        pointed = _read_document(backend, pointer, "fsspeckit-location", "control_dir")
    if control_dir is None:
        if default is None and only_reads:
            # A writer must have been given another one, so there is nothing in this one.
            return ControlDirectory(f"{root.path.rstrip('/')}/.fsspeckit"), None
        if default is None:
            raise InvalidArgumentError(
                f"{root.display_path!r} has no parent to keep a control directory in.\n"
                "Hint: pass control_dir=, a directory outside of the dataset.",
                argument="control_dir",
            )
        if pointed:
            found.control = None
            return ControlDirectory(pointed), default
        return default, None
    found.control = None
    given = _given(root, control_dir)
    other = None if default is None or default.path == given else default
    if pointed is None and other is not None and backend.names(other.commits):
        pointed = other.path  # it is in use
    if pointed is not None and pointed != given:
        raise _elsewhere(root, given, pointed)
    return ControlDirectory(given), other


def _has_pointer(
    root: Root, backend: Backend, default: ControlDirectory, found: FirstListings
) -> bool:
    """Whether the default control directory points to another one.

    On an object store that listing also says what else there is.
    """
    if root.is_local or capabilities_of(root).directories:
        if backend.stat(default.path) is not None:  # of a directory it is None
            raise InvalidArgumentError(
                f"{root.to_user_path(default.path)!r}, where the control directory of "
                f"{root.display_path!r} is, is a file.\n"
                "Hint: move the file away, or pass control_dir=, a directory outside of the "
                "dataset."
            )
        return backend.stat(default.at(POINTER)) is not None
    found.control = backend.names_with(default.path, "commits")
    return POINTER in found.control[0]


def _leave_pointer(
    root: Root, backend: Backend, control: ControlDirectory, default: str
) -> str | None:
    """Make every writer find a control directory that is not the default; a note if impossible."""
    _claim(root, backend, control)
    pointer = f"{default}/{POINTER}"
    try:
        _create_once(backend, pointer, _document("fsspeckit-location", control_dir=control.path))
    except PermissionError:
        return (
            "no pointer could be left beside the dataset: every writer must pass the same "
            f"control_dir={control.path!r}."
        )
    pointed = _read_document(backend, pointer, "fsspeckit-location", "control_dir")
    if pointed != control.path:
        raise _elsewhere(root, control.path, pointed)
    return None


def _create_once(backend: Backend, path: str, data: bytes) -> None:
    """Create a file that stays as the first of several writers wrote it."""
    if backend.stat(path) is None:
        backend.make_directories(path.rpartition("/")[0])
        with suppress(FileExistsError):
            backend.create(path, data)


def _elsewhere(root: Root, given: str, place: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"control_dir {given!r} is not where other writers of {root.display_path!r} keep it: "
        f"{place!r}.\n"
        "Hint: leave control_dir out, or pass that one.",
        argument="control_dir",
    )


def _claim(root: Root, backend: Backend, control: ControlDirectory) -> None:
    """Make sure that a control directory given by the caller serves one dataset only."""
    path = control.at("dataset.json")
    _create_once(backend, path, _document("fsspeckit-dataset", root=root.path))
    owner = _read_document(backend, path, "fsspeckit-dataset", "root")
    if owner != root.path:
        raise InvalidArgumentError(
            f"control_dir {control.path!r} belongs to {owner!r}, not to {root.path!r}.\n"
            "Hint: each dataset needs a control directory of its own.",
            argument="control_dir",
        )


def _given(root: Root, control_dir: str | os.PathLike[str]) -> str:
    """Return the path of a control directory that the caller gave, checked."""
    if not str(os.fspath(control_dir)).strip():
        raise InvalidArgumentError(
            f"control_dir must name a directory, got {control_dir!r}.", argument="control_dir"
        )
    scheme = scheme_of(str(os.fspath(control_dir)))
    # The dataset's filesystem would take a URL of another one for a path of its own.
    if scheme is not None and scheme not in schemes_of(root.filesystem) and not root.is_arrow:
        raise InvalidArgumentError(
            f"control_dir must be on the filesystem of the dataset, {root.protocol!r}, got a URL "
            f"of {scheme!r}.\nHint: pass a path outside of {root.display_path!r} on the same "
            "filesystem.",
            argument="control_dir",
        )
    path = open_root(control_dir, root.filesystem).path
    if f"{path}/".startswith(f"{root.path}/"):
        raise InvalidArgumentError(
            f"control_dir must be outside of the dataset, got {path!r}.\n"
            "Hint: readers would take the files in it for data.",
            argument="control_dir",
        )
    return path


def _document(kind: str, **values: str) -> bytes:
    return (json.dumps({"format": kind, "version": 1, **values}, indent=2) + "\n").encode()


def _read_document(backend: Backend, path: str, kind: str, key: str) -> str:
    try:
        content: Any = json.loads(backend.read(path))
        if content["format"] != kind or content["version"] != 1:
            raise ValueError(f"it is not {kind} version 1")
        value = content[key]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptRecordError.damaged(path, str(error)) from error
    return str(value)


ControlNames = tuple[list[str], list[str]]
"""The names in a control directory, and those of its records."""


@dataclass
class FirstListings:
    """What was listed when a storage was opened, for whoever asks first; it is given once."""

    control: ControlNames | None = None
    """The names in the control directory."""

    files: Task[Listing] | None = None
    """The listing of the data files, where it was requested at the same moment."""

    moment: float = field(default_factory=time.monotonic)
    """When they were requested."""

    def __reduce__(self) -> tuple[type[FirstListings], tuple[()]]:
        return FirstListings, ()  # in another process, or in a copy, they would be old

    def take_control(self) -> ControlNames | None:
        """Return the names in the control directory."""
        found, self.control = self.control, None
        return found

    def take_recent(self) -> tuple[ControlNames, Listing | None] | None:
        """Return all listings, if they are of the last few seconds."""
        control, files = self.take_control(), self.files
        self.files = None
        is_old = time.monotonic() - self.moment > _MAX_RECENT_SECONDS
        if control is None or is_old:
            return None
        return control, None if files is None else files.result()


PublishMode = Literal["auto", "plain"]
"""How a commit is made visible: at once where the disk can, or always file by file."""

_MODES = ("auto", "plain")
_MAX_RECENT_SECONDS = 5.0
"""How old a listing may be on which something is planned before it is known to be still true."""

_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True, slots=True)
class Retention:
    """How long replaced files stay in the trash: until the first of all limits.

    What the last commit replaced stays whatever its age and size, unless ``commits`` is 0. Each
    writer applies its own retention, so all writers of a dataset should have the same.

    Examples:
        >>> Retention(commits=30, seconds=7 * 86400, max_bytes=50_000_000_000).commits
        30
    """

    commits: int = 3
    """How many of the last commits keep what they replaced; 0 to keep nothing."""

    seconds: float = 24 * 3600.0
    """How long they keep it at most."""

    max_bytes: int | None = None
    """How many bytes the trash may have; None for no limit."""

    def __post_init__(self) -> None:
        for name in ("commits", "seconds", "max_bytes"):
            value: Any = getattr(self, name)
            kinds = (int, float) if name == "seconds" else int
            is_number = isinstance(value, kinds) and not isinstance(value, bool) and value >= 0
            if not is_number and not (name == "max_bytes" and value is None):
                raise InvalidArgumentError(
                    f"{name} of a retention must be a {'' if name == 'seconds' else 'whole '}"
                    f"number, 0 or more, got {value!r}.",
                    argument="retention",
                )


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """How many transactions records carry, and for how long."""

    applications: int = 1_000
    """How many applications; one more is refused, because dropping one would apply it twice."""

    seconds: float = 90 * 24 * 3600.0
    """How long an application is known that commits nothing more."""


@dataclass(frozen=True, slots=True)
class TombstoneLimits:
    """How many deleted keys a dataset remembers."""

    max_rows: int = 10_000_000
    """More are refused, because forgetting one could bring a deleted row back."""


@dataclass(frozen=True, repr=False)
class Storage:
    """One dataset, with everything that storage needs to know about it."""

    root: Root
    """Where the dataset is."""

    control: ControlDirectory
    """Where its control directory is."""

    backend: Backend
    """How files are read and changed there."""

    capabilities: Capabilities
    """What the filesystem can do."""

    publish: PublishMode = "auto"
    """``auto`` swaps directories where possible; ``plain`` never does."""

    lock_timeout: float = 30.0
    """How many seconds to wait for another writer."""

    retention: Retention = Retention()
    """How long replaced files are kept."""

    transaction_limits: TransactionLimits = TransactionLimits()
    """How long transactions are known."""

    tombstone_limits: TombstoneLimits = TombstoneLimits()
    """How many deleted keys are remembered."""

    default_control: str | None = None
    """The default control directory, if another one is used."""

    first_listings: FirstListings = field(default_factory=FirstListings, compare=False)
    """What was listed when it was opened, for whoever asks first."""

    def path(self, relative: str) -> str:
        """Return the canonical path of an entry below the root."""
        return f"{self.root.path.rstrip('/')}/{relative}" if relative else self.root.path

    def check_exists(self) -> None:
        """Raise FileNotFoundError if there is neither a dataset nor a control directory."""
        if self.backend.names(self.control.path) or list_files(self.root).exists:
            return
        control = self.root.to_user_path(self.control.path)
        raise FileNotFoundError(
            f"{self.root.display_path!r} is not there, nor is its control directory {control!r}.\n"
            "Hint: check the path; a relative one begins at the working directory."
        )

    def observe(
        self,
        call: str,
        *,
        engine: str | None = None,
        transaction: object = None,
        progress: Progress | bool | None = None,
        **context: Fact,
    ) -> AbstractContextManager[Phases]:
        """Observe a call on this dataset: a span and log lines for it and each of its phases."""
        named = None if transaction is None else self.root.redacted(str(transaction))
        about = {**self._context, "engine": engine, "transaction": named, **context}
        return observed_call(call, about, progress, self.root.redacted)

    def warn(self, event: str, **facts: Fact) -> None:
        """Log a warning about this dataset; texts are redacted."""
        redacted = {
            name: self.root.redacted(value) if isinstance(value, str) else value
            for name, value in facts.items()
        }
        warn(event, self._context, **redacted)

    @property
    def _context(self) -> dict[str, Fact]:
        return {"dataset": without_queries(self.root.display_path)}

    @contextmanager
    def writing_control(self, phase: str) -> Iterator[None]:
        """Name the phase and a way out where the control directory cannot be written."""
        try:
            yield
        except OSError as error:
            if error.errno not in _NOT_ALLOWED:
                raise
            reason, hint = f"{error.strerror}: {error.filename!r}.", "let this process write there"
            if error.filename is None:  # an object store's error says itself what it needs
                reason, _, hint = str(error.strerror).partition("\nHint: ")
            control = self.root.to_user_path(self.control.path)
            reason = (
                f"{phase} in the control directory {control!r}: {reason}\n"
                f"Hint: {hint.rstrip('.')}, or pass control_dir=, a directory on the same disk or "
                "store that can be written."
            )
            failure = type(error)(error.errno, reason)
            failure.mentions = (Argument("control_dir"),)  # type: ignore[attr-defined]
            raise failure from error

    def prepare(self) -> tuple[str, ...]:
        """Create the control directory; returns notes for the caller."""
        if self.capabilities.directories:
            self._make_control_directory()
        if self.default_control is not None:
            note = _leave_pointer(self.root, self.backend, self.control, self.default_control)
            return () if note is None else (note,)
        return self._mount_notes()

    def _make_control_directory(self) -> None:
        with self.writing_control("preparing to write"):
            if not self.backend.names(self.control.path):
                self.backend.make_directories(self.control.commits)
                self.backend.sync_directory(self.control.path)
                self.backend.sync_directory(self.control.path.rpartition("/")[0])
            self.backend.make_directories(self.control.commits)

    def _mount_notes(self) -> tuple[str, ...]:
        if not self.root.is_local or self.root.path not in mount_points():
            return ()
        return (
            f"{self.root.display_path!r} is a mount point, and its control directory "
            f"{self.control.path!r} is not on what is mounted: whoever mounts the same volume "
            "elsewhere cannot complete what is interrupted here. Use a directory below the mount "
            "point as the dataset, or pass a control_dir= that all writers share.",
        )

    def __repr__(self) -> str:
        return f"Storage({self.root!r}, publish={self.publish!r})"


def check_lock_timeout(seconds: Any) -> None:
    """Refuse what is not a number of seconds.

    Raises:
        InvalidArgumentError: With the value.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise InvalidArgumentError(
            f"lock_timeout must be a number of seconds, 0 or more, got {seconds!r}.",
            argument="lock_timeout",
        )


def open_storage(  # noqa: PLR0913 - one signature for everything about a dataset
    path: str | os.PathLike[str],
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    control_dir: str | os.PathLike[str] | None = None,
    publish: PublishMode = "auto",
    lock_timeout: float = 30.0,
    only_reads: bool = False,
    retention: Retention | None = None,
    lists_files: bool = False,
) -> Storage:
    """Open the storage of a dataset; changes nothing.

    Args:
        path: A path or URL of the dataset, which need not exist yet.
        filesystem: An fsspec or pyarrow filesystem; None to find it from the URL.
        storage_options: What fsspec needs to open the filesystem of the URL.
        control_dir: Where to keep the control directory, on the same filesystem, instead of beside
            the dataset.
        publish: ``"auto"`` or ``"plain"``.
        lock_timeout: How many seconds to wait for another writer.
        only_reads: Whether nothing will be written: then the top of a filesystem, which has no
            place for a control directory, is a dataset like any other.
        retention: How long replaced files are kept in the trash; None for the default.
        lists_files: Whether the data files are needed next: on an object store they are listed
            while the control directory is found.

    Raises:
        InvalidArgumentError: If an argument is wrong.
    """
    if not isinstance(retention, Retention | None):
        raise InvalidArgumentError(
            f"retention must be a Retention, got {retention!r}.\n"
            "Hint: pass Retention(commits=30), for example.",
            argument="retention",
        )
    if publish not in _MODES:
        raise InvalidArgumentError.choice("publish", publish, _MODES)
    check_lock_timeout(lock_timeout)
    root = open_root(path, filesystem, storage_options)
    backend = open_backend(root)
    capabilities = capabilities_of(root)
    found = FirstListings()
    if lists_files and not capabilities.directories:
        found.files = backend.begin(partial(list_files, root))
    control, default = _find_control_directory(
        root, backend, control_dir, only_reads=only_reads, found=found
    )
    if publish == "plain":
        capabilities = replace(capabilities, exchange=False)
    default_control = None if default is None else default.path
    return Storage(
        root,
        control,
        backend,
        capabilities,
        publish,
        lock_timeout,
        retention or Retention(),
        default_control=default_control,
        first_listings=found,
    )
