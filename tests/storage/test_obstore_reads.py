"""Reads by obstore: when it is used, and that s3fs answers for whatever it cannot do."""

from __future__ import annotations

import gc
import importlib.util
import io
import json
import os
import subprocess
import sys
import time
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.storage.test_where_credentials_come_from import PROCESS

from fsspeckit.core.planning import read_footers
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.storage import list_files, open_root, read_range
from fsspeckit.storage.fs import obstore_reads
from fsspeckit.testing.conformance.stores import object_store
from fsspeckit.testing.object_stores import KEY, REGION, SECRET, asked_by, moto, refusal
from fsspeckit.testing.rule_server import RuleServer, passing_on_to

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from werkzeug.wrappers import Request, Response

    from fsspeckit.storage.roots import Root
    from fsspeckit.testing.object_stores import Answer, ObjectStore, Rule

pytest.importorskip("obstore")
pytestmark = pytest.mark.slow

FILES = 12
BYTES = b"0123456789"
OF_OBSTORE = "object_store/"
CERTIFICATES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No filesystem of another test, and obstore even where another test has imported it first."""
    filesystems = fsspec.get_filesystem_class("s3")
    filesystems.clear_instance_cache()
    monkeypatch.setattr(obstore_reads, "_PROCESS", os.getpid())
    for name in CERTIFICATES:
        monkeypatch.delenv(name, raising=False)
    yield
    filesystems.clear_instance_cache()


class Front:
    """A server in front of a store that counts requests by who has sent them."""

    def __init__(self, store: ObjectStore, *rules: Rule) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._server = RuleServer(passing_on_to(store.url), *rules, self._count)
        self.options = store.options
        self.options["client_kwargs"]["endpoint_url"] = self._server.url
        self.stop = self._server.stop

    def _count(self, request: Request, answer: Answer) -> Response:
        self.counts[client_of(request), asked_by(request).action] += 1
        return answer()


def client_of(request: Request) -> str:
    return "obstore" if request.headers["User-Agent"].startswith(OF_OBSTORE) else "s3fs"


@contextmanager
def in_front_of(store: ObjectStore, *rules: Rule) -> Iterator[Front]:
    front = Front(store, *rules)
    try:
        yield front
    finally:
        front.stop()


def dataset(store: ObjectStore) -> str:
    bucket = store.make_bucket()
    filesystem = fsspec.filesystem("s3", **store.options)
    for number in range(FILES):
        buffer = io.BytesIO()
        pq.write_table(pa.table({"id": [number], "text": ["x" * number]}), buffer)
        path = f"{bucket}/lake/data/p=a%2Fb/{number:02}.parquet"
        filesystem.pipe_file(path, buffer.getvalue())
    return f"s3://{bucket}/lake/data"


def footers(root: Root) -> list[Any]:
    """List the files, and return how many rows each footer has."""
    return [one.rows for one in read_footers(root, list_files(root).files, ["id"])]


def in_thread(function: Any, *arguments: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result()


@pytest.fixture
def opened() -> Root:
    """An object with ten bytes, on a filesystem that has a connection."""
    return with_object(moto().options)


def with_object(options: dict[str, Any], name: str = "name") -> Root:
    bucket = moto().make_bucket()
    fsspec.filesystem("s3", **moto().options).pipe_file(f"{bucket}/{name}", BYTES)
    root = open_root(f"s3://{bucket}/{name}", storage_options=options)
    root.filesystem.connect()
    return root


def readers_of(root: Root, *arguments: Any) -> tuple[bytes, list[str]]:
    """Read a range in a thread; return it, and which clients have asked the store."""
    asked: list[str] = []

    def note(request: Request, answer: Answer) -> Response:
        asked.append(client_of(request))
        return answer()

    with moto().following(note):
        data = in_thread(read_range, root, root.path, *(arguments or (2, 5)))
    return data, asked


@pytest.mark.parametrize("kind", ["moto", "minio"])
def test_footers_are_read_by_obstore_with_as_many_requests(kind: str) -> None:
    store = object_store(kind)
    url = dataset(store)
    with in_front_of(store) as front:
        root = open_root(url, storage_options=front.options)
        assert footers(root) == [1] * FILES
    assert front.counts == {("s3fs", "ListObjectsV2"): 1, ("obstore", "GetObject"): FILES}


@pytest.mark.parametrize("kind", ["moto", "minio"])
def test_a_merge_asks_for_as_much_without_obstore(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = object_store(kind)
    source = pa.table({"id": [3, 100], "text": ["new", "new"]})
    found, actions = [], []
    for is_installed in (True, False):
        if not is_installed:
            monkeypatch.setitem(sys.modules, "obstore.store", None)
        url = dataset(store).replace("/data", "/data/p=a%2Fb")
        with in_front_of(store) as front, PyarrowDatasetIO(storage_options=front.options) as io:
            io.merge(source, url, "upsert", ["id"])
        with PyarrowDatasetIO(storage_options=store.options) as io:
            found.append(io.read_dataset(url).sort_by("id"))
        assert bool(front.counts["obstore", "GetObject"]) == is_installed
        actions.append(Counter[str]())
        for (_, action), count in front.counts.items():
            actions[-1][action] += count
    assert found[0] == found[1]
    assert actions[0] == actions[1]
    assert not actions[0]["HeadObject"]


def test_the_main_thread_reads_with_s3fs(opened: Root) -> None:
    """Ctrl-C could not interrupt it."""
    assert obstore_reads.read_with_obstore(opened.filesystem, opened.path, 2, 5, None) is None
    assert in_thread(
        obstore_reads.read_with_obstore, opened.filesystem, opened.path, 2, 5, None
    ) == (b"23456")


def test_ranges(opened: Root) -> None:
    for start, length, expected in ((0, 10, BYTES), (7, 50, b"789"), (9, 1, b"9")):
        assert readers_of(opened, start, length) == (expected, ["obstore"])


def test_a_range_after_the_end_is_the_error_of_s3fs(opened: Root) -> None:
    with pytest.raises(OSError, match="not satisfiable"):
        in_thread(read_range, opened, opened.path, 10, 5)


NAMES = ["a b", "p=a%2Fb/x", "a+b", "ü", "e\u0301", "#", "?", "~*'\"", "[]{}^`|", "\\", "<&>", "%"]


CHANGED_NAMES = ["a//b", "/a", "a/./b", "a/../b", "a\x7fb"]


def test_names_of_objects() -> None:
    for name in NAMES:
        assert readers_of(with_object(moto().options, name)) == (BYTES[2:7], ["obstore"]), name


def test_names_that_obstore_would_change_are_left_to_s3fs() -> None:
    for name in CHANGED_NAMES:
        assert readers_of(with_object(moto().options, name)) == (BYTES[2:7], ["s3fs"]), name


CLIENT = {"endpoint_url": "", "region_name": REGION}
USED: dict[str, dict[str, Any]] = {
    "a region of its own": {"client_kwargs": {**CLIENT, "region_name": "eu-west-3"}},
    "an endpoint as an option": {"client_kwargs": {"region_name": REGION}, "endpoint_url": ""},
    "path style": {"config_kwargs": {"s3": {"addressing_style": "path"}}},
    "encryption by the store": {"s3_additional_kwargs": {"ServerSideEncryption": "AES256"}},
    "a token": {"token": "token"},
    "connections": {"config_kwargs": {"max_pool_connections": 5}},
    "retries": {"config_kwargs": {"retries": {"mode": "standard"}}},
}
NOT_USED: dict[str, dict[str, Any]] = {
    "no credentials": {"key": None, "secret": None, "anon": True},
    "requester pays": {"requester_pays": True},
    "a key of the customer": {
        "s3_additional_kwargs": {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "0" * 32}
    },
    "an old signature": {"config_kwargs": {"signature_version": "s3"}},
    "an unsigned request": {"config_kwargs": {"signature_version": ""}},
    "a resolver": {"config_kwargs": {"connector_args": {"use_dns_cache": False}}},
    "a certificate": {"config_kwargs": {"client_cert": "certificate.pem"}},
    "proxies": {"config_kwargs": {"proxies": {"http": "http://127.0.0.1:9"}}},
}


def opened_with(changes: dict[str, Any]) -> Root:
    options = {**moto().options, **changes}
    for holder in (options, options["client_kwargs"]):
        if "endpoint_url" in holder:
            holder["endpoint_url"] = moto().url
    return with_object(options)


@pytest.mark.parametrize("name", USED)
def test_settings_that_are_the_same_for_obstore(name: str) -> None:
    assert readers_of(opened_with(USED[name])) == (BYTES[2:7], ["obstore"])


def is_readable(root: Root) -> bool:
    found = in_thread(obstore_reads.read_with_obstore, root.filesystem, root.path, 2, 5, None)
    return found is not None


@pytest.mark.parametrize("name", NOT_USED)
def test_settings_that_are_left_to_s3fs(name: str) -> None:
    root = opened_with(NOT_USED[name])
    with moto().recording() as asked:
        assert not is_readable(root)
    assert not asked


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("AWS_PROXY_URL", "http://127.0.0.1:9"),
        ("AWS_ALLOW_INVALID_CERTIFICATES", "true"),
        ("AWS_SKIP_SIGNATURE", "true"),
        ("http_proxy", "http://127.0.0.1:9"),
        ("all_proxy", "http://127.0.0.1:9"),
    ],
)
def test_variables_that_only_obstore_would_follow(
    opened: Root, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert not is_readable(opened)


def test_variables_that_both_follow(opened: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "nothing")
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/other")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:9")
    signed: list[str] = []

    def note(request: Request, answer: Answer) -> Response:
        signed.append(request.headers["Authorization"])
        return answer()

    with moto().following(note):
        assert is_readable(opened)
    (text,) = signed
    assert f"Credential={KEY}/" in text
    assert f"/{REGION}/s3/" in text


def test_other_filesystems_are_left_alone(opened: Root) -> None:
    from s3fs import S3FileSystem

    class Custom(S3FileSystem):  # type: ignore[misc] # s3fs has no types
        pass

    custom = Custom(**moto().options)
    custom.connect()
    assert in_thread(obstore_reads.read_with_obstore, custom, opened.path, 2, 5, None) is None
    unconnected = S3FileSystem(**moto().options, skip_instance_cache=True)
    assert in_thread(obstore_reads.read_with_obstore, unconnected, opened.path, 2, 5, None) is None


def test_a_session_of_the_caller_is_left_to_s3fs() -> None:
    from aiobotocore.session import AioSession  # type: ignore[import-untyped]

    assert not is_readable(opened_with({"session": AioSession()}))


def test_headers_of_the_caller_are_left_to_s3fs(opened: Root) -> None:
    def sign_more(request: Any, **_: Any) -> None:
        request.headers["x-amz-who"] = "me"

    opened.filesystem.s3.meta.events.register("before-sign.s3.GetObject", sign_more)
    assert not is_readable(opened)


def test_a_stub_of_the_caller_answers(opened: Root) -> None:
    def answer(**_: Any) -> str:
        return "anything"

    opened.filesystem.s3.meta.events.register("before-send.s3.GetObject", answer)
    assert not is_readable(opened)


@pytest.mark.parametrize("region", ["eu-west-3", "us-east-1"])
def test_the_addresses_of_aws(region: str) -> None:
    """Nothing is sent: a client is only asked how it would sign."""
    options = {"key": KEY, "secret": SECRET, "client_kwargs": {"region_name": region}}
    bucket = opened_bucket(options, "lake")
    assert bucket is not None
    config = bucket._store.config
    host = "s3.amazonaws.com" if region == "us-east-1" else f"s3.{region}.amazonaws.com"
    assert config["endpoint"] == f"https://lake.{host}"
    assert config["region"] == region
    assert config["virtual_hosted_style_request"] == "true"


def test_a_bucket_with_dots_is_in_the_path() -> None:
    options = {"key": KEY, "secret": SECRET, "client_kwargs": {"region_name": "eu-west-3"}}
    bucket = opened_bucket(options, "lake.example.org")
    assert bucket is not None
    assert bucket._store.config["endpoint"] == "https://s3.eu-west-3.amazonaws.com"
    assert bucket._store.config["virtual_hosted_style_request"] == "false"


@pytest.mark.parametrize("verify", [False, "/etc/ssl/certs/ca-certificates.crt"])
def test_certificates_that_are_checked_in_another_way(verify: Any) -> None:
    client = {"region_name": REGION, "verify": verify}
    assert opened_bucket({"key": KEY, "secret": SECRET, "client_kwargs": client}, "lake") is None


@pytest.mark.parametrize("path", ["/gateway", "/lake"])
def test_an_endpoint_with_a_path_is_left_to_s3fs(path: str) -> None:
    client = {"region_name": REGION, "endpoint_url": f"http://127.0.0.1:9{path}"}
    assert opened_bucket({"key": KEY, "secret": SECRET, "client_kwargs": client}, "lake") is None


def test_an_access_point_is_left_to_s3fs() -> None:
    options = {"key": KEY, "secret": SECRET, "client_kwargs": {"region_name": REGION}}
    arn = f"arn:aws:s3:{REGION}:123456789012:accesspoint/lake"
    assert opened_bucket(options, arn) is None


def opened_bucket(options: dict[str, Any], name: str) -> Any:
    filesystem = fsspec.filesystem("s3", **options)
    filesystem.connect()
    return obstore_reads._open(filesystem, filesystem.s3, name)


@pytest.mark.parametrize("kind", ["moto", "minio"])
def test_of_an_object_that_was_replaced_s3fs_reads_the_new_one(kind: str) -> None:
    store = object_store(kind)
    url = dataset(store)
    with in_front_of(store) as front:
        root = open_root(url, storage_options=front.options)
        files = list_files(root).files
        other = fsspec.filesystem("s3", **store.options)
        old, new = (other.cat_file(files[number].path, start=0) for number in (3, 4))
        assert old != new
        other.pipe_file(files[3].path, new)
        front.counts.clear()
        found = in_thread(read_range, root, files[3].path, 0, 9**9, "reading", files[3].etag)
        assert found == new
        assert front.counts == {("obstore", "GetObject"): 1, ("s3fs", "GetObject"): 1}
        found = in_thread(read_range, root, files[4].path, 0, 9**9, "reading", files[4].etag)
        assert found == new
        assert front.counts == {("obstore", "GetObject"): 2, ("s3fs", "GetObject"): 1}


REFUSALS = {
    "denied": (403, "AccessDenied", "Access Denied"),
    "expired": (400, "ExpiredToken", "The provided token has expired."),
    "unknown key": (403, "InvalidAccessKeyId", "The key does not exist."),
    "missing": (404, "NoSuchKey", "The specified key does not exist."),
    "not a store": (200, "", "Please log in to the network."),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_a_store_refuses_is_the_error_of_s3fs(
    opened: Root, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """In the middle: obstore has read the same object before."""
    assert is_readable(opened)

    def refuse(request: Request, answer: Answer) -> Response:
        return refusal(*REFUSALS[name]) if asked_by(request).action == "GetObject" else answer()

    with moto().following(refuse):
        said = outcome(opened)
        monkeypatch.setitem(sys.modules, "obstore", None)
        assert outcome(opened) == said
    assert name == "not a store" or isinstance(said, str)


def outcome(root: Root) -> Any:
    try:
        return in_thread(read_range, root, root.path, 2, 5)
    except OSError as error:
        return repr(error)


def busy_each(number: int, asked: list[str]) -> Rule:
    """Refuse each such read, in the way of a store that is busy."""

    def rule(request: Request, answer: Answer) -> Response:
        if asked_by(request).action != "GetObject":
            return answer()
        asked.append(client_of(request))
        if len(asked) % number == 0:
            return refusal(503, "SlowDown", "Please reduce your request rate.")
        return answer()

    return rule


def test_a_busy_store_is_asked_again_by_s3fs(opened: Root) -> None:
    asked: list[str] = []
    with moto().following(busy_each(4, asked)):
        for _ in range(9):
            assert in_thread(read_range, opened, opened.path, 2, 5) == BYTES[2:7]
    assert asked[:5] == [*["obstore"] * 4, "s3fs"]
    assert asked.count("s3fs") == len(asked) // 4
    assert len(asked) == 9 + asked.count("s3fs")


def test_after_failures_in_a_row_obstore_is_not_asked_any_more(opened: Root) -> None:
    asked: list[str] = []

    def refuse(request: Request, answer: Answer) -> Response:
        asked.append(client_of(request))
        return refusal(500, "InternalError", "") if asked[-1] == "obstore" else answer()

    with moto().following(refuse):
        for _ in range(6):
            assert in_thread(read_range, opened, opened.path, 2, 5) == BYTES[2:7]
    assert asked == ["obstore", "s3fs"] * 3 + ["s3fs"] * 3


@pytest.mark.parametrize("sent", [b"", b"234", b"23456789"])
def test_an_answer_of_another_length_is_not_believed(opened: Root, sent: bytes) -> None:
    def change(request: Request, answer: Answer) -> Response:
        response = answer()
        if client_of(request) == "obstore":
            response.set_data(sent)
        return response

    with moto().following(change):
        assert in_thread(read_range, opened, opened.path, 2, 5) == BYTES[2:7]


def test_tokens_are_renewed_by_the_client_of_s3fs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "process.py"
    program.write_text(PROCESS.format(life=2.0, key=KEY, secret=SECRET))
    command = f"{sys.executable} -S -E {program}"
    (tmp_path / "config").write_text(f"[profile lake]\ncredential_process={command}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    options = {"profile": "lake", "client_kwargs": moto().options["client_kwargs"]}
    root = with_object(options)
    used: Counter[str] = Counter()
    late: list[float] = []

    def note(request: Request, answer: Answer) -> Response:
        token = request.headers["X-Amz-Security-Token"]
        used[token] += 1
        late.append(time.time() - float(token.removeprefix("until-")))
        return answer()

    with moto().following(note):
        end = time.monotonic() + 5
        while time.monotonic() < end:
            assert readers_of(root) == (BYTES[2:7], ["obstore"])
            time.sleep(0.05)
    assert len(used) > 1
    assert max(late) < 0


def test_a_client_that_connects_again_is_asked_for_its_credentials(opened: Root) -> None:
    assert is_readable(opened)
    opened.filesystem.key, opened.filesystem.secret = "other", "secret"
    opened.filesystem.connect(refresh=True)
    keys: list[str] = []

    def note(request: Request, answer: Answer) -> Response:
        keys.append(request.headers["Authorization"].partition("Credential=")[2].partition("/")[0])
        return answer()

    with moto().following(note):
        assert is_readable(opened)
    assert keys == ["other"]


def test_a_client_that_is_dropped_is_forgotten() -> None:
    root: Any = with_object({**moto().options, "skip_instance_cache": True})
    assert is_readable(root)
    client = weakref.ref(root.filesystem.s3)
    assert client() in obstore_reads._buckets
    root = None
    gc.collect()
    assert client() is None


FORKED = """
import json, multiprocessing, os, sys, threading
given = json.loads(sys.argv[1])
def asks(read):
    thread = threading.Thread(target=read)
    thread.start()
    thread.join()

if "plain obstore" == given["before"]:
    from obstore import get
    from obstore.store import S3Store
    config = {"endpoint": given["endpoint"], "skip_signature": True, "bucket": "lake"}
    try:
        get(S3Store(config=config, client_options={"allow_http": True}), "nothing")
    except FileNotFoundError:
        pass

def read():
    from fsspeckit.storage import open_root, read_range
    root = open_root(given["path"], storage_options=given["options"])
    root.filesystem.connect()
    found = []
    asks(lambda: found.append(read_range(root, root.path, 2, 5)))
    assert found == [b"23456"], found

if "fsspeckit" == given["before"]:
    read()
if given["by"] == "os.fork":
    child = os.fork()
    if not child:
        read()
        sys.exit(7)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
else:
    process = multiprocessing.get_context("fork").Process(target=read)
    process.start()
    process.join()
    code = process.exitcode + 7
if "fsspeckit" == given["before"]:
    read()
sys.exit(code)
"""


@pytest.mark.parametrize("by", ["os.fork", "multiprocessing"])
@pytest.mark.parametrize(
    ("before", "clients"),
    [
        ("fsspeckit", ["obstore", "s3fs", "obstore"]),
        ("plain obstore", ["s3fs"]),
        ("nothing", ["obstore"]),
    ],
)
def test_a_forked_process_reads_with_s3fs(before: str, clients: Sequence[str], by: str) -> None:
    root = with_object(moto().options)
    given = {
        "before": before,
        "by": by,
        "endpoint": moto().url,
        "options": moto().options,
        "path": f"s3://{root.path}",
    }
    asked: list[str] = []

    def note(request: Request, answer: Answer) -> Response:
        if asked_by(request).key == root.path.partition("/")[2]:
            asked.append(client_of(request))
        return answer()

    with moto().following(note):
        done = subprocess.run(
            [sys.executable, "-c", FORKED, json.dumps(given)],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 7, done.stderr
    assert asked == clients


def test_a_worker_of_spark_reads_with_s3fs(opened: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one for each core, and each would have as many threads."""
    spec = importlib.util.find_spec("pyspark.daemon")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    assert not is_readable(opened)


LOCAL = """
import sys
import pyarrow as pa
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
with PyarrowDatasetIO() as io:
    io.merge(pa.table({"id": [1]}), sys.argv[1], "upsert", ["id"])
    io.merge(pa.table({"id": [1, 2]}), sys.argv[1], "upsert", ["id"])
print({"obstore", "s3fs", "aiobotocore"} & sys.modules.keys())
"""


def test_a_merge_on_a_disk_imports_no_client(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOCAL, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "set()"
