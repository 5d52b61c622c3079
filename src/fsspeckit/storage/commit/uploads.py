"""Uploads in parts that writers have begun on S3, and that nobody will finish.

No listing of objects shows them, and the store charges for their parts until they are aborted.
Other stores remove such parts by themselves after a week.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fsspeckit.storage.commit.log import read_records
from fsspeckit.storage.commit.staging import MAX_OWNER_AGE, owner_state
from fsspeckit.storage.fs import syscalls
from fsspeckit.storage.fs.clients import client_of
from fsspeckit.storage.fs.reads import naming_failure
from fsspeckit.storage.fs.s3 import S3Objects, UnfinishedUpload
from fsspeckit.storage.storage import staging_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from fsspeckit.errors import CorruptRecordError
    from fsspeckit.storage.storage import Storage

# What credentials that may not list uploads get, and answers of stores without such a request.
_NOT_LISTED = frozenset({errno.EACCES, errno.EPERM, errno.ENOSYS})


@dataclass(frozen=True, slots=True)
class AbandonedUpload:
    """An upload of a writer that is gone."""

    name: str
    """The object that it would have become, in the caller's spelling."""

    upload: UnfinishedUpload


def find_abandoned_uploads(
    storage: Storage, removed: Collection[str] = ()
) -> list[AbandonedUpload]:
    """Find the uploads that writers of this dataset have left.

    None where the store has no such uploads, or the credentials may not list them. ``removed``
    are staging directories of dead writers that were there until now.
    """
    found = _unfinished(storage, {storage.control.path, storage.root.path})
    abandoned = (*_of_writers(storage, found, removed), *_of_commits(storage, found))
    return [AbandonedUpload(storage.root.to_user_path(each.path), each) for each in abandoned]


def abort_uploads_to(storage: Storage, paths: Collection[str]) -> None:
    """Abort uploads to some paths: those of a writer whose commit somebody else completes.

    What is copied in one request fails once its source has another name, but an upload whose parts
    are all there can still be completed. That must not bring back a file that was replaced since.
    """
    found = [each for each in _unfinished(storage, {storage.root.path}) if each.path in paths]
    named = [AbandonedUpload(storage.root.to_user_path(each.path), each) for each in found]
    abort_uploads(storage, named)


def _unfinished(storage: Storage, paths: Collection[str]) -> list[UnfinishedUpload]:
    """List the uploads to the buckets of some paths, as far as that is possible."""
    client = client_of(storage.root.filesystem)
    if not isinstance(client, S3Objects):
        return []
    found: list[UnfinishedUpload] = []
    for bucket in sorted(set(map(client.bucket_of, paths))):
        with naming_failure(storage.root, bucket, "listing the uploads", "list"):
            try:
                found += client.unfinished_uploads(bucket)
            except OSError as error:
                if error.errno not in _NOT_LISTED and not isinstance(error, PermissionError):
                    raise
    return found


def abort_uploads(storage: Storage, found: Iterable[AbandonedUpload]) -> None:
    """Abort uploads; some may have ended since they were found."""
    client = client_of(storage.root.filesystem)
    for each in found:
        with naming_failure(storage.root, each.upload.path, "aborting the upload", "abort"):
            syscalls.remote(client, "abort_upload", each.upload)


def bytes_of_upload(storage: Storage, abandoned: AbandonedUpload) -> int:
    """Return how many bytes the store keeps of an upload; 0 if the credentials may not ask."""
    client = client_of(storage.root.filesystem)
    try:
        return int(client.bytes_of_upload(abandoned.upload))
    except (FileNotFoundError, PermissionError):
        return 0


def _of_writers(
    storage: Storage, found: Iterable[UnfinishedUpload], removed: Collection[str]
) -> Iterator[UnfinishedUpload]:
    """Yield the uploads into the control directory whose writers are gone."""
    prefix = f"{storage.control.path}/"
    gone: dict[str, bool | None] = dict.fromkeys(removed, True)
    for upload in found:
        if not upload.path.startswith(prefix):
            continue
        name = upload.path[len(prefix) :].partition("/")[0]
        # Whoever completes a commit renames its staging directory, and has no owner file in it
        # at first. The first upload of a writer, too, may begin before its owner file is there.
        is_gone: bool | None = None
        if staging_names([name]) and "~" not in name:
            if name not in gone:
                gone[name] = _is_gone(storage, name)
            is_gone = gone[name]
        if is_gone is None:
            is_gone = datetime.now(UTC) - upload.started > MAX_OWNER_AGE
        if is_gone:
            yield upload


def _is_gone(storage: Storage, name: str) -> bool | None:
    """Whether the writer of a staging directory is gone; None if nothing is in the directory."""
    if not storage.backend.names(storage.control.at(name)):
        return None
    return owner_state(storage, name) == "gone"


def _of_commits(storage: Storage, found: Iterable[UnfinishedUpload]) -> Iterator[UnfinishedUpload]:
    """Yield the uploads into the dataset that were copies of files of complete commits.

    Other programs upload into it as well.
    """
    prefix = f"{storage.root.path}/"
    inside = [upload for upload in found if upload.path.startswith(prefix)]
    if not inside:
        return
    damaged: list[CorruptRecordError] = []  # which `verify_control` reports
    complete: set[str] = set()
    pending: set[str] = set()
    for record, completion in read_records(storage, 0, damaged):
        (pending if completion is None else complete).update(map(storage.path, record.added))
    # A commit that is not complete may put a file where an earlier one has put another.
    yield from (upload for upload in inside if upload.path in complete - pending)
