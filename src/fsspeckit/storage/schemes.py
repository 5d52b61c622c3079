"""Schemes of URLs: one spelling for each object store, and the library that reads it.

People write one bucket as ``s3://``, ``s3a://``, ``s3n://`` or ``S3://``, and one container of
Azure with its account in the URL or in the options. Each becomes one URL with the same options, so
that fsspec gives the same filesystem for all of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import fsspec

from fsspeckit.errors import Argument, InvalidArgumentError, LibraryNotInstalledError
from fsspeckit.storage.hadoop_options import from_hadoop_options

if TYPE_CHECKING:
    from collections.abc import Mapping

_CANONICAL = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("abfs", "abfss", "az"), "abfs"),
}
_LIBRARIES = {"s3": "s3fs", "gs": "gcsfs", "abfs": "adlfs"}
"""By canonical scheme: the library that reads it, as pip names it."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")

# "container@account.dfs.core.windows.net"; other clouds and OneLake have other domains.
_CONTAINER = re.compile(r"abfs://([^/@:]+)@([^/@:.]+)(?:\.(?:dfs|blob)\.([^/@:]+))?(?=/|$)")
_DOMAIN = "core.windows.net"


def canonical_scheme(scheme: str) -> str:
    """Return the one spelling of a scheme that fsspec is asked for."""
    lower = scheme.lower()
    if lower in _CANONICAL:
        return _CANONICAL[lower]
    return scheme if scheme in fsspec.available_protocols() else lower


def canonical_url(url: str) -> str:
    """Return a URL, or a path, with the canonical scheme, and without an account of Azure."""
    return _without_account(_with_canonical_scheme(url))


def _with_canonical_scheme(url: str) -> str:
    found = _SCHEME.match(url)
    return f"{canonical_scheme(found[1])}://{url[found.end() :]}" if found else url


def _without_account(address: str) -> str:
    found = _CONTAINER.match(address)
    return f"abfs://{found[1]}{address[found.end() :]}" if found else address


def scheme_of(path: str) -> str | None:
    """Return the canonical scheme of a URL; None for a path without one."""
    found = _SCHEME.match(path)
    return canonical_scheme(found[1]) if found else None


def schemes_of(filesystem: Any) -> frozenset[str]:
    """Return the canonical schemes of the URLs that a filesystem reads, as far as it names them."""
    known = getattr(filesystem, "protocol", ())
    return frozenset(map(canonical_scheme, (known,) if isinstance(known, str) else known))


def address_of(url: str, storage_options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the canonical URL of a dataset, and what fsspec needs to open its filesystem.

    The options are sorted: fsspec takes the same ones in another order for another filesystem.
    """
    address = _with_canonical_scheme(url)
    scheme, _, rest = address.partition("://")
    options = from_hadoop_options(storage_options, rest.partition("/")[0] if scheme == "s3" else "")
    if found := _CONTAINER.match(address):
        options = _with_account(url, options, found[2], found[3] or _DOMAIN)
    in_order = dict(sorted(options.items(), key=lambda item: str(item[0])))
    return _without_account(address), in_order


def _with_account(url: str, options: dict[str, Any], account: str, domain: str) -> dict[str, Any]:
    """Return options with the account that the URL names."""
    given = options.get("account_name", account)
    if given != account:
        raise InvalidArgumentError(
            f"path {url!r} names the account {account!r}, but account_name in storage_options is "
            f"{given!r}.\nHint: leave account_name out, or write az://container/path.",
            mentions=(Argument("storage_options"),),
        )
    host = {} if domain == _DOMAIN else {"account_host": f"{account}.blob.{domain}"}
    return {**host, **options, "account_name": account}


def missing_library(url: str, error: ImportError) -> LibraryNotInstalledError:
    """Return the error that names the library which reads a URL, with how to install it."""
    library = _LIBRARIES.get(scheme_of(url) or "")
    if library is None:
        return LibraryNotInstalledError(
            f"path {url!r} needs a library that is not installed: {error}."
        )
    return LibraryNotInstalledError.missing(url, library)
