"""A dataset's storage: where it is, what its filesystem can do, and how commits are published."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage.control import ControlDirectory, find_control_directory, leave_pointer
from fsspeckit.storage.fs.backends import Disk, LocalDisk, RemoteDisk
from fsspeckit.storage.fs.capabilities import Capabilities, capabilities_of
from fsspeckit.storage.fs.objects import ObjectDisk
from fsspeckit.storage.fs.status import mount_points
from fsspeckit.storage.listing import list_files
from fsspeckit.storage.roots import Root, open_root

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

__all__ = ["PublishMode", "Retention", "Storage", "open_disk", "open_storage"]

PublishMode = Literal["auto", "plain"]
"""How a commit is made visible: at once where the disk can, or always file by file."""

_MODES = ("auto", "plain")
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True, slots=True)
class Retention:
    """How long replaced files stay in the trash: until the first of both is over."""

    commits: int = 3
    """The last so many commits keep what they replaced."""

    seconds: float = 24 * 3600.0
    """No longer than this."""


@dataclass(frozen=True, repr=False)
class Storage:
    """Everything that the protocol needs to know about one dataset."""

    root: Root
    """Where the dataset is."""

    control: ControlDirectory
    """Where its control directory is."""

    disk: Disk
    """How files are touched there."""

    capabilities: Capabilities
    """What the filesystem can do."""

    publish: PublishMode = "auto"
    """``auto`` exchanges directories where possible; ``plain`` never does."""

    lock_timeout: float = 30.0
    """How many seconds to wait for another writer."""

    retention: Retention = Retention()
    """How long replaced files are kept."""

    default_control: str | None = None
    """The default place of the control directory, where it is kept elsewhere."""

    def path(self, relative: str) -> str:
        """The canonical path of an entry below the root."""
        return f"{self.root.path.rstrip('/')}/{relative}" if relative else self.root.path

    def check_exists(self) -> None:
        """Make sure that there is something to tell about.

        Raises:
            FileNotFoundError: If there is neither a dataset nor a control directory.
        """
        if self.disk.names(self.control.path) or list_files(self.root).exists:
            return
        raise FileNotFoundError(
            f"{self.root.shown!r} is not there, nor is its control directory "
            f"{self.control.path!r}.\nHint: check the path; a relative one begins at the working "
            "directory."
        )

    @contextmanager
    def writing_control(self, phase: str) -> Iterator[None]:
        """Tell what could not be done where the control directory cannot be written."""
        try:
            yield
        except OSError as error:
            if error.errno not in _NOT_ALLOWED:
                raise
            reason = (
                f"{phase} in the control directory {self.control.path!r}: {error.strerror}: "
                f"{error.filename!r}.\nHint: let this process write there, or pass control_dir=, a "
                "directory on the same disk that it can write."
            )
            raise type(error)(error.errno, reason) from error

    def prepare(self) -> tuple[str, ...]:
        """Create the control directory; returns notes for the caller."""
        with self.writing_control("preparing to write"):
            if not self.disk.names(self.control.path):
                self.disk.make_directories(self.control.commits)
                self.disk.sync_directory(self.control.path)
                self.disk.sync_directory(self.control.path.rpartition("/")[0])
            self.disk.make_directories(self.control.commits)
        if self.default_control is None:
            return self._mount_notes()
        note = leave_pointer(self.root, self.disk, self.control, self.default_control)
        return () if note is None else (note,)

    def _mount_notes(self) -> tuple[str, ...]:
        if not self.root.is_local or self.root.path not in mount_points():
            return ()
        return (
            f"{self.root.shown!r} is a mount point, and its control directory "
            f"{self.control.path!r} is not on what is mounted: whoever mounts the same volume "
            "elsewhere cannot complete what is interrupted here. Use a directory below the mount "
            "point as the dataset, or pass a control_dir= that all writers share.",
        )

    def __repr__(self) -> str:
        return f"Storage({self.root!r}, publish={self.publish!r})"


def open_disk(root: Root) -> Disk:
    """How files are touched on the filesystem that holds a dataset."""
    if root.is_local:
        return LocalDisk()
    capabilities = capabilities_of(root)
    if capabilities.directories:
        return RemoteDisk(root.filesystem, whole_seconds=capabilities.whole_seconds)
    return ObjectDisk(root, capabilities)


def open_storage(
    path: str | os.PathLike[str],
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    control_dir: str | os.PathLike[str] | None = None,
    publish: PublishMode = "auto",
    lock_timeout: float = 30.0,
) -> Storage:
    """Open the storage of a dataset; changes nothing.

    Args:
        path: A path or URL of the dataset, which need not exist yet.
        filesystem: An fsspec or pyarrow filesystem; None to find it from the URL.
        storage_options: What fsspec needs to open the filesystem of the URL.
        control_dir: A place for the control directory, on the same filesystem, other than beside
            the dataset.
        publish: ``"auto"`` or ``"plain"``.
        lock_timeout: How many seconds to wait for another writer.

    Raises:
        InvalidArgumentError: If an argument is wrong.
    """
    if publish not in _MODES:
        raise InvalidArgumentError.choice("publish", publish, _MODES)
    seconds: Any = lock_timeout
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise InvalidArgumentError(
            f"lock_timeout must be a number of seconds, 0 or more, got {lock_timeout!r}."
        )
    root = open_root(path, filesystem, storage_options)
    disk = open_disk(root)
    control, default = find_control_directory(root, disk, control_dir)
    storage = Storage(
        root,
        control,
        disk,
        capabilities_of(root),
        publish,
        lock_timeout,
        default_control=None if default is None else default.path,
    )
    if publish == "plain":
        return replace(storage, capabilities=replace(storage.capabilities, exchange=False))
    return storage
