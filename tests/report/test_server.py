"""The server: only to read, only with the token, only for its own page."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.report.datasets import model_of

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.report import ReportServer
from fsspeckit.storage import IncomingBatch, open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_SECONDS = 60


class Answer:
    """Status, headers and body of an answer."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    server: ReportServer,
    path: str,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
) -> Answer:
    """Send one request, with the headers as they are given."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        own = {"Host": f"127.0.0.1:{server.port}"}
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in {**own, **(headers or {})}.items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        return Answer(connection.getresponse())


@contextmanager
def serving(path: Path, *keys: str) -> Iterator[ReportServer]:
    server = ReportServer(open_storage(path), keys or None)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
        server.close()


def new_dataset(parent: Path) -> Path:
    path = parent / "events"
    path.mkdir()
    pq.write_table(pa.table({"id": range(10), "v": ["old"] * 10}), path / "a.parquet")
    return path


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return new_dataset(tmp_path)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset that nobody changes."""
    return new_dataset(tmp_path_factory.mktemp("unchanged"))


@pytest.fixture(scope="module")
def server(unchanged: Path) -> Iterator[ReportServer]:
    with serving(unchanged, "id") as server:
        yield server


def query(server: ReportServer) -> str:
    return server.url.partition("/?")[2]


def test_the_page_with_the_token(server: ReportServer) -> None:
    answer = ask(server, f"/?{query(server)}")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    model = model_of(answer.body.decode())
    assert model["files"]["name"] == ["a.parquet"]
    assert model["live"]["writers"] == []
    assert model["live"]["generation"] == model["generation"] == "0"
    assert ask(server, f"/data?{query(server)}").json["files"] == model["files"]
    assert ask(server, f"/events?{query(server)}").json["generation"] == "0"


def test_what_a_browser_may_do_with_it(server: ReportServer) -> None:
    headers = ask(server, f"/?{query(server)}").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["/", "/data", "/events", "/nothing"])
@pytest.mark.parametrize(
    "wrong", ["", "?token=", "?token=wrong", "?token={token}x", "?token={token}&token={token}"]
)
def test_without_the_token_nothing_is_said(server: ReportServer, path: str, wrong: str) -> None:
    answer = ask(server, path + wrong.format(token=server.token))
    assert (answer.status, answer.body) == (403, b"forbidden\n")


@pytest.mark.parametrize("token", ["%ff", "%C3%A4", "%ED%B3%BF"])
def test_a_token_that_is_not_ascii_is_wrong(server: ReportServer, token: str) -> None:
    assert ask(server, f"/?token={token}").status == 403


def test_a_name_of_another_site_is_refused(server: ReportServer) -> None:
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1", "127.0.0.1:1", ""):
        assert ask(server, f"/?{query(server)}", headers={"Host": host}).status == 403
    host = f"localhost:{server.port}"
    assert ask(server, f"/?{query(server)}", headers={"Host": host}).status == 200


def test_a_page_of_another_site_is_refused(server: ReportServer) -> None:
    for origin in ("http://evil.example", "null", "https://127.0.0.1"):
        answer = ask(server, f"/data?{query(server)}", headers={"Origin": origin})
        assert answer.status == 403
    own = {"Origin": f"http://127.0.0.1:{server.port}"}
    assert ask(server, f"/data?{query(server)}", headers=own).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(server: ReportServer, unchanged: Path, method: str) -> None:
    answer = ask(server, f"/?{query(server)}", method, body=b"x" * 10)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    assert [path.name for path in unchanged.parent.rglob("*")] == ["events", "a.parquet"]


def test_head_has_no_body(server: ReportServer) -> None:
    answer = ask(server, f"/?{query(server)}", "HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) > 1000


def test_other_paths_are_not_there(server: ReportServer) -> None:
    assert ask(server, f"/../../etc/passwd?{query(server)}").status == 404


def test_it_listens_on_loopback_only(server: ReportServer) -> None:
    others = {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), server.port)}
    for address in others - {"127.0.0.1", "::1"}:
        with pytest.raises(OSError, match=r"refused|reach"):
            socket.create_connection((address, server.port), timeout=5)
    with pytest.raises(OSError, match=r"refused|assign"):
        socket.create_connection(("::1", server.port), timeout=5)


def test_a_dataset_that_is_not_there_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ReportServer(open_storage(tmp_path / "nothing"))


def test_what_goes_wrong_later_is_in_the_answer(dataset: Path) -> None:
    PyarrowDatasetIO().write_dataset(pa.table({"id": [77], "v": ["x"]}), str(dataset))
    with serving(dataset, "id") as server:
        (record,) = (dataset.parent / ".events.fsspeckit" / "commits").glob("*1.json")
        record.write_text("{}")
        answer = wait_for(lambda: ask(server, f"/data?{query(server)}"), lambda a: a.status != 200)
        assert answer.status == 503
        assert "0000000001.json" in answer.json["error"]


def test_any_other_error_is_in_the_answer_too(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise KeyError("Mars/Olympus")

    monkeypatch.setattr("fsspeckit.report.server._LOCAL_SECONDS", 0.0)
    with serving(dataset, "id") as server:
        monkeypatch.setattr("fsspeckit.report.server.report_model", fail)
        answer = ask(server, f"/?{query(server)}")
        assert (answer.status, answer.json) == (503, {"error": "'Mars/Olympus'"})


def test_a_commit_is_another_generation(dataset: Path) -> None:
    with serving(dataset, "id") as server:
        PyarrowDatasetIO().merge(
            pa.table({"id": [3], "v": ["new"]}), str(dataset), "upsert", ["id"]
        )
        live = wait_for(
            lambda: ask(server, f"/events?{query(server)}").json,
            lambda found: found["generation"] == "1",
        )
        model = wait_for(
            lambda: ask(server, f"/data?{query(server)}").json,
            lambda found: found["generation"] == live["generation"],
        )
        assert [commit["number"] for commit in model["commits"]] == [1]


WRITER = """
import sys, time, pyarrow as pa
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
def progress(phase, done, total):
    if (done, total) == (0, 1) and phase == "match":
        time.sleep(0.6)  # small merges publish nothing
    if (done, total) == (0, 1) and phase in ("rewrite", "insert"):
        print(phase, flush=True)
        sys.stdin.readline()
rows = pa.table({"id": [3, 500], "v": ["new"] * 2})
PyarrowDatasetIO().merge(
    rows, sys.argv[1], "upsert", ["id"], progress=progress
)
print("done", flush=True)
"""


@contextmanager
def merging(dataset: Path) -> Iterator[subprocess.Popen[str]]:
    """A merge in another process, which waits at the beginning of two phases."""
    PyarrowDatasetIO().write_dataset(pa.table({"id": [77], "v": ["x"]}), str(dataset))
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(dataset)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def current_phase(live: Any) -> str | None:
    """The phase of the only writer, if it is in one."""
    phases = live["writers"][0]["phases"] if live["writers"] else []
    return None if not phases or phases[-1]["isDone"] else phases[-1]["name"]


def test_a_merge_of_another_process_is_seen_while_it_runs(dataset: Path) -> None:
    with merging(dataset) as process, serving(dataset, "id") as server:

        def look() -> Any:
            return ask(server, f"/events?{query(server)}").json

        assert said(process) == "rewrite"
        (writer,) = wait_for(look, lambda live: current_phase(live) == "rewrite")["writers"]
        assert (writer["process"], writer["isRunning"]) == (process.pid, True)
        assert (writer["engine"], writer["strategy"]) == ("pyarrow", "upsert")
        assert [phase["name"] for phase in writer["phases"]] == [
            "stage",
            "plan",
            "match",
            "rewrite",
        ]
        assert [phase["isDone"] for phase in writer["phases"]] == [True, True, True, False]
        assert writer["stagedFiles"] == 0
        go_on(process)
        assert said(process) == "insert"
        (writer,) = wait_for(look, lambda live: current_phase(live) == "insert")["writers"]
        assert writer["stagedFiles"] == 1
        assert writer["stagedBytes"] == writer["staged"][0]["bytes"] > 0
        go_on(process)
        assert said(process) == "done"
        assert wait_for(look, lambda live: live["generation"] == "2")["writers"] == []


def test_a_writer_that_was_killed_is_not_running(dataset: Path) -> None:
    with merging(dataset) as process, serving(dataset, "id") as server:
        assert said(process) == "rewrite"
        process.kill()
        process.wait()
        (writer,) = wait_for(
            lambda: ask(server, f"/events?{query(server)}").json,
            lambda live: live["writers"] and live["writers"][0]["isRunning"] is False,
        )["writers"]
        assert writer["phases"][-1]["name"] == "rewrite"


def test_rows_of_a_stream_that_wait_are_seen(dataset: Path) -> None:
    incoming = IncomingBatch(open_storage(dataset), "orders", 7)
    with incoming.open(incoming.new_file()) as file:
        file.write(b"x" * 100)
    with serving(dataset, "id") as server:
        live = ask(server, f"/events?{query(server)}").json
    assert live["incoming"] == [
        {"query": "orders", "batch": "0000000007", "files": 1, "bytes": 100}
    ]


def wait_for(look: Any, until: Any) -> Any:
    deadline = time.monotonic() + MAX_SECONDS
    while not until(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found
