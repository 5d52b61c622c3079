"""A store that refuses: what cannot be read is not damaged, and what is gone is planned without."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs as arrow_fs

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import ConcurrentModificationError
from fsspeckit.storage import naming_failure, open_root
from fsspeckit.storage.fs.reads import meaning_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

NEW = pa.table({"id": [3], "v": ["new"]})
BODY = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>Not today</Message></Error>"


class Server:
    """An object store on this machine that refuses requests when it is asked to."""

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self._store: Any = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.port}"
        self.refuse: Callable[[str, str], tuple[str, str] | None] = lambda method, path: None
        """Gives the status and the code to answer with, or None to let a request pass."""

    def _answer(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if prefix := parse_qs(environ["QUERY_STRING"]).get("prefix"):
            path = f"{path.rstrip('/')}/{prefix[0]}"
        refused = self.refuse(method, path)
        if refused is None:
            answer: Iterable[bytes] = self._store(environ, start)
            return answer
        status, code = refused
        body = b"" if method == "HEAD" else BODY.format(code=code).encode()
        start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def store(server: Server, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A filesystem with two files of a dataset: of s3fs, or of pyarrow."""
    once = {"config_kwargs": {"retries": {"max_attempts": 0}}, "skip_instance_cache": True}
    s3: Any = fsspec.filesystem("s3", key="k", secret="s", endpoint_url=server.url, **once)
    s3.makedirs("refusals", exist_ok=True)
    for name, keys in {"a": [1, 9], "b": [3, 4]}.items():
        with s3.open(f"refusals/data/{name}.parquet", "wb") as file:
            pq.write_table(pa.table({"id": keys, "v": ["old"] * 2}), file)
    s3.invalidate_cache()
    if getattr(request, "param", "s3fs") == "s3fs":
        yield s3
    else:
        retry = arrow_fs.AwsStandardS3RetryStrategy(max_attempts=1)
        options = {"endpoint_override": server.url, "region": "us-east-1", "retry_strategy": retry}
        yield arrow_fs.S3FileSystem(access_key="k", secret_key="s", **options)
    server.refuse = lambda method, path: None
    s3.invalidate_cache()
    s3.rm("refusals", recursive=True)


BOTH = pytest.mark.parametrize("store", ["s3fs", "pyarrow"], indirect=True)


def merge(store: Any) -> Any:
    io = PyarrowDatasetIO(filesystem=store, lock_timeout=0.0)
    return io.merge(NEW, "refusals/data", "upsert", ["id"])


def after(count: int, answer: tuple[str, str]) -> Callable[[str, str], tuple[str, str] | None]:
    """Refuse to give a file out from its so-manieth request on."""
    seen = []

    def refuse(method: str, path: str) -> tuple[str, str] | None:
        if not path.endswith("/b.parquet") or method != "GET":
            return None
        seen.append(path)
        return answer if len(seen) > count else None

    return refuse


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("requests", [0, 1])
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("AccessDenied", "it needs the permission s3:GetObject"),
        ("InvalidAccessKeyId", "does not know the access key"),
        ("SignatureDoesNotMatch", "the secret is not that of the access key"),
    ],
)
def test_denied_access_names_the_reason_and_the_file(
    server: Server, store: Any, requests: int, code: str, reason: str
) -> None:
    server.refuse = after(requests, ("403 Forbidden", code))
    with pytest.raises(PermissionError, match=r"refusals/data/b\.parquet'") as caught:
        merge(store)
    text = str(caught.value)
    # pyarrow often reports the status of a refusal, without its code.
    if not isinstance(store, arrow_fs.FileSystem) or "ACCESS_DENIED" not in text:
        assert reason in text
    assert ("s3:GetObject" in text) == (reason not in text or code == "AccessDenied")
    assert text.count(" of 'refusals") == 1
    assert "Parquet:" not in text
    assert "remove" not in text
    assert caught.value.__cause__ is not None


@pytest.mark.slow
@pytest.mark.parametrize("requests", [0, 1])
def test_expired_credentials_are_reported_as_such(
    server: Server, store: Any, requests: int
) -> None:
    server.refuse = after(requests, ("400 Bad Request", "ExpiredToken"))
    with pytest.raises(PermissionError, match=r"b\.parquet(.|\n)*renew them"):
        merge(store)


@pytest.mark.slow
@BOTH
def test_a_listing_that_is_denied_is_not_an_empty_dataset(server: Server, store: Any) -> None:
    def refuse(method: str, path: str) -> tuple[str, str] | None:
        return ("403 Forbidden", "AccessDenied") if path == "/refusals/data/" else None

    server.refuse = refuse
    with pytest.raises(PermissionError, match=r"listing of 'refusals/data'(.|\n)*s3:ListBucket"):
        merge(store)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("source", ["refusals/data/b.parquet", "refusals/data"])
def test_a_source_that_is_forbidden_is_not_missing(server: Server, store: Any, source: str) -> None:
    server.refuse = lambda method, path: (
        ("403 Forbidden", "AccessDenied") if path.endswith("/b.parquet") else None
    )
    io = PyarrowDatasetIO(filesystem=store)
    with pytest.raises(PermissionError, match=r"b\.parquet(.|\n)*s3:GetObject"):
        io.merge(source, "refusals/other", "upsert", ["id"])


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("requests", [0, 1])
def test_an_object_that_vanishes_after_listing_is_planned_without(
    server: Server, store: Any, requests: int
) -> None:
    refuse = after(requests, ("404 Not Found", "NoSuchKey"))

    def vanish(method: str, path: str) -> tuple[str, str] | None:
        answer = refuse(method, path)
        if answer is not None:
            server.refuse = lambda method, path: None
            fsspec.filesystem("s3", key="k", secret="s", endpoint_url=server.url).rm_file(
                "refusals/data/b.parquet"
            )
        return answer

    server.refuse = vanish
    result = merge(store)
    assert (result.updated, result.inserted, result.target_count_after) == (0, 1, 3)


@pytest.mark.slow
def test_objects_that_vanish_again_and_again_end_in_an_error(server: Server, store: Any) -> None:
    """Each time that a file is read it is gone, and another one has appeared."""
    other: Any = fsspec.filesystem("s3", key="k", secret="s", endpoint_url=server.url)
    names = iter(range(1000))
    gone: set[str] = set()

    def replace(method: str, path: str) -> tuple[str, str] | None:
        if method != "GET" or not path.endswith(".parquet") or path.endswith("/a.parquet"):
            return None
        if path not in gone:  # one client asks after the other
            gone.add(path)
            server.refuse = lambda method, path: None
            other.mv(path, f"refusals/data/{next(names)}.parquet")
            server.refuse = replace
        return ("404 Not Found", "NoSuchKey")

    server.refuse = replace
    with pytest.raises(ConcurrentModificationError, match="changed by others"):
        merge(store)


@pytest.mark.slow
@BOTH
def test_another_failure_keeps_its_type_and_names_the_file(server: Server, store: Any) -> None:
    server.refuse = after(0, ("500 Internal Server Error", "InternalError"))
    with pytest.raises(
        OSError, match=r"reading the footer of 'refusals/data/b\.parquet'"
    ) as caught:
        merge(store)
    assert type(caught.value) is OSError
    assert caught.value.errno is not None


def made(name: str, base: type[Exception] = Exception, **attributes: Any) -> Exception:
    """An error of a library that is not installed."""
    error: Exception = type(name, (base,), attributes)("no")
    return error


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def client_error(code: str, operation: str = "GetObject") -> Exception:
    return made("ClientError", response={"Error": {"Code": code}}, operation_name=operation)


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (FileNotFoundError("x"), "missing"),
        (PermissionError("x"), "denied"),
        (OSError(errno.ENOSPC, "x"), "other"),
        (OSError("Couldn't deserialize thrift"), "other"),
        (ValueError("x"), "other"),
        (client_error("NoSuchKey"), "missing"),
        (client_error("404"), "missing"),
        (client_error("AccessDenied"), "denied"),
        (client_error("ExpiredToken"), "denied"),
        (client_error("400", "HeadObject"), "denied"),
        (client_error("400"), "other"),
        (client_error("SlowDown"), "other"),
        (caused(PermissionError("x"), client_error("InvalidObjectState")), "other"),
        (caused(OSError("x"), client_error("InvalidAccessKeyId")), "denied"),
        (made("NoCredentialsError"), "denied"),
        (made("HttpError", code=403), "denied"),
        (made("HttpError", code=401), "denied"),
        (made("HttpError", code=404), "missing"),
        (made("HttpError", code=503), "other"),
        (OSError("Forbidden: https://storage.googleapis.com/lake\nno"), "denied"),
        (made("RefreshError"), "denied"),
        (made("ClientAuthenticationError", status_code=None), "denied"),
        (made("HttpResponseError", status_code=403, error_code="AuthorizationFailure"), "denied"),
        (made("HttpResponseError", status_code=409, error_code="LeaseLost"), "other"),
        (made("ResourceNotFoundError", status_code=404), "missing"),
        (made("ClientResponseError", status=403), "denied"),
        (OSError("AWS Error ACCESS_DENIED during GetObject operation: "), "denied"),
        (OSError("AWS Error UNKNOWN (HTTP status 403) during HeadObject operation"), "denied"),
        (OSError("AWS Error RESOURCE_NOT_FOUND during GetObject operation: "), "missing"),
        (OSError("AWS Error INTERNAL_FAILURE during GetObject operation: "), "other"),
    ],
    ids=str,
)
def test_errors_of_many_libraries_are_understood(error: Exception, meaning: str) -> None:
    assert meaning_of(error) == meaning


def test_what_was_handled_before_does_not_explain_a_full_disk() -> None:
    error = OSError(errno.ENOSPC, "no space")
    error.__context__ = FileNotFoundError("x")
    assert meaning_of(error) == "other"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (made("HttpResponseError", status_code=403), PermissionError),
        (made("HttpResponseError", status_code=500), OSError),
        (made("Slow", TimeoutError), TimeoutError),
    ],
)
def test_errors_of_libraries_become_builtin_ones(error: Exception, kind: type[OSError]) -> None:
    root = open_root("memory://refusals/data")
    path = f"{root.path}/a.parquet"
    with (
        pytest.raises(OSError, match=r"reading of 'memory:///refusals/data/a\.parquet'") as caught,
        naming_failure(root, path, "reading"),
    ):
        raise error
    assert type(caught.value) is kind
    assert caught.value.errno is not None
    assert caught.value.__cause__ is error


def test_a_mistake_of_a_program_stays_as_it_is() -> None:
    root = open_root("memory://refusals/data")
    with pytest.raises(TypeError, match=r"^oops$"), naming_failure(root, root.path, "reading"):
        raise TypeError("oops")


def test_a_password_in_the_words_of_a_library_is_not_passed_on() -> None:
    root = open_root("memory://refusals/data")
    error = OSError(errno.EIO, "cannot reach https://me:hush@host/x")
    with (
        pytest.raises(OSError, match="https://host/x") as caught,
        naming_failure(root, root.path, "reading"),
    ):
        raise error
    assert "hush" not in str(caught.value)
