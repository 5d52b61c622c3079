"""Where a dataset is: one canonical filesystem and path for every way to write its URL.

Relative paths, ``~``, ``file://``, trailing slashes and symbolic links, ``DirFileSystem`` and
pyarrow filesystems, and every spelling of an object store's scheme, all end in the same
:class:`Root`, so that everything derived from it (control directory, lock, records) is the same for
every writer. Credentials in a URL are never shown, and refused where nobody can say where they end.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

import fsspec
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from fsspeckit.display import without_queries
from fsspeckit.errors import Argument, InvalidArgumentError
from fsspeckit.storage.schemes import (
    address_of,
    canonical_scheme,
    canonical_url,
    missing_library,
    scheme_of,
    schemes_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspec import AbstractFileSystem

# There the part before "@" is a container of the account that follows, not a user.
_CONTAINER_SCHEMES = frozenset({"abfs", "abfss", "wasb", "wasbs", "az", "adl"})

# Those whose filesystem takes user and password from the URL; "github" and "git" have other names
# at their place.
_USER_SCHEMES = frozenset(
    {"http", "https", "ftp", "ftps", "sftp", "ssh", "smb", "webdav", "webdavs", "dask"}
    | {"hdfs", "viewfs", "webhdfs", "webHDFS", "git", "github", "gist"}
)

# No filesystem of these knows users: what stands before "@" would be part of a bucket or a path.
_USERLESS_SCHEMES = frozenset({"s3", "s3a", "s3n", "gs", "gcs", "memory", "file", "local"})

# They have users but no passwords, so that digits after a colon are always a port.
_PORT_SCHEMES = frozenset({"hdfs", "viewfs", "webhdfs", "webHDFS"})

_HIDDEN = "***"

# Options of filesystems whose values must not be in a log.
_SECRET_NAMES = re.compile(
    r"key|secret|token|pass|credential|connection_string|sas|signature|auth", re.IGNORECASE
)
_MIN_SECRET_LENGTH = 4

_MAX_CONNECTIONS = 32
"""How many connections a client of S3 has at most."""

# "user@", "user:password@", with any "@" and, after a colon, any "/" inside of the password. A
# colon before digits and a slash begins a port, one after "[" is part of an address.
_CREDENTIALS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?P<user>(?!\[)[^\s/@:]*:(?!\d*/)\S*|[^\s/]*)@"
)

# The same of one URL alone, where a password may hold anything: up to the last "@".
_ONE_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")
_URL = re.compile(
    r"(?:.*::)?(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?:(?!\[)[^/@:]*(?P<password>:.*)|[^/]*)@(?P<rest>.*)",
    re.DOTALL,
)
_PORT = re.compile(r":\d*/")
_UNCLEAR = re.compile(r"[\s/?#\[\]]")


def without_credentials(text: str) -> str:
    """Return a text without the users and passwords of its URLs."""
    return _CREDENTIALS.sub(_drop_user, text) if "://" in text else text


def _drop_user(found: re.Match[str]) -> str:
    scheme, user = found["scheme"], found["user"]
    is_container = scheme.lower() in _CONTAINER_SCHEMES and not set(user) & {":", "@"}
    return found[0] if is_container else f"{scheme}://"


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    """Return the values of options that have the name of a secret."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif _SECRET_NAMES.search(str(name)) and len(str(value)) >= _MIN_SECRET_LENGTH:
            yield str(value)


def _check_slashes(text: str) -> None:
    """Refuse a URL that has lost a slash: it would be a path of the local disk."""
    found = _ONE_SLASH.match(text)
    if found is None or canonical_scheme(found[1]) in ("file", "local"):
        return
    if canonical_scheme(found[1]) in fsspec.available_protocols():
        raise InvalidArgumentError(
            f"path {text!r} has one slash after {found[1]!r} instead of two.\n"
            f"Hint: write {found[1]}://{text[found.end() :]}, as a str: a pathlib.Path makes one "
            "slash of two."
        )


def check_credentials(url: str) -> None:
    """Refuse a URL whose credentials no filesystem would find, or that have no clear end."""
    found = _URL.fullmatch(url)
    if found is None:
        return
    scheme, password = found["scheme"], found["password"]
    redacted = f"{scheme}://{_HIDDEN}@{found['rest']}"
    scheme = canonical_scheme(scheme)
    if _is_port(scheme, password):
        return
    if password is None:
        if scheme in _USERLESS_SCHEMES:
            raise _unsupported_credentials(redacted, scheme)
        return
    if _UNCLEAR.search(password):
        raise InvalidArgumentError(
            f"path {redacted!r} has an '@' after a ':' and one of '/', '?', '#', '[', ']' or a "
            "space: it is unclear where a password ends.\n"
            "Hint: pass user and password in storage_options, or write such characters as %2F and "
            "so on, and an '@' of the path as %40.",
            mentions=(Argument("storage_options"),),
        )
    if scheme not in _USER_SCHEMES:
        raise _unsupported_credentials(redacted, scheme)


def _is_port(scheme: str, password: str | None) -> bool:
    """Whether what could be a password is a port, with an "@" somewhere in the path."""
    is_known = canonical_scheme(scheme) in _PORT_SCHEMES
    return password is not None and is_known and bool(_PORT.match(password))


def _unsupported_credentials(redacted: str, scheme: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"path {redacted!r} has a user or a password, which {scheme!r} does not take from a URL.\n"
        "Hint: pass them in storage_options, as the filesystem names them: key and secret for s3.",
        mentions=(Argument("storage_options"),),
    )


def passwords_of(url: str) -> tuple[str, ...]:
    """Return the password of a URL in every form that a message may show; longest first."""
    found = _URL.fullmatch(url)
    if found is None or _is_port(found["scheme"], found["password"]):
        return ()
    given = (found["password"] or "")[1:]
    if not given:
        return ()
    plain = unquote(given)
    forms = {given, plain, quote(plain), quote(plain, safe="")}
    return tuple(sorted(forms, key=len, reverse=True))


@dataclass(frozen=True, repr=False)
class Root:
    """Where a dataset is: a canonical path inside, the caller's spelling outside."""

    filesystem: AbstractFileSystem
    """The innermost fsspec filesystem that holds the dataset."""

    path: str
    """The canonical path on that filesystem, without a trailing slash."""

    inner_prefix: str = field(default="", compare=False)
    """What the canonical spelling has in front that the caller's does not."""

    outer_prefix: str = field(default="", compare=False)
    """What the caller's spelling has in front that the canonical one does not."""

    @property
    def is_local(self) -> bool:
        """Whether the dataset is on a disk of this machine."""
        return isinstance(self.filesystem, LocalFileSystem)

    @property
    def is_arrow(self) -> bool:
        """Whether fsspec reaches the dataset through a pyarrow filesystem, as on ``hdfs://``."""
        return isinstance(self.filesystem, ArrowFSWrapper)

    @property
    def protocol(self) -> str:
        """The filesystem's name, as in the URL."""
        names = self.filesystem.protocol
        return names if isinstance(names, str) else str(names[0])

    def canonical(self, path: str) -> str:
        """Turn the caller's spelling of a path into the canonical one."""
        if "://" in path and self.outer_prefix and scheme_of(path) in schemes_of(self.filesystem):
            return _strip(self.filesystem, path)
        stripped = path.removeprefix(self.outer_prefix) if self.outer_prefix else path
        if self.is_local and not self.inner_prefix:
            return os.path.abspath(_strip(self.filesystem, stripped))
        if self.inner_prefix:
            return f"{self.inner_prefix}/{stripped.strip('/')}".rstrip("/")
        return _strip(self.filesystem, stripped)

    def to_user_path(self, path: str) -> str:
        """Return a path as the caller spells it, without credentials."""
        if self.inner_prefix:
            return self.outer_prefix + path.removeprefix(self.inner_prefix).lstrip("/")
        # Some filesystems have URLs as their paths.
        return f"{self.outer_prefix}{without_credentials(path)}"

    def relative(self, path: str) -> str:
        """Return the part of a canonical path below the root."""
        return path.removeprefix(self.path).lstrip("/")

    @property
    def display_path(self) -> str:
        """The root in the caller's spelling, for messages: without user and password."""
        return self.to_user_path(self.path)

    def redacted(self, text: str) -> str:
        """Return a text without credentials: those of URLs, and of the options of a filesystem."""
        text = without_queries(without_credentials(text))
        options = getattr(self.filesystem, "storage_options", None) or {}
        for secret in sorted(_secrets(options), key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        return text

    def __repr__(self) -> str:
        # A filesystem's own repr may hold credentials.
        return f"Root({self.protocol}, {without_credentials(self.path)!r})"


def open_root(
    path: str | os.PathLike[str],
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Root:
    """Find the filesystem and the canonical path of a dataset, see :func:`open_storage`."""
    given: Any = path
    text = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text.strip():
        raise InvalidArgumentError(f"path must be a non-empty string, got {path!r}.")
    if "\0" in text:
        raise InvalidArgumentError(f"path must not contain a NUL character, got {text!r}.")
    check_credentials(text)
    _check_slashes(text)
    if filesystem is None:
        root = _from_url(text, dict(storage_options or {}))
    else:
        root = _on_filesystem(text, filesystem)
    try:
        root.path.encode()
    except UnicodeEncodeError as error:  # neither pyarrow nor a commit record could hold it
        raise InvalidArgumentError(
            f"path must be UTF-8, got {root.display_path!r}.\n"
            "Hint: rename the directory whose name is not."
        ) from error
    return root


def _from_url(text: str, options: dict[str, Any]) -> Root:
    url = os.path.expanduser(text)
    if "://" in url:
        url, options = address_of(url, options)
    try:
        filesystem, stripped = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        raise missing_library(without_credentials(text), error) from error
    except (ValueError, AttributeError) as error:
        if "://" not in text:
            raise
        reason = without_credentials(str(error))
        for password in passwords_of(text):  # it may show only the password
            reason = reason.replace(password, _HIDDEN)
        raise InvalidArgumentError(
            f"path {without_credentials(text)!r} cannot be opened: {reason.rstrip('.!')}.\n"
            f"Hint: {_advice(url)}"
        ) from (None if passwords_of(text) else error)
    _allow_connections(filesystem)
    root = _on_filesystem(stripped, filesystem)
    if root.is_local or "://" not in text or "://" in root.path:
        return root
    inner, outer = _prefixes(text, root.path)
    return Root(root.filesystem, root.path, inner, outer)


def _advice(url: str) -> str:
    """Return what to do about a URL that cannot be opened."""
    scheme = scheme_of(url)
    if scheme == "abfs":
        return (
            "pass account_name and a credential, such as account_key, in storage_options, or set "
            "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY."
        )
    if scheme in fsspec.available_protocols():
        return "check the address, and storage_options."
    return "the scheme must be one that fsspec knows, for example file, s3 or memory."


def _allow_connections(filesystem: Any) -> None:
    """Let s3fs have as many connections as footers are read at the same moment.

    Its client takes 10 otherwise. A filesystem that has connected already keeps what it has. An
    argument would make it another filesystem than the one that the same options give elsewhere,
    whose listings would not notice what is written here.
    """
    options = getattr(filesystem, "config_kwargs", None)
    if isinstance(options, dict) and "max_pool_connections" not in options:
        filesystem.config_kwargs = {**options, "max_pool_connections": _MAX_CONNECTIONS}


def _prefixes(text: str, path: str) -> tuple[str, str]:
    """Return what the path and what the URL have in front of their common part."""
    redacted = without_credentials(text)
    parts = urlsplit(redacted)
    base = f"{redacted.partition('://')[0]}://"  # urlsplit changes upper case
    container, at, _ = parts.netloc.partition("@")
    if at and f"{path}/".startswith(f"{container}/"):
        # abfss://container@account/path: the account is known to the filesystem only.
        return container, f"{base}{parts.netloc}/"
    return "", base if path.lstrip("/").startswith(parts.netloc) else f"{base}{parts.netloc}"


def _on_filesystem(path: str, filesystem: Any) -> Root:
    inner, prefix = _unwrap(_as_fsspec(filesystem))
    if prefix is not None:
        path = f"{prefix.rstrip('/')}/{path.strip('/')}".rstrip("/")
        prefix = _canonical_path(inner, prefix)
    return Root(inner, _canonical_path(inner, path), inner_prefix=prefix or "")


def _unwrap(filesystem: AbstractFileSystem) -> tuple[AbstractFileSystem, str | None]:
    """Unwrap nested DirFileSystems: return the innermost filesystem and the prefix inside it."""
    prefix: str | None = None
    while isinstance(filesystem, DirFileSystem):
        outer = filesystem.path.rstrip("/")
        prefix = outer if prefix is None else f"{outer}/{prefix.strip('/')}"
        filesystem = filesystem.fs
    return filesystem, prefix


def _canonical_path(filesystem: AbstractFileSystem, path: str) -> str:
    stripped = _strip(filesystem, path)
    if isinstance(filesystem, LocalFileSystem):
        return os.path.realpath(os.path.expanduser(stripped))
    return stripped.rstrip("/") or stripped


def _strip(filesystem: AbstractFileSystem, path: str) -> str:
    if "://" in path and scheme_of(path) in schemes_of(filesystem):
        path = canonical_url(path)
    return str(filesystem._strip_protocol(path))


def _as_fsspec(filesystem: Any) -> AbstractFileSystem:
    if isinstance(filesystem, fsspec.AbstractFileSystem):
        return filesystem
    from pyarrow import fs as arrow_fs

    if isinstance(filesystem, arrow_fs.SubTreeFileSystem):
        return DirFileSystem(filesystem.base_path, _as_fsspec(filesystem.base_fs))
    if isinstance(filesystem, arrow_fs.LocalFileSystem):
        return LocalFileSystem()
    if isinstance(filesystem, arrow_fs.PyFileSystem):
        wrapped = getattr(filesystem.handler, "fs", None)
        if isinstance(wrapped, fsspec.AbstractFileSystem):
            return wrapped
    if isinstance(filesystem, arrow_fs.FileSystem):
        return ArrowFSWrapper(filesystem)
    raise InvalidArgumentError(
        f"filesystem must be an fsspec or pyarrow filesystem, got {type(filesystem).__name__}."
    )
