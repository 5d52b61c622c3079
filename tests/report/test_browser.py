"""The report in a real browser: what a reader does with it, accessibility, and a live page."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest
from tests.report.browser_pages import make_orders, make_pages, orders
from tests.report.browser_tools import FRONTEND, need_browser, run_node

import fsspeckit
from fsspeckit.report import ReportServer
from fsspeckit.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.untraced]

SCENARIOS = [
    *re.findall(
        r'^scenario\("(.+?)", "\w+", async',
        (FRONTEND / "browser" / "scenarios.mjs").read_text("utf-8"),
        re.MULTILINE,
    ),
    *(
        f"is accessible: {page}, {theme}"
        for page in ("report", "plan", "result")
        for theme in ("light", "dark")
    ),
    "is accessible: large, dark",
    *(f"fits on a phone: {page}" for page in ("report", "plan", "result", "large", "hostile")),
]


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str | None]:
    """Why each scenario failed, or None: one browser runs them all."""
    need_browser()
    directory = tmp_path_factory.mktemp("pages")
    make_pages(directory)
    done = run_node("browser/run.mjs", directory)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["name"]: line["failure"] for line in lines}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_page(failures: Mapping[str, str | None], scenario: str) -> None:
    assert failures[scenario] is None, failures[scenario]


def test_every_scenario_is_a_test(failures: Mapping[str, str | None]) -> None:
    assert sorted(failures) == sorted(SCENARIOS)


def test_a_served_page_shows_a_merge_as_it_happens(tmp_path: Path) -> None:
    need_browser()
    path = str(tmp_path / "orders")
    make_orders(path)
    server = ReportServer(open_storage(path))
    thread = threading.Thread(target=server.run)
    thread.start()
    watching = subprocess.Popen(
        ["node", "browser/live.mjs", server.url], cwd=FRONTEND, stdout=subprocess.PIPE, text=True
    )
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline() == "ready\n"
        fsspeckit.merge(orders([8], "live"), path, "update", ["id"], engine="pyarrow")
        seen = json.loads(watching.communicate(timeout=120)[0])
    finally:
        watching.kill()
        watching.wait()
        server.stop()
        thread.join()
        server.close()
    assert "update by id" in seen["newest"]
    assert seen["announced"] == "New commit 5: update by id"
    assert seen["complaints"] == []
