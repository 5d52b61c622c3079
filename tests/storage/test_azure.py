"""Azure Blob Storage: what adlfs leaves open, on Azurite behind a proxy that changes answers."""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import pytest
from tests.storage.checks import read_consistently
from tests.storage.scenario import FLAT, parquet_bytes, stage_change

from fsspeckit.errors import CommitPendingError
from fsspeckit.storage import (
    commit,
    list_files,
    open_storage,
    recover_storage,
    staging,
    take_snapshot,
)
from fsspeckit.testing.conformance.stores import object_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fsspeckit.storage import Storage
    from fsspeckit.testing.object_stores import Azurite

    Headers = dict[str, str]
    Answer = tuple[int, Headers, bytes]
    Rule = Callable[[str, Callable[[], Answer]], Answer]
    """Answers a request of a method, with the help of Azurite or without."""

pytestmark = pytest.mark.slow
COPY_STATUS = "x-ms-copy-status"


class Proxy:
    """Passes requests on to Azurite, writes them down, and follows a rule about the answers."""

    def __init__(self, url: str) -> None:
        self.asked: list[tuple[str, str]] = []
        self.rule: Rule = lambda method, answer: answer()
        proxy, behind = self, urlsplit(url).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                given = dict(self.headers.items())
                proxy.asked.append((self.command, self.path))
                status, headers, data = proxy.rule(
                    self.command, lambda: _ask(behind, self.command, self.path, given, body)
                )
                self.send_response_only(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data if self.command != "HEAD" else b"")

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


def _ask(behind: str, method: str, path: str, headers: Headers, body: bytes) -> Answer:
    connection = http.client.HTTPConnection(behind)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        data = response.read()
        found = {name.lower(): value for name, value in response.getheaders()}
        found.pop("transfer-encoding", None)
        found.pop("connection", None)
        if method != "HEAD":
            found["content-length"] = str(len(data))
        return response.status, found, data
    finally:
        connection.close()


@pytest.fixture(scope="module")
def server() -> Azurite:
    return cast("Azurite", object_store("azurite"))


@pytest.fixture
def proxy(server: Azurite) -> Iterator[Proxy]:
    proxy = Proxy(server.url)
    yield proxy
    proxy.server.shutdown()
    proxy.server.server_close()


@pytest.fixture
def storage(server: Azurite, proxy: Proxy) -> Storage:
    """A dataset of the scenario, seen through the proxy."""
    storage = opened(server, proxy)
    for name, start in FLAT.files.items():
        storage.root.filesystem.pipe_file(storage.path(name), parquet_bytes(start, "old"))
    return storage


def opened(server: Azurite, proxy: Proxy, **account: str) -> Storage:
    behind = replace(server, url=proxy.url, credentials={**server.credentials, **account})
    place = server.at(server.make_bucket(), "lake/data")
    return open_storage(place, storage_options=behind.options, lock_timeout=0.0)


@contextmanager
def following(proxy: Proxy, rule: Rule) -> Iterator[None]:
    before, proxy.rule = proxy.rule, rule
    try:
        yield
    finally:
        proxy.rule = before


def accepting(answers: list[str]) -> Rule:
    """Say of a copy, and then to each question about it, what is next in a list."""

    def rule(method: str, answer: Callable[[], Answer]) -> Answer:
        status, found, data = answer()
        if COPY_STATUS in found and answers:
            found[COPY_STATUS] = answers.pop(0)
        return status, found, data

    return rule


def refusal(status: int, code: str) -> Answer:
    """An answer that is an error."""
    text = f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
    headers = {"content-length": str(len(text)), "content-type": "application/xml"}
    return status, {**headers, "x-ms-error-code": code}, text


def change(storage: Storage) -> Any:
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        return commit(storage, snapshot, stage, stage_change(FLAT, storage, stage))


def test_a_copy_that_was_only_accepted_is_waited_for(proxy: Proxy, storage: Storage) -> None:
    source, target = storage.path("old.parquet"), storage.path("new.parquet")
    storage.backend.overwrite(source, b"bytes")
    left = ["pending", "pending", "success"]
    with following(proxy, accepting(left)):
        storage.backend.move_over(source, target)
    assert left == []
    assert proxy.asked[-1][0] == "DELETE"
    assert [method for method, path in proxy.asked if "new.parquet" in path] == [
        *("PUT", "HEAD", "HEAD")
    ]
    assert storage.backend.read(target) == b"bytes"


@pytest.mark.parametrize("end", ["failed", "aborted"])
def test_a_copy_that_ends_otherwise_leaves_its_source(
    proxy: Proxy, storage: Storage, end: str
) -> None:
    source, target = storage.path("old.parquet"), storage.path("new.parquet")
    storage.backend.overwrite(source, b"bytes")
    for move in (storage.backend.move_over, lambda *pair: storage.backend.copy_all(dict([pair]))):
        with (
            following(proxy, accepting(["pending", end])),
            pytest.raises(OSError, match=f"new.parquet.*{end}"),
        ):
            move(source, target)
        assert storage.backend.read(source) == b"bytes"


def test_a_commit_whose_copies_fail_is_finished_by_recovery(proxy: Proxy, storage: Storage) -> None:
    with following(proxy, accepting(["pending", "failed"] * 100)):
        with pytest.raises(CommitPendingError):
            change(storage)
        assert read_consistently(storage) == FLAT.new()
    recover_storage(storage)
    assert read_consistently(storage) == FLAT.new()
    assert storage.backend.names(storage.control.path) == ["commits"]


def test_a_listing_is_one_request(proxy: Proxy, storage: Storage) -> None:
    proxy.asked.clear()
    assert len(list_files(storage.root).files) == len(FLAT.files)
    assert storage.backend.names(storage.control.path) == []
    assert [method for method, _ in proxy.asked] == ["GET", "GET"]


def test_a_listing_says_when_a_blob_changed_and_which_version_it_is(storage: Storage) -> None:
    path = storage.path(next(iter(FLAT.files)))
    before = storage.backend.stat(path)
    storage.backend.overwrite(path, storage.backend.read(path))
    after = storage.backend.stat(path)
    assert before is not None
    assert after is not None
    assert before.mtime_ns is not None
    assert before.etag != after.etag
    assert before.size == after.size


def test_a_dataset_below_a_blob_is_listed(storage: Storage) -> None:
    """adlfs finds nothing but the blob there, and says so in another form."""
    parent = storage.root.path.rpartition("/")[0]
    storage.root.filesystem.pipe_file(parent, b"a blob with the name of the directory")
    assert len(list_files(storage.root).files) == len(FLAT.files)


def test_blobs_that_stand_for_directories_are_left_out(storage: Storage) -> None:
    """Accounts with a hierarchical namespace list their directories as blobs."""
    filesystem = storage.root.filesystem
    filesystem.pipe_file(storage.path("day=1"), b"")
    filesystem.setxattrs(storage.path("day=1"), hdi_isfolder="true")
    assert len(list_files(storage.root).files) == len(FLAT.files)
    assert storage.backend.stat(storage.path("day=1")) is None


def test_what_may_not_be_removed_is_reported(proxy: Proxy, storage: Storage) -> None:
    paths = [storage.path(name) for name in FLAT.files]

    def refuse(method: str, answer: Callable[[], Answer]) -> Answer:
        return refusal(403, "AuthorizationPermissionMismatch") if method == "DELETE" else answer()

    with following(proxy, refuse), pytest.raises(PermissionError, match="blobs/delete"):
        storage.backend.discard_all([*paths, storage.path("gone.parquet")])


def test_removing_several_takes_a_request_each_and_none_to_look(
    proxy: Proxy, storage: Storage
) -> None:
    proxy.asked.clear()
    storage.backend.discard_all([storage.path(name) for name in (*FLAT.files, "gone.parquet")])
    assert {method for method, path in proxy.asked if "comp=list" not in path} == {"DELETE"}
    assert list_files(storage.root).files == ()


def test_a_conflict_that_is_not_about_the_name_is_not_a_blob_that_exists(
    proxy: Proxy, storage: Storage
) -> None:
    def deleting(method: str, answer: Callable[[], Answer]) -> Answer:
        return refusal(409, "ContainerBeingDeleted")

    with (
        following(proxy, deleting),
        pytest.raises(OSError, match="ContainerBeingDeleted") as caught,
    ):
        storage.backend.create(storage.control.record(1), b"record")
    assert not isinstance(caught.value, FileExistsError)


def test_a_wrong_key_is_a_refusal_that_names_the_permission(server: Azurite, proxy: Proxy) -> None:
    with pytest.raises(PermissionError, match=r"permission blobs/read .* renew them"):
        opened(server, proxy, account_key="d3Jvbmcga2V5")
