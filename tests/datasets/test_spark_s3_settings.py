"""A session's settings of S3A open datasets on S3, without hadoop-aws: workers use fsspec."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.datasets.spark_cluster import connect_process

import fsspeckit
from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage import open_root
from fsspeckit.testing.object_stores import KEY, SECRET, moto

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]
IN_TASKS = SparkLimits(driver_max_files=0)


@pytest.fixture(autouse=True)
def no_other_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def settings(bucket: str) -> dict[str, str]:
    return {
        "fs.s3a.access.key": "wrong",
        "fs.s3a.secret.key": SECRET,
        "fs.s3a.endpoint": moto().url,
        "fs.s3a.path.style.access": "true",
        f"fs.s3a.bucket.{bucket}.access.key": KEY,
    }


@contextmanager
def configured(session: Any, values: dict[str, str]) -> Iterator[None]:
    """Settings of one session, as ``spark.conf.set`` leaves them."""
    for name, value in values.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in values:
            session.conf.unset(name)


def merged(session: Any, bucket: str, source: Path) -> None:
    """Merge rows, and a source that is on S3, too, then read."""
    pq.write_table(pa.table({"id": [2, 3]}), str(source))
    path = f"s3a://{bucket}/lake/data"
    io = SparkDatasetIO(session, limits=IN_TASKS)
    io.merge(session.createDataFrame([(1,), (2,)], "id long"), path, "upsert", ["id"])
    io.write_dataset(str(source), f"s3://{bucket}/source")
    result = io.merge(f"S3://{bucket}/source", path, "upsert", ["id"])
    assert result.inserted == 1
    assert sorted(row.id for row in io.read_dataset(path).collect()) == [1, 2, 3]
    found = fsspeckit.read_dataset(path, engine="pyarrow", storage_options=moto().options)
    assert sorted(found.column("id").to_pylist()) == [1, 2, 3]


def test_settings_of_a_classic_session(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark.sparkContext._jvm
    with pytest.raises(Exception, match="ClassNotFoundException"):
        jvm.java.lang.Class.forName("org.apache.hadoop.fs.s3a.S3AFileSystem")
    bucket = moto().make_bucket()
    with configured(spark, settings(bucket)):
        merged(spark, bucket, tmp_path / "source.parquet")


def test_settings_of_the_context(spark: SparkSession, tmp_path: Path) -> None:
    """What is in ``spark.hadoop.*`` when a session starts is in this configuration."""
    bucket = moto().make_bucket()
    context: Any = spark.sparkContext
    configuration = context._jsc.hadoopConfiguration()
    for name, value in settings(bucket).items():
        configuration.set(name, value)
    try:
        merged(spark, bucket, tmp_path / "source.parquet")
    finally:
        for name in settings(bucket):
            configuration.unset(name)


def test_settings_of_a_connect_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It hides what may be secret: client and workers have their keys from the environment."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    bucket = moto().make_bucket()
    given = {f"spark.hadoop.{name}": value for name, value in settings(bucket).items()}
    with connect_process(tmp_path, given) as (url, _):
        session: Any = ConnectSession.builder.remote(url).create()
        assert not [name for name in session.conf.getAll if name.endswith(".key")]
        merged(session, bucket, tmp_path / "source.parquet")
        session.client.close()


def test_storage_options_win(spark: SparkSession) -> None:
    bucket = moto().make_bucket()
    path = f"s3a://{bucket}/lake/data"
    with configured(spark, {"fs.s3a.access.key": "wrong", "fs.s3a.endpoint": "http://nowhere"}):
        io = SparkDatasetIO(spark, storage_options=moto().options)
        rows = spark.createDataFrame([(1,)], "id long")
        assert io.merge(rows, path, "upsert", ["id"]).inserted == 1


def test_no_message_has_a_setting(spark: SparkSession) -> None:
    bucket = moto().make_bucket()
    secret = "hush-" * 8
    given = {**settings(bucket), "fs.s3a.secret.key": secret}
    with configured(spark, {**given, "fs.s3a.path.style.access": "perhaps"}):
        with pytest.raises(InvalidArgumentError, match="must be true or false") as caught:
            SparkDatasetIO(spark).read_dataset(f"s3a://{bucket}/lake/data")
        assert "hush" not in str(caught.value)
    assert "hush" not in repr(open_root(f"s3a://{bucket}/x", storage_options=given))


def test_a_path_of_another_kind_needs_no_settings(spark: SparkSession, tmp_path: Path) -> None:
    with configured(spark, {"fs.s3a.path.style.access": "perhaps"}):
        io = SparkDatasetIO(spark)
        rows = spark.createDataFrame([(1,)], "id long")
        assert io.merge(rows, str(tmp_path / "data"), "upsert", ["id"]).inserted == 1
