"""Code of the guides that runs elsewhere: by a scheduler, or as a file of a generated project."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.docs.test_code_blocks import PAGES, blocks_of

from fsspeckit import history

if TYPE_CHECKING:
    from collections.abc import Callable


def block_with(page: str, text: str) -> str:
    """The one Python block of a page that has a text."""
    blocks = blocks_of(PAGES[page].read_text(encoding="utf-8"))
    (found,) = [b.text for b in blocks if b.language == "python" and text in b.text]
    return found


def test_the_transformation_is_that_of_a_new_project() -> None:
    template = "templates/pipeline/transformations/orders.py.template"
    text = (resources.files("fsspeckit.cli") / template).read_text("utf-8")
    assert block_with("docs/guides/declarative-pipelines.md", "create_sink") == text


class FailError(Exception):
    """What Airflow does not retry."""


@pytest.fixture
def run_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Runs the task of the guide on a date, with decorators that call what they decorate."""
    sdk, exceptions = ModuleType("airflow.sdk"), ModuleType("airflow.sdk.exceptions")
    date: dict[str, str] = {}

    def dag(**settings: Any) -> Any:
        assert settings["max_active_runs"] == 1
        return lambda function: function

    def task(function: Any) -> Any:
        return lambda: function(ds=date["ds"], ds_nodash=date["ds"].replace("-", ""))

    sdk.dag, sdk.task = dag, task  # type: ignore[attr-defined]
    exceptions.AirflowFailException = FailError  # type: ignore[attr-defined]
    for module in (ModuleType("airflow"), sdk, exceptions):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    code = compile(
        block_with("docs/guides/scheduling-and-retries.md", "@dag"), "guide", "exec", 0, True
    )

    def run(ds: str) -> None:
        date["ds"] = ds
        exec(code, {"__name__": "guide"})

    return run


def land(night: str, *rows: tuple[int, str, int, str]) -> None:
    directory = Path("landing", night)
    directory.mkdir(parents=True)
    columns = zip(*rows, strict=True)
    names = ("order_id", "status", "updated_at", "operation")
    table = pa.table(dict(zip(names, map(list, columns), strict=True)))
    pq.write_table(table, directory / "orders.parquet")


def test_the_task_of_airflow_may_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_of: Callable[[str], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    land("2026-03-02", (1, "placed", 1, "upsert"), (2, "placed", 2, "upsert"))
    land("2026-03-03", (1, "paid", 3, "upsert"), (2, "placed", 4, "delete"))
    for night in ("2026-03-02", "2026-03-02", "2026-03-03", "2026-03-03"):
        run_of(night)
    assert pq.read_table("orders").to_pylist() == [
        {"order_id": 1, "status": "paid", "updated_at": 3}
    ]
    transactions = [str(entry.transaction) for entry in history("orders")]
    assert transactions == ["orders-nightly:20260302", "orders-nightly:20260303"]


def test_what_retries_cannot_mend_is_not_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_of: Callable[[str], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    land("2026-03-02", (1, "placed", 1, "upsert"))
    run_of("2026-03-02")
    Path("landing", "2026-03-03").mkdir()
    pq.write_table(pa.table({"order_id": [1]}), "landing/2026-03-03/orders.parquet")
    with pytest.raises(FailError, match="updated_at"):
        run_of("2026-03-03")
