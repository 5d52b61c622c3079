"""Sessions that this package starts, and workers that cannot work: each in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_REPOSITORY = Path(__file__).parents[2]
_PLACES = [place for place in sys.path if place.endswith("site-packages")]


def run(program: str, directory: Path, **environment: str) -> tuple[Any, str]:
    """What a program of its own process tells in its last line, and all that it says beside."""
    # Not the settings that measure workers: these here cannot import what measures.
    own = {"PYSPARK_PYTHON", "SPARK_CONF_DIR"}
    inherited = {k: v for k, v in os.environ.items() if k not in own}
    source = str(_REPOSITORY / "src")
    paths = [source, str(_REPOSITORY), *filter(None, [inherited.get("PYTHONPATH")])]
    told = subprocess.run(
        [sys.executable, "-c", program, str(directory)],
        capture_output=True,
        text=True,
        cwd=directory,
        env={**inherited, "PYTHONPATH": os.pathsep.join(paths), **environment},
        timeout=900,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-4000:]
    (line,) = told.stdout.splitlines()
    return json.loads(line), told.stderr


_NEW_SESSION = """
import glob, json, os, sys
import pyarrow as pa, pyarrow.parquet as pq
from fsspeckit.datasets.spark import SparkDatasetIO

io = SparkDatasetIO()
path = sys.argv[1] + "/data"
io.write_dataset(pa.table({"id": [1, 2], "v": ["a", "b"]}), path)
result = io.merge(io.read_dataset(path).selectExpr("id + 1 AS id", "v"), path, "upsert", ["id"])
spark = io.jobs.spark
names = ["spark.master", "spark.ui.enabled", "spark.sql.adaptive.enabled",
         "spark.sql.session.timeZone", "spark.sql.shuffle.partitions", "spark.driver.host"]
print(json.dumps({
    "counts": [result.updated, result.inserted],
    "rows": pq.read_table(path).sort_by("id").to_pydict(),
    "conf": [spark.conf.get(name) for name in names],
    "again": SparkDatasetIO().jobs.spark is spark,
    "log": len(glob.glob(os.environ["TMPDIR"] + "/fsspeckit-spark-*/spark.log")),
}))
spark.stop()
"""


def test_without_a_session_a_local_one_is_started_that_is_silent(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    found, beside = run(_NEW_SESSION, tmp_path, TMPDIR=str(tmp_path / "tmp"))
    assert found["counts"] == [1, 1]
    assert found["rows"] == {"id": [1, 2, 3], "v": ["a", "a", "b"]}
    cores = str(len(os.sched_getaffinity(0)))
    assert found["conf"] == [f"local[{cores}]", "false", "true", "UTC", cores, "127.0.0.1"]
    assert found["again"]
    assert beside == ""
    assert found["log"] == 1
    assert not list((tmp_path / "tmp").glob("fsspeckit-*"))


_UNFIT = """
import json, os, sys, time, traceback
import pyarrow as pa
from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits

told = []
for python in ("no-pyarrow", "no-fsspec", "other-version"):
    os.environ["PYSPARK_PYTHON"] = f"{sys.argv[1]}/{python}"
    io = SparkDatasetIO(limits=SparkLimits(driver_max_source_bytes=0))
    try:
        io.merge(pa.table({"id": [1]}), sys.argv[1] + "/data", "upsert", ["id"])
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        told.append([type(error).__name__, str(error), text])
    io.jobs.spark.stop()
told.append(os.listdir(sys.argv[1]))
print(json.dumps(told))
"""

_OTHER_VERSION = """
import runpy, sys

class Version(tuple):
    major, minor = 3, 9

sys.version_info = Version((3, 9, 1, "final", 0))
at = sys.argv.index("-m")
sys.argv = [sys.argv[at + 1], *sys.argv[at + 2 :]]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def _another_python() -> str | None:
    """A Python of another version, if there is one beside this one or on the path."""
    minors = [minor for minor in range(10, 20) if minor != sys.version_info.minor]
    beside = Path(sys.base_prefix).parent
    found = [str(one) for n in minors for one in sorted(beside.glob(f"3.{n}*/bin/python3"))]
    return next(iter([*found, *filter(None, (shutil.which(f"python3.{n}") for n in minors))]), None)


@pytest.fixture
def interpreters(tmp_path: Path) -> Path:
    """Pythons that lack something, and one of another version, or that takes itself for 3.9."""
    only = tmp_path / "only"
    only.mkdir()
    for name in ("pyarrow", "numpy", "numpy.libs", "pandas", "pytz", "dateutil", "six.py"):
        for place in _PLACES:
            if (Path(place) / name).exists():
                (only / name).symlink_to(Path(place) / name)
    (tmp_path / "version.py").write_text(_OTHER_VERSION)
    scripts = {
        "no-pyarrow": f'PYTHONPATH="$SPARKS" exec {sys.executable} -S "$@"',
        "no-fsspec": f'PYTHONPATH="{only}:$SPARKS" exec {sys.executable} -S "$@"',
        "other-version": f'exec {sys.executable} {tmp_path}/version.py "$@"',
    }
    if (other := _another_python()) is not None:
        scripts["other-version"] = f'PYTHONPATH="$SPARKS" exec {other} "$@"'
    # Of what Spark tells its workers to look at, only its own archives.
    keep = 'SPARKS=$(echo "$PYTHONPATH" | tr : "\\n" | grep "\\.zip$" | paste -sd: -)'
    for name, command in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{keep}\n{command}\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def test_workers_that_cannot_work_are_one_clear_error_each(interpreters: Path) -> None:
    (*told, left), beside = run(_UNFIT, interpreters)
    expected = ["no pyarrow", "no fsspec", "another Python than this one"]
    assert [kind for kind, _, _ in told] == ["EngineNotInstalledError"] * 3
    for (_, message, text), words in zip(told, expected, strict=True):
        assert words in message
        assert "\nHint: " in message
        assert len(message.splitlines()) == 2
        assert text.count("Traceback") == 1
        assert "pyspark/worker" not in text
    assert beside == ""
    assert "data" not in left
