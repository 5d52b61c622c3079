"""Credentials in URLs: never shown, and refused where they cannot be told from the path."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from fsspeckit.errors import InvalidArgumentError

__all__ = ["check_credentials", "hidden_in", "passwords_of", "without_credentials"]

# There the part before "@" is a container of the account that follows, not a user.
_CONTAINER_SCHEMES = frozenset({"abfs", "abfss", "wasb", "wasbs", "az", "adl"})
_HIDDEN = "***"

# "user@", "user:password@", with any "@" and, after a colon, any "/" inside of the password. A
# colon before digits and a slash begins a port, one after "[" is part of an address.
_CREDENTIALS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?P<user>(?!\[)[^\s/@:]*:(?!\d*/)\S*|[^\s/]*)@"
)
_PASSWORD_WITH_SLASH = re.compile(r"[^:]*://(?!\[)[^/@:]*:(?!\d*/)[^/]*/.*@")
_PASSWORD = re.compile(r".*?://[^/@:]*:(?!\d*/)(?P<password>.*)@")


def without_credentials(text: str) -> str:
    """A text with the users and passwords of all its URLs left out."""
    return _CREDENTIALS.sub(_shown, text) if "://" in text else text


def _shown(found: re.Match[str]) -> str:
    scheme, user = found["scheme"], found["user"]
    is_container = scheme.lower() in _CONTAINER_SCHEMES and not set(user) & {":", "@"}
    return found[0] if is_container else f"{scheme}://"


def check_credentials(url: str) -> None:
    """Refuse a URL whose password holds a slash: it would be taken for host and path.

    Raises:
        InvalidArgumentError: Without the password.
    """
    if _PASSWORD_WITH_SLASH.match(url):
        raise InvalidArgumentError(
            f"path {without_credentials(url)!r} has a user and a password, and an '@' after a "
            "'/': it cannot be told where the password ends.\n"
            "Hint: pass them in storage_options, or write '@' as %40 and '/' as %2F."
        )


def passwords_of(url: str) -> tuple[str, ...]:
    """The password of a URL in every form in which a message may show it; longest first."""
    found = _PASSWORD.match(url)
    if found is None or not found["password"]:
        return ()
    given = found["password"]
    plain = unquote(given)
    forms = {given, plain, quote(plain), quote(plain, safe="")}
    return tuple(sorted(forms, key=len, reverse=True))


def hidden_in(text: str, url: str) -> str:
    """A text about a URL without its credentials, also where it shows the password alone."""
    shown = without_credentials(text)
    for password in passwords_of(url):
        shown = shown.replace(password, _HIDDEN)
    return shown
