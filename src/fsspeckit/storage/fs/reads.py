"""Reads on every filesystem, and errors that name the file and say what failed.

Every library behind fsspec raises errors of its own, many of them without an errno. They are
recognised by the names of their classes, by their codes and by their HTTP status, so that none of
those libraries has to be imported. What leaves this module always has an errno: an ``OSError``
without one is how pyarrow reports damaged bytes.
"""

from __future__ import annotations

import errno
import io
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyarrow import fs as arrow_fs

from fsspeckit.errors import FsspeckitError, InvalidArgumentError
from fsspeckit.storage.fs.obstore_reads import read_with_obstore
from fsspeckit.storage.roots import without_credentials

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.roots import Root

    Meaning = Literal["missing", "denied", "other"]
    Action = Literal["read", "list", "write", "copy", "delete", "abort"]

_STATUS: dict[str, Meaning] = {"401": "denied", "403": "denied", "404": "missing", "410": "missing"}
_DENIED_CODES = (
    # S3
    *("AccessDenied", "AccessDeniedException", "AccountProblem", "AllAccessDisabled"),
    *("ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"),
    *("InvalidTokenId", "RequestExpired"),
    *("InvalidAccessKeyId", "InvalidClientTokenId", "SignatureDoesNotMatch", "InvalidSecurity"),
    *("RequestTimeTooSkewed", "NotSignedUp", "UnauthorizedAccess"),
    # Azure
    *("AuthenticationFailed", "AuthorizationFailure", "AuthorizationPermissionMismatch"),
    *("AuthorizationProtocolMismatch", "AuthorizationSourceIPMismatch", "AccountIsDisabled"),
    *("InsufficientAccountPermissions", "InvalidAuthenticationInfo", "NoAuthenticationInformation"),
    # Classes of botocore, azure and google
    *("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"),
    *("TokenRetrievalError", "UnauthorizedSSOTokenError", "SSOTokenLoadError"),
    *("ClientAuthenticationError", "CredentialUnavailableError"),
    *("RefreshError", "DefaultCredentialsError", "Forbidden", "Unauthorized"),
)
_MISSING_CODES = (
    *("NoSuchKey", "NoSuchBucket", "NoSuchVersion"),
    *("BlobNotFound", "ContainerNotFound", "FilesystemNotFound", "PathNotFound"),
    *("ResourceNotFound", "ResourceNotFoundError", "NotFound"),
)
_CODES: dict[str, Meaning] = {
    **_STATUS,
    **dict.fromkeys(_DENIED_CODES, "denied"),
    **dict.fromkeys(_MISSING_CODES, "missing"),
}
# What is wrong with credentials that a store refuses whatever they ask for, and what to do.
_SOURCES = (
    "credentials come from storage_options, the environment (AWS_ACCESS_KEY_ID), a profile of "
    "~/.aws or the role of the machine"
)
_UNKNOWN_KEY = (
    "the store does not know the access key",
    f"check the key and the endpoint; {_SOURCES}.",
)
_WRONG_SECRET = (
    "the secret is not that of the access key",
    f"check the secret, also for characters that were lost; {_SOURCES}.",
)
_WRONG_TOKEN = (
    "the session token is not valid",
    "pass key, secret and token of the same session; a permanent key has no token.",
)
_EXPIRED = (
    "the credentials have expired",
    "renew them; for long jobs use a profile or a role, which are renewed by themselves.",
)
_NO_CREDENTIALS = (
    "no credentials were found",
    f"set them: {_SOURCES}; for a public bucket pass anon=True in storage_options.",
)
_CLOCK = ("the clock of this machine is wrong", "set the clock: requests are signed with the time.")
_REFUSED = ("the store does not accept the credentials", "check the account, and its key or token.")
_REFUSALS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("InvalidAccessKeyId", "InvalidClientTokenId"), _UNKNOWN_KEY),
    "SignatureDoesNotMatch": _WRONG_SECRET,
    **dict.fromkeys(("InvalidToken", "InvalidTokenId"), _WRONG_TOKEN),
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"), _EXPIRED),
    "RequestExpired": _EXPIRED,
    **dict.fromkeys(("NoCredentialsError", "PartialCredentialsError"), _NO_CREDENTIALS),
    "RequestTimeTooSkewed": _CLOCK,
    **dict.fromkeys(
        ("AuthenticationFailed", "InvalidAuthenticationInfo", "RefreshError"), _REFUSED
    ),
    "ClientAuthenticationError": _REFUSED,
}

_WRONG_SIGNATURE = "Server failed to authenticate the request"
"""What Azure says of a wrong key. The code is that of other reasons, too."""

_UNREACHABLE = frozenset(
    {
        "EndpointConnectionError",
        "ConnectTimeoutError",
        "ClientConnectorError",
        "ServiceRequestError",
    }
)
"""Classes of botocore, aiohttp and azure for a store that cannot be reached."""

_CHECK_ADDRESS = (
    "check the network, and the endpoint or account in storage_options and environment."
)

_UNEXPECTED_OPTION = re.compile(r"unexpected keyword argument '(\w+)'")
_AWS_ERROR = re.compile(r"[A-Z]+(_[A-Z]+)+\b")
_ATTRIBUTES = ("status_code", "status", "code", "error_code")

# What pyarrow's filesystems and gcsfs say, in an OSError that has nothing but its text. The answer
# to a HEAD request has no body: expired credentials are a plain 400 there.
_TEXTS: tuple[tuple[re.Pattern[str], Meaning], ...] = (
    (
        re.compile(
            r"AWS Error (ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|EXPIRED_TOKEN"
            r"|SIGNATURE_DOES_NOT_MATCH|UNRECOGNIZED_CLIENT)\b"
            r"|AWS Error \w+ \(HTTP status (40[13]\)|400\) during Head)"
            r"|\b(PERMISSION_DENIED|UNAUTHENTICATED|AccessControlException)\b"
            r"|^Forbidden: "
        ),
        "denied",
    ),
    (
        re.compile(
            r"AWS Error (RESOURCE_NOT_FOUND|NO_SUCH_KEY|NO_SUCH_BUCKET)\b"
            r"|AWS Error \w+ \(HTTP status 404\)"
        ),
        "missing",
    ),
)

# By the builtin type that Python itself gives to an error of each number.
_ERRNO: dict[type, int] = {
    type(OSError(number, "")): number
    for number in (
        *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ETIMEDOUT, errno.EINTR, errno.EAGAIN),
        *(errno.EPIPE, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET),
    )
}

_S3 = {
    "read": "s3:GetObject",
    "list": "s3:ListBucket",
    "write": "s3:PutObject",
    "copy": "s3:PutObject, and s3:GetObject of what is copied,",
    "delete": "s3:DeleteObject",
    "abort": "s3:AbortMultipartUpload",
}
_GCS = {
    "read": "storage.objects.get",
    "list": "storage.objects.list",
    "write": "storage.objects.create and storage.objects.delete",
    "copy": "storage.objects.create, storage.objects.delete and storage.objects.get",
    "delete": "storage.objects.delete",
}
_AZURE = {
    "read": "blobs/read (Storage Blob Data Reader)",
    "list": "blobs/read (Storage Blob Data Reader)",
    "write": "blobs/write (Storage Blob Data Contributor)",
    "copy": "blobs/write (Storage Blob Data Contributor)",
    "delete": "blobs/delete (Storage Blob Data Contributor)",
}
_PERMISSIONS = {
    **dict.fromkeys(("s3", "s3a"), _S3),
    **dict.fromkeys(("gs", "gcs"), _GCS),
    **dict.fromkeys(("abfs", "abfss", "az", "adl"), _AZURE),
}


_MAX_WHOLE_BYTES = 8 * 1024 * 1024
"""Objects of at most so many bytes are read with one request: a few would take as long."""

_MAX_TAIL_BYTES = 16 * 1024 * 1024
"""How many bytes of the ends of objects are kept in memory."""

_MAX_KEPT_BYTES = 64 * 1024 * 1024
"""How many bytes of whole objects are kept in memory, until they are rewritten."""

_NAMED_PATH = "_fsspeckit_named_path"
"""The attribute of an error that already names a file."""


_CLIENTS = {"aiobotocore", "aiohttp", "azure", "botocore"}
"""Libraries whose errors without a status say that a connection failed."""


def meaning_of(error: BaseException) -> Meaning:
    """Return what an error of a filesystem means, by itself or else by its cause."""
    found = (_meaning_of_one(current) for current in _with_causes(error))
    return next((meaning for meaning in found if meaning is not None), "other")


def is_unanswered(error: BaseException) -> bool:
    """Whether a client of a store gave up waiting: what it asked for may still be done."""
    chain = list(_with_causes(error))
    if any(True for current in chain for _ in _codes(current)):
        return False  # a status, which is an answer
    return any(
        isinstance(current, (TimeoutError, ConnectionError))
        or type(current).__module__.partition(".")[0] in _CLIENTS
        for current in chain
    )


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, then what it was raised from."""
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        yield current
        seen.append(current)
        current = current.__cause__ or (None if _is_specific(current) else current.__context__)


def _refusal_of(error: BaseException) -> tuple[str, str] | None:
    """Return what is wrong with the credentials, and what to do; None if nothing is known."""
    for current in _with_causes(error):
        if str(current).startswith(_WRONG_SIGNATURE):
            return _REFUSED
        words = _AWS_ERROR.match(str(current).rpartition("AWS Error ")[2])
        in_text = words[0].title().replace("_", "") if words else ""  # of pyarrow
        for code in (*map(str, _codes(current)), type(current).__name__, in_text):
            if code in _REFUSALS:
                return _REFUSALS[code]
    return None


def _is_specific(error: BaseException) -> bool:
    """Whether an error says what happened: what was handled before it does not matter then."""
    return isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None)


def _meaning_of_one(error: BaseException) -> Meaning | None:
    codes = [str(code) for code in _codes(error)]
    if "InvalidObjectState" in (*codes, *map(str, _codes(error.__cause__))):
        return "other"  # an archived object: s3fs says PermissionError, but no permission helps
    if isinstance(error, FileNotFoundError):
        return "missing"
    if isinstance(error, PermissionError):
        return "denied"
    for code in (*codes, type(error).__name__):
        if code in _CODES:
            return _CODES[code]
    if "400" in codes and str(getattr(error, "operation_name", "")).startswith("Head"):
        return "denied"  # S3 refused a request whose answer has no body, and so no reason
    if type(error) is OSError and error.errno is None:
        return next((meaning for text, meaning in _TEXTS if text.search(str(error))), None)
    return None


def _codes(error: BaseException | None) -> Iterator[Any]:
    """Yield the codes and HTTP status of an error, wherever its library keeps them."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, Mapping):
        details = response.get("Error"), response.get("ResponseMetadata")
        for found, key in zip(details, ("Code", "HTTPStatusCode"), strict=True):
            if isinstance(found, Mapping) and key in found:
                yield found[key]
    holders = (error,) if response is None else (error, response)
    for holder in holders:
        for name in _ATTRIBUTES:
            value = getattr(holder, name, None)
            if isinstance(value, (int, str)):
                yield getattr(value, "value", value)  # an enumeration's member


@contextmanager
def naming_failure(root: Root, path: str, phase: str, action: Action = "read") -> Iterator[None]:
    """Give an error of the filesystem its builtin type, and name the file and what was done.

    Only calls of the filesystem belong inside: every error there counts as one of the filesystem,
    and becomes FileNotFoundError, PermissionError (also where credentials have expired) or OSError.
    """
    try:
        yield
    except FsspeckitError:
        raise
    except Exception as error:
        named = _name_error(root, path, phase, action, error)
        if named is error:
            raise
        raise named from error


def _name_error(root: Root, path: str, phase: str, action: Action, error: Exception) -> Exception:
    if not isinstance(error, OSError) and type(error).__module__ == "builtins":
        # A mistake of a program, not an answer of a filesystem.
        return _wrong_option(root, error) or error
    user_path, message = root.to_user_path(path), _first_words(error)
    if getattr(error, _NAMED_PATH, None) == path:
        return error
    if root.is_local and isinstance(error, OSError) and (user_path in message or path in message):
        return error
    meaning = meaning_of(error)
    text = f"{phase} of {user_path!r}: {without_credentials(message) or type(error).__name__}"
    if any(type(current).__name__ in _UNREACHABLE for current in _with_causes(error)):
        text = f"{text.rstrip('.')}.\nHint: {_CHECK_ADDRESS}"
    named: Exception
    if meaning == "missing":
        named = FileNotFoundError(errno.ENOENT, text)
    elif meaning == "denied":
        wrong, hint = _refusal_of(error) or _missing_permission(root, user_path, action)
        named = PermissionError(errno.EACCES, f"{text.rstrip('.')}; {wrong}.\nHint: {hint}")
    elif not isinstance(error, OSError):
        named = OSError(errno.EIO, text)
    else:
        kind = next(base for base in type(error).__mro__ if base.__module__ == "builtins")
        named = kind(error.errno or _ERRNO.get(kind, errno.EIO), text)
    setattr(named, _NAMED_PATH, path)
    return named


def _first_words(error: Exception) -> str:
    """Return what an error says, without the ten lines that Azure adds about the request."""
    return str(error).partition("\nRequestId:")[0]


def _wrong_option(root: Root, error: Exception) -> InvalidArgumentError | None:
    """Return the error for an option that the library of the store refuses only when it is used."""
    if isinstance(error, ValueError) and str(error).startswith("Invalid endpoint: "):  # of botocore
        return InvalidArgumentError(
            f"{error}.\nHint: an endpoint begins with https:// or http://.",
            argument="storage_options",
        )
    found = _UNEXPECTED_OPTION.search(str(error)) if isinstance(error, TypeError) else None
    options = getattr(root.filesystem, "storage_options", None) or {}
    if found is None or found[1] not in options:
        return None
    library = type(root.filesystem).__module__.partition(".")[0]
    return InvalidArgumentError(
        f"storage_options has {found[1]!r}, which {library} does not know.\n"
        f"Hint: see the documentation of {library}; settings of Spark, such as fs.s3a.access.key, "
        "are understood, too.",
        argument="storage_options",
    )


def _missing_permission(root: Root, user_path: str, action: Action) -> tuple[str, str]:
    """Return what a refused request needs, and what to grant."""
    permission = _PERMISSIONS.get(root.protocol, {}).get(action, f"to {action}")
    hint = (
        f"grant the permission {permission} on {user_path!r} to these credentials; renew them if "
        "they have expired."
    )
    return f"it needs the permission {permission.rstrip(',')}", hint


def open_input(root: Root, path: str, known: DataFile | None = None, **options: Any) -> Any:
    """Open a file of a filesystem that is not local; a context manager whose errors name it.

    Of an object that a listing has described, ``known``, nothing is asked again. Other filesystems
    read ranges of an open file, and some would read ahead without one.
    """
    if known is not None and known.etag is not None:
        return _RangeFile(root, known)
    with naming_failure(root, path, "opening"):
        return _Input(root, path, root.filesystem.open(path, "rb", **options))


class _RangeFile(io.RawIOBase):
    """An object of known size, of which each read is one request.

    What planning has read of its end is not asked for again, and a small object comes whole.
    """

    mode = "rb"

    def __init__(self, root: Root, file: DataFile) -> None:
        super().__init__()
        self._root = root
        self._file = file
        self._position = 0
        self._tail = _wholes.find(root, file) or _tails.find(root, file)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to another position of the file."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Up to ``size`` bytes."""
        start = min(self._position, self._file.size)
        end = self._file.size if size is None or size < 0 else min(start + size, self._file.size)
        is_small = self._file.size <= _MAX_WHOLE_BYTES
        if is_small and start < self._file.size - len(self._tail):
            self._tail = self._read_range(0, self._file.size)
            _wholes.keep(self._root, self._file, self._tail)
        kept = self._file.size - len(self._tail)
        if start >= kept:
            data = self._tail[start - kept : end - kept]
        else:
            data = self._read_range(start, end - start)
        self._position += len(data)
        return data

    readall = read

    def _read_range(self, start: int, length: int) -> bytes:
        return read_range(self._root, self._file.path, start, length, etag=self._file.etag)

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _KeptBytes:
    """The ends of objects that were read last; an ETag says which version of an object they are."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._found: OrderedDict[tuple[object, ...], bytes] = OrderedDict()

    def find(self, root: Root, file: DataFile) -> bytes:
        """Return the last bytes of a file, as many as are kept."""
        with self._lock:
            return self._found.get(self._key(root, file), b"") if file.etag else b""

    def take(self, root: Root, file: DataFile) -> bytes:
        """Return the last bytes of a file, and keep them no longer."""
        with self._lock:
            found = self._found.pop(self._key(root, file), b"")
            self._bytes -= len(found)
        return found

    def keep(self, root: Root, file: DataFile, tail: bytes) -> None:
        """Keep the last bytes of a file, and forget those of others where they are too many."""
        if not file.etag:
            return
        with self._lock:
            old = self._found.pop(self._key(root, file), b"")
            self._found[self._key(root, file)] = tail
            self._bytes += len(tail) - len(old)
            while self._bytes > self._max_bytes:
                self._bytes -= len(self._found.popitem(last=False)[1])

    def _key(self, root: Root, file: DataFile) -> tuple[object, ...]:
        return id(root.filesystem), file.path, file.etag, file.size


_tails = _KeptBytes(_MAX_TAIL_BYTES)
_wholes = _KeptBytes(_MAX_KEPT_BYTES)


def download(root: Root, path: str, target: str, known: DataFile | None = None) -> None:
    """Copy a file to a local disk; one that was just read as a whole is not read again."""
    data = b"" if known is None else _wholes.take(root, known)
    with naming_failure(root, path, "reading"):
        if known is None or len(data) < known.size:
            root.filesystem.get_file(path, target)
            return
    with open(target, "wb") as file:
        file.write(data)


class _Input:
    """An open file whose reads name it when they fail."""

    def __init__(self, root: Root, path: str, handle: Any) -> None:
        self._root = root
        self._path = path
        self._handle = handle

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes."""
        with naming_failure(self._root, self._path, "reading"):
            return bytes(self._handle.read(size))

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to another position of the file."""
        with naming_failure(self._root, self._path, "reading"):
            self._handle.seek(offset, whence)  # the file of hdfs-native does not return where it is
        return int(self._handle.tell())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def __enter__(self) -> _Input:
        return self

    def __exit__(self, *exception: object) -> None:
        self._handle.close()


def arrow_filesystem(root: Root) -> arrow_fs.FileSystem:
    """Return the filesystem of a dataset as pyarrow needs it to read."""
    if root.is_local:
        return arrow_fs.LocalFileSystem()
    return arrow_fs.PyFileSystem(_Handler(root))


class _Handler(arrow_fs.FSSpecHandler):  # type: ignore[misc] # pyarrow has no types
    """An fsspec filesystem for pyarrow; picklable.

    pyarrow passes errors of a Python file on as they are, so all of them must have an errno.
    """

    def __init__(self, root: Root) -> None:
        super().__init__(root.filesystem)
        self._root = root

    def open_input_file(self, path: str) -> pa.PythonFile:
        """Open a file to read anywhere."""
        # Without asking first whether it is a file: fsspec answers no where access is denied, too.
        return pa.PythonFile(open_input(self._root, path), mode="r")

    open_input_stream = open_input_file


def read_range(
    root: Root,
    path: str,
    start: int,
    length: int,
    phase: str = "reading",
    etag: str | None = None,
) -> bytes:
    """Return ``length`` bytes of a file from ``start``; fewer where the file ends before.

    An ``etag`` is that of the object which the caller has seen. If the object has been replaced
    since, its filesystem decides what is read.
    """
    with naming_failure(root, path, phase):
        if not root.is_local:
            return _read_remote(root, path, start, length, etag)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return os.pread(descriptor, length, start)
        finally:
            os.close(descriptor)


def _read_remote(root: Root, path: str, start: int, length: int, etag: str | None) -> bytes:
    if length <= 0:
        return b""  # a range of no bytes is an error for some stores
    found = read_with_obstore(root.filesystem, path, start, length, etag)
    if found is not None:
        return found
    # A pyarrow filesystem opens a file that is read from its start as a stream, which cannot seek,
    # and fsspec seeks to the start.
    options = {"seekable": True} if root.is_arrow else {}
    return bytes(root.filesystem.cat_file(path, start=start, end=start + length, **options))


def read_tail(root: Root, file: DataFile, length: int) -> tuple[bytes, int]:
    """Return the last ``length`` bytes of a file, and its size.

    On a local disk the size is the current one; elsewhere that of the listing, to save a request.
    """
    phase = "reading the footer"
    if not root.is_local:
        start = max(0, file.size - length)
        tail = read_range(root, file.path, start, file.size - start, phase, file.etag)
        _tails.keep(root, file, tail)
        return tail, file.size
    with naming_failure(root, file.path, phase):
        descriptor = os.open(file.path, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            start = max(0, size - length)
            return os.pread(descriptor, size - start, start), size
        finally:
            os.close(descriptor)
