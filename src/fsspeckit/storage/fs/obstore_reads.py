"""Reads of objects on S3 by obstore, a client in Rust that needs less of a processor than s3fs.

It only helps where many objects are read at once. What it does not read, for whatever reason, s3fs
reads: the filesystem alone decides about errors, retries and messages. Nothing is configured twice,
either: address, region and style come from a request that the client of s3fs has made and not sent,
and credentials are asked of that client. A setting that would be lost on the way means that s3fs
reads.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4
from weakref import WeakKeyDictionary

from fsspec.asyn import sync

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_MAX_FAILURES = 3
"""After so many reads in a row that failed, a bucket is left to s3fs."""

_CREDENTIAL_LIFE = timedelta(minutes=1)
"""obstore asks for credentials again when less than five minutes of their life are left, but at
most ten times a second. So it never keeps any for longer."""

_MAX_READ_TIME = timedelta(hours=1)
"""What limits a read is the time between two packets, as in s3fs."""

# Forked children must not use obstore after their parent did: its threads are not there, and a read
# would wait for ever. Where it was imported before this module, a parent may have used it.
_PROCESS = None if "obstore" in sys.modules else os.getpid()

_OPTIONS = {
    *("key", "secret", "token", "username", "password", "profile", "anon"),
    *("endpoint_url", "use_ssl", "client_kwargs", "config_kwargs", "s3_additional_kwargs"),
    *("requester_pays", "version_aware", "cache_regions", "local_expiry_check"),
    *("default_block_size", "default_fill_cache", "default_cache_type", "max_concurrency"),
    *("fixed_upload_size", "use_listings_cache", "listings_expiry_time", "max_paths"),
}
"""Options of s3fs that change nothing about a read, or change the request that is made of it."""

_HEADERS = {
    *("range", "user-agent", "authorization", "x-amz-date", "x-amz-content-sha256"),
    *("x-amz-security-token", "x-amz-checksum-mode", "amz-sdk-invocation-id", "amz-sdk-request"),
}
"""What a request for a range has that obstore makes as well, or that changes no answer."""

_SIGNED_FOR = re.compile(r"AWS4-HMAC-SHA256 Credential=[^/]+/\d{8}/([a-z0-9-]+)/s3/aws4_request,")

_VARIABLES = re.compile(
    r"AWS_(ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|(DEFAULT_)?(REGION|PROFILE)|ROLE_\w+"
    r"|CONFIG_FILE|SHARED_CREDENTIALS_FILE|WEB_IDENTITY_TOKEN_FILE|ENDPOINT_URL(_S3)?|CA_BUNDLE"
    r"|(CONTAINER|EC2|LAMBDA|XRAY|SDK|STS)_\w+|EXECUTION_ENV|MAX_ATTEMPTS|RETRY_MODE)"
)
"""Variables that obstore does not read, or that it is given a value for. By others it might differ
from s3fs, such as by AWS_PROXY_URL."""

_buckets: WeakKeyDictionary[Any, dict[str, _Bucket | None]] = WeakKeyDictionary()
"""What obstore may read, by the client of s3fs and the name of the bucket."""

_opening = threading.Lock()


def read_with_obstore(
    filesystem: AbstractFileSystem, path: str, start: int, length: int, etag: str | None
) -> bytes | None:
    """Return a range of an object, of the version with this ETag; None if s3fs has to read it."""
    is_s3fs = (type(filesystem).__module__, type(filesystem).__name__) == (
        "s3fs.core",
        "S3FileSystem",  # and no subclass, which might do anything
    )
    client = getattr(filesystem, "_s3", None) if is_s3fs else None
    # Ctrl-C reaches only the main thread, and cannot interrupt a read of obstore.
    is_main = threading.get_ident() == threading.main_thread().ident
    if client is None or is_main or os.getpid() != _PROCESS:
        return None
    try:
        bucket, key, _ = filesystem.split_path(path)
        with _opening:
            known = _buckets.setdefault(client, {})
            if bucket not in known:
                known[bucket] = None  # also after an error
                known[bucket] = _open(filesystem, client, bucket)
        opened = known[bucket]
        return None if opened is None else opened.read(key, start, length, etag)
    except Exception:
        return None


class _Bucket:
    """A bucket that obstore reads as long as it can."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._failures = 0

    def read(self, key: str, start: int, length: int, etag: str | None) -> bytes | None:
        """Return a range, or fewer bytes where the object ends before; None if that fails."""
        from obstore import get

        # obstore would leave out a slash at either end, and refuses the others.
        if self._failures >= _MAX_FAILURES or not {"", ".", ".."}.isdisjoint(key.split("/")):
            return None
        try:
            found = get(self._store, key, options={"range": (start, start + length)})
            data = bytes(found.bytes())
        except FileNotFoundError:
            return None
        except Exception:
            self._failures += 1
            return None
        self._failures = 0
        is_whole = len(data) == min(start + length, found.meta["size"]) - start
        is_same = etag is None or (found.meta["e_tag"] or "").strip('"') == etag
        return data if is_whole and is_same else None


def _open(filesystem: AbstractFileSystem, client: Any, bucket: str) -> _Bucket | None:
    """Open a bucket as s3fs has opened it; None if anything is not known to be the same."""
    request = _example(filesystem, client, bucket) if _is_understood(filesystem, client) else None
    if request is None or not {name.lower() for name in request.headers} <= _HEADERS:
        return None
    signature = request.headers["Authorization"]
    if isinstance(signature, bytes):
        signature = signature.decode()
    region = _SIGNED_FOR.match(signature)
    url = urlsplit(request.url)
    is_verified = client._endpoint.http_session._verify is True or url.scheme == "http"
    is_in_host = url.netloc.startswith(f"{bucket}.") and url.path.count("/") == 1
    is_in_path = url.path.startswith(f"/{bucket}/") and url.path.count("/") == 2
    if region is None or not is_verified or url.query or not (is_in_path or is_in_host):
        return None
    try:
        from obstore.store import S3Store
    except ImportError:
        return None
    endpoint = f"{url.scheme}://{url.netloc}"
    settings = client.meta.config
    return _Bucket(
        S3Store(
            bucket,
            config={
                "endpoint": endpoint,
                "aws_endpoint_url_s3": endpoint,
                "region": region[1],
                "virtual_hosted_style_request": is_in_host,
            },
            client_options={
                "allow_http": url.scheme == "http",
                "connect_timeout": timedelta(seconds=settings.connect_timeout),
                "read_timeout": timedelta(seconds=settings.read_timeout),
                "timeout": _MAX_READ_TIME,
            },
            retry_config={"max_retries": 0},
            credential_provider=_Credentials(filesystem.loop, client),
        )
    )


def _is_understood(filesystem: AbstractFileSystem, client: Any) -> bool:
    """Whether nothing but the requests themselves makes reads of s3fs what they are."""
    from urllib.request import getproxies

    session = client._endpoint.http_session
    settings = client.meta.config
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return (
        filesystem.storage_options.keys() <= _OPTIONS
        and not filesystem.cache_regions  # a client for each region
        and getproxies().keys() <= {"no"}
        and not session._proxy_config._proxies
        and not session._cert_file
        and type(session).__module__ == "aiobotocore.httpsession"
        and (settings.connector_args or {}).keys() <= {"keepalive_timeout"}
        and all(_VARIABLES.fullmatch(name) for name in os.environ if name.startswith("AWS_"))
        and getattr(main, "name", None) != "pyspark.daemon"  # one for each core
    )


class _NotSent(Exception):
    """Ends a request before it is sent."""


def _example(filesystem: AbstractFileSystem, client: Any, bucket: str) -> Any:
    """Return a request of s3fs as it is signed, without sending it; None if s3fs would not."""
    key = uuid4().hex
    found: list[Any] = []

    def keep(request: Any, **_: Any) -> None:
        if key in request.url:  # other threads use the client as well
            found.append(request)
            raise _NotSent

    event = "before-send.s3.GetObject"
    client.meta.events.register(event, keep, unique_id=key)
    try:
        with suppress(_NotSent):
            arguments = {"Bucket": bucket, "Key": key, "Range": "bytes=0-0"}
            sync(filesystem.loop, filesystem._call_s3, "get_object", **arguments)
    finally:
        client.meta.events.unregister(event, keep, unique_id=key)
    # Something in this process may answer instead of the store, as stubs do in tests.
    answers = sync(filesystem.loop, client.meta.events.emit, event, request=found[0])
    return found[0] if all(answer is None for _, answer in answers) else None


class _Credentials:
    """Those that the client of s3fs would sign with now; it renews them."""

    def __init__(self, loop: Any, client: Any) -> None:
        self._loop = loop
        # Not the client itself, which would then never be dropped.
        self._credentials = client._request_signer._credentials

    def __call__(self) -> Any:
        found = sync(self._loop, self._credentials.get_frozen_credentials)
        return {
            "access_key_id": found.access_key,
            "secret_access_key": found.secret_key,
            "token": found.token,
            "expires_at": datetime.now(UTC) + _CREDENTIAL_LIFE,
        }
