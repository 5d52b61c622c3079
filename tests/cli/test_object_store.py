"""An object store, reached with options of the command line, the environment and a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow.parquet as pq
import pytest
from tests.cli.running import rows

from fsspeckit.testing.object_stores import asked_by, moto, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.running import Run
    from werkzeug.wrappers import Request, Response

    from fsspeckit.testing.object_stores import Answer

KEY, SECRET = "AKIA-LOUD-KEY", "hush-hush"
PYARROW = ("--engine", "pyarrow", "--key", "id")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The endpoint of an object store on this machine, with a bucket and a source."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    store: Any = fsspec.filesystem("s3", key=KEY, secret=SECRET, endpoint_url=endpoint)
    store.mkdir("cli-lake")
    with store.open("cli-lake/source.parquet", "wb") as file:
        pq.write_table(rows(1, 2), file)
    with store.open("cli-lake/source.csv", "wb") as file:
        file.write(b"id,v\n2,new\n3,new\n")
    yield endpoint
    server.stop()


@pytest.mark.slow
def test_everything_on_an_object_store(
    run: Run, done: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: Path
) -> None:
    options = [f"key={KEY}", f"secret={SECRET}", f"client_kwargs.endpoint_url={url}"]
    given = [word for option in options for word in ("--storage-option", option)]
    assert (
        "2 inserted"
        in done("merge", "s3://cli-lake/source.parquet", "s3://cli-lake/data", *PYARROW, *given).out
    )
    (tmp_path / "config.toml").write_text(
        f'[storage.s3]\nkey = "{KEY}"\nsecret = "{SECRET}"\nendpoint_url = "{url}"\n'
    )
    config = ("--config", "config.toml")
    assert (
        "1 matched, 1 inserted"
        in done("merge", "s3://cli-lake/source.csv", "s3://cli-lake/data", *PYARROW, *config).out
    )
    # A source of another kind of filesystem than the target's is opened with its own options.
    done("merge", "s3://cli-lake/source.parquet", dataset, *PYARROW, *config)
    monkeypatch.setenv(
        "FSSPECKIT_STORAGE_OPTIONS",
        json.dumps({"key": KEY, "secret": SECRET, "endpoint_url": url}),
    )
    assert done("inspect", "s3://cli-lake/data", "--json").document["rows"] == 3
    assert len(done("history", "s3://cli-lake/data", "--json").document["commits"]) == 2
    ran = run("merge", "s3://cli-lake/nowhere.csv", "s3://cli-lake/data", *PYARROW)
    assert ran.code == 1
    assert SECRET not in ran.err


def test_a_store_that_is_not_there(run: Run, source: Path) -> None:
    options = [
        *(f"key={KEY}", f"secret={SECRET}", "endpoint_url=http://127.0.0.1:9"),
        'config_kwargs:={"retries": {"max_attempts": 0}}',
    ]
    given = [word for option in options for word in ("--storage-option", option)]
    ran = run("merge", source, "s3://cli-lake/data", *PYARROW, *given, "--verbose")
    assert ran.code == 1
    assert "hint: check the network, and the endpoint" in ran.err
    assert SECRET not in ran.err
    assert KEY not in ran.err


def refusing_copies(request: Request, answer: Answer) -> Response:
    if asked_by(request).action == "CopyObject":
        return refusal(403, "AccessDenied", "injected")
    return answer()


@pytest.mark.slow
def test_recover_watches_a_bucket(source: Path) -> None:
    """A writer dies between the record and the first copy; plain readers see it when it is done."""
    path = f"s3://{moto().make_bucket()}/lake/data"
    program = [sys.executable, "-c", "from fsspeckit.cli import main; main()"]
    environment = {**os.environ, "FSSPECKIT_STORAGE_OPTIONS": json.dumps(moto().options)}
    with moto().following(refusing_copies):
        dead = subprocess.run(
            [*program, "merge", str(source), path, *PYARROW], env=environment, capture_output=True
        )
    assert b"committed" in dead.stderr
    filesystem = fsspec.filesystem("s3", **moto().options, use_listings_cache=False)
    assert filesystem.find(path) == []
    words = ["recover", path, "--watch", "--every", "0.2", "--lock-timeout", "1", "--json"]
    with subprocess.Popen(
        [*program, *words], env=environment, stdout=subprocess.PIPE, text=True
    ) as watcher:
        assert watcher.stdout is not None
        (completed,) = json.loads(watcher.stdout.readline())["completed"]
        assert completed["number"] == 1
        assert len(filesystem.find(path)) == 1
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(20) == 0
