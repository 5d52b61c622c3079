"""The commands `report` and `serve`, and pages of plans and results."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.running import content
from tests.report.datasets import decisions, model_of

from fsspeckit.cli.errors import PENDING
from fsspeckit.core.merge import MergeResult

if TYPE_CHECKING:
    from tests.cli.running import Run

PYARROW = ("--engine", "pyarrow")


def model(path: Path | str) -> dict[str, Any]:
    return model_of(Path(path).read_text(encoding="utf-8"))


def test_report(done: Run, dataset: Path) -> None:
    ran = done("report", dataset, "--key", "id")
    file = Path.cwd() / "data-report.html"
    assert f"3 files and 0 commits in {file}" in ran.out
    found = model(file)
    assert found["files"]["name"] == ["part-0.parquet", "part-1.parquet", "part-2.parquet"]
    assert found["dataset"]["keyColumns"] == ["id"]
    assert found["live"] is None


def test_report_as_json(done: Run, dataset: Path) -> None:
    document = done("report", dataset, "-o", "r.html", "--json").document
    assert document["file"] == str(Path.cwd() / "r.html")
    assert (document["files"], document["bytes"]) == (3, Path("r.html").stat().st_size)


def test_a_report_is_replaced_by_a_newer_one(
    done: Run, run: Run, dataset: Path, source: Path
) -> None:
    done("report", dataset, "-o", "r.html")
    done("merge", source, dataset, "-k", "id", *PYARROW)
    done("report", dataset, "-o", "r.html")
    assert len(model("r.html")["commits"]) == 1
    Path("other.html").write_text("<html>mine</html>")
    ran = run("report", dataset, "-o", "other.html")
    assert (ran.code, Path("other.html").read_text()) == (1, "<html>mine</html>")
    assert "--output 'other.html' exists already" in ran.err
    assert "pass --overwrite" in ran.err
    done("report", dataset, "-o", "other.html", "--overwrite")
    assert model("other.html")["commits"]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("no/such/r.html", "there is no directory"),
        (".", "is a directory"),
        ("-", "needs the name of a file"),
        ("", "needs the name of a file"),
        ("r.parquet", "has the name of a data file"),
    ],
)
def test_files_that_cannot_be_written(
    run: Run, dataset: Path, source: Path, file: str, message: str
) -> None:
    assert message in run("report", dataset, "-o", file).err
    ran = run("merge", source, dataset, "-k", "id", *PYARROW, "--html", file)
    assert (ran.code, message in ran.err) == (1, True)
    assert len(content(dataset)) == 9, "it was refused before anything was changed"


def test_a_page_that_fails_to_be_written_leaves_nothing(run: Run, dataset: Path) -> None:
    Path("r.html.new").mkdir()  # where the page is written before it gets its name
    ran = run("report", dataset, "-o", "r.html")
    assert ran.code == 1
    assert "r.html' cannot be written: " in ran.err
    assert not Path("r.html").exists()


def test_a_directory_without_the_right_to_write(
    run: Run, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root may write everywhere, so the answer of the system is given here.
    monkeypatch.setattr("fsspeckit.cli.pages.os.access", lambda path, mode: False)
    ran = run("report", dataset, "-o", "r.html", "--verify", *PYARROW)
    assert ran.code == 1
    assert "may not write into its directory" in ran.err
    assert "verified" not in ran.err


def test_report_of_nothing(run: Run) -> None:
    ran = run("report", "nothing")
    assert ran.code == 1
    assert "hint: check the path" in ran.err
    assert not list(Path.cwd().glob("*.html"))


def test_report_with_what_verify_finds(done: Run, dataset: Path) -> None:
    (dataset / "part-1.parquet").write_bytes(b"PAR1 damaged PAR1")
    done("report", dataset, "-o", "r.html", "--verify", "-k", "id", *PYARROW)
    doctor, verify = model("r.html")["checks"]
    assert (doctor["outcome"], verify["outcome"]) == ("error", "error")


def test_advice_names_commands(done: Run, dataset: Path, source: Path) -> None:
    done("merge", source, dataset, "-k", "id", *PYARROW)
    (dataset.parent / ".data.fsspeckit" / "commits" / "0000000001.done.json").unlink()
    done("report", dataset, "-o", "r.html")
    advice = [finding["advice"] for finding in model("r.html")["checks"][0]["findings"]]
    assert any("'fsspeckit recover'" in text for text in advice)


def test_the_page_of_a_plan(done: Run, dataset: Path, source: Path) -> None:
    ran = done("plan", source, dataset, "-k", "id", *PYARROW, "--html", "plan.html")
    assert "1 affected, 2 pruned" in ran.out
    found = model("plan.html")
    assert found["change"]["kind"] == "plan"
    assert decisions(found)["part-1.parquet"] == ("affected", "key scan")


@pytest.mark.parametrize("rows", [b"id,v\n1,a\n", b"id,v\n"], ids=["rows", "no rows"])
def test_pages_of_a_dataset_that_is_not_there_yet(done: Run, rows: bytes) -> None:
    Path("new.csv").write_bytes(rows)
    done("plan", "new.csv", "new", "-k", "id", *PYARROW, "--html", "plan.html")
    done("merge", "new.csv", "new", "-k", "id", *PYARROW, "--html", "merge.html")
    assert [model(page)["change"]["kind"] for page in ("plan.html", "merge.html")] == [
        "plan",
        "result",
    ]


def test_a_page_that_cannot_be_made_does_not_take_back_a_commit(
    run: Run, done: Run, dataset: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is told that it failed runs again."""

    def fail(result: MergeResult) -> str:
        raise KeyError("Mars/Olympus")

    monkeypatch.setattr(MergeResult, "to_html", fail)
    ran = run("merge", source, dataset, "-k", "id", *PYARROW, "--html", "merge.html")
    assert ran.code == PENDING
    assert "all is done, but the page cannot be written: 'Mars/Olympus'" in ran.err
    assert "upsert" in done("history", dataset).out


@pytest.mark.parametrize("key", ["at", "id"])
def test_a_time_zone_that_is_not_known_here(run: Run, done: Run, key: str) -> None:
    """A file may come from a machine with a newer database of zones, or with other names."""
    at = pa.array([0, 86_400_000_000], pa.timestamp("us", "Mars/Olympus"))
    Path("mars").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "at": at}), "mars/0.parquet")
    done("inspect", "mars")
    verified = run("verify", "mars", *PYARROW).out
    assert "this machine does not know the time zone 'Mars/Olympus' of column 'at'" in verified
    done("report", "mars", "-k", key, "-o", "mars.html")
    (axis,) = model("mars.html")["axes"]
    texts = ["1970-01-01 00:00:00.000000Z", "1970-01-02 00:00:00.000000Z"]
    assert axis["texts"] == {"id": None, "at": texts}[key]


def test_a_file_as_control_directory_is_an_error(run: Run, dataset: Path) -> None:
    (dataset.parent / ".data.fsspeckit").write_text("x")
    for command in (("report",), ("history",), ("verify", *PYARROW), ("inspect",)):
        ran = run(command[0], dataset, *command[1:])
        assert (ran.code, "where the control directory of" in ran.err) == (1, True), command


def test_the_page_of_a_plan_that_a_limit_stops(run: Run, dataset: Path, source: Path) -> None:
    words = ("--max-rewrite-bytes", "1", "--html", "plan.html")
    ran = run("plan", source, dataset, "-k", "id", *PYARROW, *words)
    assert ran.code == 1
    assert model("plan.html")["change"]["kind"] == "plan"


def test_the_pages_of_merges(done: Run, dataset: Path, source: Path) -> None:
    done("merge", source, dataset, "-k", "id", *PYARROW, "--html", "merge.html")
    assert model("merge.html")["change"]["commit"] == 1
    done("delete", dataset, "--where", "id = 1", *PYARROW, "--html", "delete.html")
    assert model("delete.html")["change"]["counts"] == {"deleted": 1}
    done("deduplicate", dataset, *PYARROW, "--dry-run", "--html", "plan.html")
    assert model("plan.html")["change"]["strategy"] == "deduplicate_target"


def test_a_page_that_cannot_be_written_after_the_commit(
    run: Run, dataset: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program makes a directory of the page while the merge runs."""
    Path("page.html.new").mkdir()
    ran = run("merge", source, dataset, "-k", "id", *PYARROW, "--html", "page.html")
    assert ran.code == 3
    assert "all is done, but the page cannot be written" in ran.err
    assert "do not repeat the command" in ran.err
    assert len(content(dataset)) == 10


def serve(*words: object) -> subprocess.Popen[str]:
    program = "from fsspeckit.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", program, "serve", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_serve_until_it_is_interrupted(dataset: Path) -> None:
    with serve(dataset, "--json") as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "}\n")
            document = json.loads("".join(lines) + "}")
            schemas = Path(sys.modules["fsspeckit.cli"].__file__ or "").parent / "schemas"
            jsonschema.validate(document, json.loads((schemas / "serve.json").read_text()))
            with urllib.request.urlopen(document["url"], timeout=30) as answer:
                page = answer.read().decode()
            assert len(model_of(page)["files"]["name"]) == 3
            taken = serve(dataset, "--port", document["port"])
            out, err = taken.communicate(timeout=60)
            assert (taken.returncode, out) == (1, "")
            assert f"port {document['port']} on 127.0.0.1 is in use" in err
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
            assert process.stderr is not None
            assert process.stderr.read() == "stopped\n"
        finally:
            process.kill()


def test_serve_prints_where_the_page_is(dataset: Path) -> None:
    with serve(dataset) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"{dataset} is shown, until Ctrl-C, at\n"
            assert process.stdout.readline().startswith("  http://127.0.0.1:")
        finally:
            process.kill()


def test_serve_opens_the_browser_without_showing_the_token(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other users see the command line of a browser."""
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\nfile="${{1#file://}}"\necho "$1" > {opened}.new\n'
        f'cat "$file" >> {opened}.new\nls -ld "$(dirname "$file")" >> {opened}.new\n'
        f"mv {opened}.new {opened}\n"
    )
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    with serve(dataset, "--json", "--open") as process:
        try:
            assert process.stdout is not None
            document = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
            deadline = time.monotonic() + 60
            while not opened.exists():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            url, content = opened.read_text().split("\n", 1)
            assert url.startswith("file:///")
            assert document["url"].partition("token=")[2] not in url
            assert document["url"] in content
            assert "drwx------" in content
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
            assert not Path(url.removeprefix("file://")).exists()
        finally:
            process.kill()


@pytest.mark.parametrize("port", ["-1", "65536", "x", "1.5"])
def test_ports_that_do_not_exist(run: Run, dataset: Path, port: str) -> None:
    ran = run("serve", dataset, f"--port={port}")
    assert ran.code == 2
    assert "is not a port" in ran.err


def test_serve_of_nothing(run: Run) -> None:
    assert "hint: check the path" in run("serve", "nothing").err


def test_the_browser_is_opened_only_if_asked_for(
    done: Run, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path / "opened"}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    monkeypatch.setattr("webbrowser._tryorder", None)
    monkeypatch.setattr("webbrowser._browsers", {})
    done("report", dataset, "-o", "r.html")
    assert not (tmp_path / "opened").exists()
    done("report", dataset, "-o", "r.html", "--open")
    assert (tmp_path / "opened").read_text().strip() == (Path.cwd() / "r.html").as_uri()
