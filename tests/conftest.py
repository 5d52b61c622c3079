"""Fixtures that every test module may ask for."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pyspark.sql import SparkSession

settings.register_profile(
    "default",
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("default")
# fsspec warns about every variable whose name begins like its own.
if os.environ.pop("FSSPECKIT_TORTURE", None):
    os.environ["TORTURE"] = "1"


ENGINES = ("pyarrow", "duckdb", "spark")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose engines and cases."""
    group = parser.getgroup("fsspeckit")
    group.addoption(
        "--engine",
        action="append",
        choices=ENGINES,
        default=[],
        help="run the conformance suite on this engine only (repeatable)",
    )
    group.addoption(
        "--first-case",
        action="store_true",
        help="run only the first case of each parametrized test, and no generated or slow test",
    )
    group.addoption(
        "--keep-cells",
        action="store_true",
        help="keep the cells of earlier runs in the tables that a run of object stores writes",
    )


def pytest_configure() -> None:
    """Enable Ctrl-C as at a terminal, and measure Spark's workers if this process is measured."""
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # as a shell starts what is not waited for
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not _measuring():
        return
    from tests import spark_coverage, traced_threads

    traced_threads.install()
    directory = Path(tempfile.mkdtemp(prefix="spark-conf-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    os.environ.update(spark_coverage.settings(directory))


def _measuring() -> Any:
    """Return the running measurement of coverage, if there is one."""
    return "coverage" in sys.modules and sys.modules["coverage"].Coverage.current()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Do not measure the coverage of generated and of repeated cases.

    What generated cases cover differs in every run. What runs the same code again and again covers
    nothing more, and tracing doubles the time of most tests.
    """
    coverage = _measuring()
    if not coverage or _is_measured(item):
        return (yield)
    # Else starting again looks into all modules that were imported; some are not what they seem.
    coverage._warn_preimported_source = False
    coverage.stop()
    try:
        return (yield)
    finally:
        coverage.start()


def _is_measured(item: pytest.Item) -> bool:
    """Whether a test counts for the coverage.

    Further cases of the conformance suite count on the first engine only: on the others they pass
    through the same code of the pipeline, the core and the storage.
    """
    if item.get_closest_marker("hypothesis") or item.get_closest_marker("untraced"):
        return False
    return _engine_of(item) in (None, ENGINES[0]) or not _is_further_case(item)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect further cases.

    A class with ``first_case_only`` runs one case of each test, so that the tests of Spark, on both
    kinds of session, do not take too long. FSSPECKIT_EXAMPLES=2, or more, runs every case.
    """
    engines: list[str] = config.getoption("--engine")
    first_case: bool = config.getoption("--first-case")
    every_case = float(os.environ.get("FSSPECKIT_EXAMPLES", "1")) > 1
    left_out = {
        item
        for item in items
        if (engines and _engine_of(item) not in (None, *engines))
        or (first_case and (_is_further_case(item) or _takes_long(item)))
        or (not every_case and _runs_first_case_only(item) and _is_further_case(item))
    }
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def _engine_of(item: pytest.Item) -> str | None:
    """The engine that a test of the conformance suite runs on."""
    return getattr(getattr(item, "cls", None), "engine_name", None)


def _runs_first_case_only(item: pytest.Item) -> bool:
    return bool(getattr(getattr(item, "cls", None), "first_case_only", False))


def _is_further_case(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    return callspec is not None and any(callspec.indices.values())


def _takes_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("slow", "spark", "hypothesis"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark session, started once for the whole run."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    home = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("fsspeckit-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_connect_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Spark Connect server, started once for the whole run."""
    from tests.datasets.spark_cluster import connect_server

    with connect_server(tmp_path_factory.mktemp("connect")) as url:
        yield url


@pytest.fixture(scope="session")
def spark_connect(spark_connect_url: str) -> Iterator[SparkSession]:
    """A session of the Spark Connect server."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    session: Any = ConnectSession.builder.remote(spark_connect_url).create()
    yield session
    session.stop()
