"""The transaction of a run of Airflow, in DAGs that ``dag.test()`` runs."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fsspeckit

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(
    find_spec("airflow") is None, reason="has an environment of its own: make test-integrations"
)

EXAMPLES = Path(__file__).parents[2] / "examples" / "integrations"
SHOWN = ("try ", "manual__", "lake/", "  commit ")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of Airflow with its database."""
    directory = tmp_path_factory.mktemp("airflow")
    program = [sys.executable, "-m", "airflow", "db", "migrate"]
    subprocess.run(program, env=settings(directory), check=True, capture_output=True)
    return directory


def settings(home: Path, dags: Path = EXAMPLES) -> dict[str, str]:
    return os.environ | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONWARNINGS": "default",
    }


@pytest.fixture
def run(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Runs a program in an empty directory, and returns what it prints, without Airflow's log."""
    monkeypatch.chdir(tmp_path)

    def start(*program: str, dags: Path = EXAMPLES) -> list[str]:
        done = subprocess.run(
            [sys.executable, *program],
            env=settings(home, dags) | {"PYTHONPATH": f"{dags}:{os.environ.get('PYTHONPATH', '')}"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith(SHOWN)]

    return start


def test_a_task_that_fails_after_its_commit_is_retried(run: Callable[..., list[str]]) -> None:
    assert run(str(EXAMPLES / "airflow_orders.py")) == [
        "try 1, skipped: False",
        "try 2, skipped: True",
        "manual__2026-03-02T00:00:00+00:00: success",
        "try 1, skipped: False",
        "try 2, skipped: True",
        "manual__2026-03-03T00:00:00+00:00: success",
        "lake/orders: [20, 21, 30, 31]",
        "  commit 1: {'inserted': 2}, airflow:orders.append_orders:1772409600000000",
        "  commit 2: {'inserted': 2}, airflow:orders.append_orders:1772496000000000",
        "lake/customers: ['ada', 'bob']",
        "  commit 1: {'inserted': 2, 'updated': 0, 'deleted': 0}, None",
        "  commit 2: {'inserted': 0, 'updated': 2, 'deleted': 0}, None",
    ]


EARLIER = """
from datetime import timedelta
from airflow_orders import FIRST_DAY, orders_dag
for days in (31, 30):
    run = orders_dag.test(run_after=FIRST_DAY + timedelta(days=days))
    print(f"{run.run_id}: {run.state}")
"""


def test_a_run_that_was_due_earlier_is_refused_and_not_skipped(
    run: Callable[..., list[str]],
) -> None:
    assert run("-c", EARLIER) == [
        "try 1, skipped: False",
        "try 2, skipped: True",
        "manual__2026-04-02T00:00:00+00:00: success",
        "manual__2026-04-01T00:00:00+00:00: failed",
    ]
    assert len(fsspeckit.read_dataset("lake/orders", engine="pyarrow")) == 2


MAPPED = """
from datetime import UTC, datetime
import pyarrow as pa
from airflow.sdk import dag, task
import fsspeckit
from fsspeckit.integrations.airflow import run_transaction

@dag(schedule=None)
def mapped():
    @task
    def append(shop):
        for name in (None, "other"):
            done = fsspeckit.write_dataset(
                pa.table({"shop": [shop]}), "lake/shops", transaction=run_transaction(name),
                engine="pyarrow",
            )
            print("try", shop, done.metrics["commit"]["skipped"])
    append.expand(shop=["a", "b"])

mapped_dag = mapped()
if __name__ == "__main__":
    print("manual__", mapped_dag.test(run_after=datetime(2026, 3, 2, tzinfo=UTC)).state)
"""


def test_each_mapped_task_counts_by_itself(run: Callable[..., list[str]], tmp_path: Path) -> None:
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "mapped.py").write_text(MAPPED)
    *tries, ended = run(str(dags / "mapped.py"), dags=dags)
    assert sorted(tries) == ["try a False", "try a False", "try b False", "try b False"]
    assert ended == "manual__ success"
    found = [entry.transaction for entry in fsspeckit.history("lake/shops")]
    assert sorted(one.application for one in found if one is not None) == [
        *("airflow:mapped.append[0]", "airflow:mapped.append[0]:other"),
        *("airflow:mapped.append[1]", "airflow:mapped.append[1]:other"),
    ]
