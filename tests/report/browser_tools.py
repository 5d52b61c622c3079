"""Node.js and Chromium for the tests of the report's page, or the reason why they are not there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
FRONTEND = REPOSITORY / "frontend"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def need_node() -> None:
    """Skip the test if the front-end cannot be built here."""
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed. Hint: install it and run 'make browser'.")
    if not (FRONTEND / "node_modules" / "esbuild").is_dir():
        pytest.skip("frontend/node_modules is missing. Hint: run 'make browser'.")


def need_browser() -> None:
    """Skip the test if there is no browser here."""
    need_node()
    if not os.environ.get("CHROMIUM") and not any(map(shutil.which, CHROMIUM)):
        pytest.skip("Chromium is not installed. Hint: run 'make browser'.")


def run_node(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a script of the front-end."""
    return subprocess.run(
        ["node", *map(str, arguments)], cwd=FRONTEND, capture_output=True, text=True, check=False
    )
