"""Spark on S3 with hadoop-aws on its class path and without it: merges give the same rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fsspeckit.testing.conformance.stores import TORTURE, object_store
from fsspeckit.testing.object_stores import (
    HADOOP_AWS_VERSION,
    KEY,
    REGION,
    SECRET,
    hadoop_aws_jars,
)

if TYPE_CHECKING:
    from fsspeckit.testing.object_stores import ObjectStore

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.skipif(not TORTURE, reason="starts Spark twice; see make test-spark-s3"),
]
NEW = (3, 25, 100)
ROWS = sorted([key, "new" if key in NEW else "old"] for key in {*range(40), *NEW})


def settings(server: ObjectStore) -> dict[str, str]:
    named = {
        "access.key": KEY,
        "secret.key": SECRET,
        "endpoint": server.url,
        "endpoint.region": REGION,
        "path.style.access": "true",
    }
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in named.items()}


@cache
def on_minio(*, hadoop_aws: bool) -> dict[str, Any]:
    """What a session of its own has merged and read."""
    server = object_store("minio")
    given = settings(server)
    if hadoop_aws:
        jars = hadoop_aws_jars()
        assert jars.exists(), f"{jars} is missing. Hint: run 'make hadoop-aws'."
        given["spark.driver.extraClassPath"] = f"{jars}/*"
    request = {"path": f"s3a://{server.make_bucket()}/lake", "settings": given}
    # What it knows of the store, it knows from the settings of the session.
    environment = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.datasets.spark_on_s3"],
        input=json.dumps(request),
        cwd=Path(__file__).parents[2],
        env={**environment, "AWS_EC2_METADATA_DISABLED": "true", "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("way", ["driver", "tasks"])
@pytest.mark.parametrize("hadoop_aws", [False, True], ids=["without", "with"])
def test_a_merge_gives_the_same_rows(way: str, hadoop_aws: bool) -> None:
    found = on_minio(hadoop_aws=hadoop_aws)[way]
    assert found["ours"] == ROWS
    assert (found["updated"], found["inserted"]) == (2, 1)


@pytest.mark.parametrize("way", ["driver", "tasks"])
def test_spark_itself_reads_the_result_with_hadoop_aws(way: str) -> None:
    assert on_minio(hadoop_aws=True)[way]["spark"] == ROWS


@pytest.mark.parametrize("way", ["driver", "tasks"])
def test_without_it_spark_has_no_filesystem_for_s3a(way: str) -> None:
    """Else the cases without it would prove nothing."""
    assert "S3AFileSystem not found" in on_minio(hadoop_aws=False)[way]["spark"]


def test_the_jars_are_of_the_hadoop_of_pyspark() -> None:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    jars = Path(spec.origin).parent / "jars"
    assert (jars / f"hadoop-client-api-{HADOOP_AWS_VERSION}.jar").exists()
