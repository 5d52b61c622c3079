"""Credentials in URLs: never shown, and refused where they cannot be told from the path."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from fsspeckit.errors import InvalidArgumentError

__all__ = ["check_credentials", "hidden_in", "passwords_of", "without_credentials"]

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

# "user@", "user:password@", with any "@" and, after a colon, any "/" inside of the password. A
# colon before digits and a slash begins a port, one after "[" is part of an address.
_CREDENTIALS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?P<user>(?!\[)[^\s/@:]*:(?!\d*/)\S*|[^\s/]*)@"
)

# The same of one URL alone, where a password may hold anything: up to the last "@".
_URL = re.compile(
    r"(?:.*::)?(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?:(?!\[)[^/@:]*(?P<password>:.*)|[^/]*)@(?P<rest>.*)",
    re.DOTALL,
)
_PORT = re.compile(r":\d*/")
_UNCLEAR = re.compile(r"[\s/?#\[\]]")


def without_credentials(text: str) -> str:
    """A text with the users and passwords of all its URLs left out."""
    return _CREDENTIALS.sub(_shown, text) if "://" in text else text


def _shown(found: re.Match[str]) -> str:
    scheme, user = found["scheme"], found["user"]
    is_container = scheme.lower() in _CONTAINER_SCHEMES and not set(user) & {":", "@"}
    return found[0] if is_container else f"{scheme}://"


def check_credentials(url: str) -> None:
    """Refuse a URL whose credentials no filesystem would find, or that have no clear end.

    Raises:
        InvalidArgumentError: Without the password.
    """
    found = _URL.fullmatch(url)
    if found is None:
        return
    scheme, password = found["scheme"], found["password"]
    shown = f"{scheme}://{_HIDDEN}@{found['rest']}"
    if _is_port(scheme, password):
        return
    if password is None:
        if scheme.lower() in _USERLESS_SCHEMES:
            raise _not_taken(shown, scheme)
        return
    if _UNCLEAR.search(password):
        raise InvalidArgumentError(
            f"path {shown!r} has an '@' after a ':' and one of '/', '?', '#', '[', ']' or a space: "
            "it cannot be told where a password ends.\n"
            "Hint: pass user and password in storage_options, or write such characters as %2F and "
            "so on, and an '@' of the path as %40."
        )
    if scheme not in _USER_SCHEMES:
        raise _not_taken(shown, scheme)


def _is_port(scheme: str, password: str | None) -> bool:
    """Whether what could be a password is a port, with an "@" somewhere in the path."""
    return password is not None and scheme in _PORT_SCHEMES and bool(_PORT.match(password))


def _not_taken(shown: str, scheme: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"path {shown!r} has a user or a password, which {scheme!r} does not take from a URL.\n"
        "Hint: pass them in storage_options, as the filesystem names them: key and secret for s3."
    )


def passwords_of(url: str) -> tuple[str, ...]:
    """The password of a URL in every form in which a message may show it; longest first."""
    found = _URL.fullmatch(url)
    if found is None or _is_port(found["scheme"], found["password"]):
        return ()
    given = (found["password"] or "")[1:]
    if not given:
        return ()
    plain = unquote(given)
    forms = {given, plain, quote(plain), quote(plain, safe="")}
    return tuple(sorted(forms, key=len, reverse=True))


def hidden_in(text: str, url: str) -> str:
    """A text about a URL without its credentials, also where it shows the password alone."""
    shown = without_credentials(text)
    for password in passwords_of(url):
        shown = shown.replace(password, _HIDDEN)
    return shown
