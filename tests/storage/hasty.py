"""Clients of object stores that do not wait for long, and repeat once what fails, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fsspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsspec import AbstractFileSystem

    from fsspeckit.testing.object_stores import ObjectStore

READ_TIMEOUT = 0.4
_CLIENTS: dict[tuple[str, bool], AbstractFileSystem] = {}
"""By address of the store, and whether they repeat: to make one takes as long as a merge."""


def patient(server: ObjectStore) -> AbstractFileSystem:
    """A client that waits, and repeats what fails, as its library does."""
    return fsspec.filesystem(server.scheme, **server.options, use_listings_cache=False)


def hasty(server: ObjectStore, *, repeats: bool) -> AbstractFileSystem:
    """A client that waits for 0.4 s, and repeats what fails once, or not at all."""
    if (server.url, repeats) not in _CLIENTS:
        options = {**server.options, "use_listings_cache": False, "skip_instance_cache": True}
        _CLIENTS[server.url, repeats] = _BY_SCHEME[server.scheme](options, repeats)
    return _CLIENTS[server.url, repeats]


def _of_s3(options: dict[str, Any], repeats: bool) -> AbstractFileSystem:
    import s3fs

    settings = {"read_timeout": READ_TIMEOUT, "retries": {"max_attempts": int(repeats)}}
    filesystem = s3fs.S3FileSystem(**options, config_kwargs=settings)
    filesystem.retries = 1  # on top of those of its client
    return filesystem


def _of_azure(options: dict[str, Any], repeats: bool) -> AbstractFileSystem:
    import adlfs
    from azure.storage.blob.aio import BlobServiceClient, LinearRetry

    filesystem = adlfs.AzureBlobFileSystem(**options)
    # adlfs has no options for the retries of its client.
    filesystem.service_client = BlobServiceClient.from_connection_string(
        options["connection_string"],
        retry_policy=LinearRetry(backoff=0, retry_total=int(repeats), random_jitter_range=0),
        read_timeout=READ_TIMEOUT,
    )
    return filesystem


def _of_gcs(options: dict[str, Any], repeats: bool) -> AbstractFileSystem:
    import aiohttp
    import gcsfs
    from gcsfs.retry import is_retriable

    once = {name: getattr(gcsfs.GCSFileSystem, name).__wrapped__ for name in _REPEATED_BY_GCSFS}

    def asking(name: str) -> Any:
        async def ask(filesystem: Any, *arguments: Any, **options: Any) -> Any:
            try:
                return await once[name](filesystem, *arguments, **options)
            except Exception as error:
                if not repeats or not is_retriable(error):
                    raise
            return await once[name](filesystem, *arguments, **options)

        return ask

    class HastyGcs(gcsfs.GCSFileSystem):  # type: ignore[misc] # gcsfs has no types
        # gcsfs repeats each six times, for half a minute, and has no option for that.
        _request = asking("_request")
        _get_file_request = asking("_get_file_request")
        _get_file_concurrent = once["_get_file_concurrent"]  # made of the others

    return HastyGcs(**options, requests_timeout=aiohttp.ClientTimeout(sock_read=READ_TIMEOUT))


_REPEATED_BY_GCSFS = ("_request", "_get_file_request", "_get_file_concurrent")
_BY_SCHEME: dict[str, Callable[[dict[str, Any], bool], AbstractFileSystem]] = {
    "s3": _of_s3,
    "abfs": _of_azure,
    "gs": _of_gcs,
}
