"""Settings of Hadoop's S3A as storage options: what each becomes, and that no message has a key."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import fsspeckit
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage import open_root
from fsspeckit.storage.hadoop_options import from_hadoop_options
from fsspeckit.testing.object_stores import KEY, REGION, SECRET, moto

SIMPLE = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
TEMPORARY = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
PROFILE = "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"
KEYS = {"access.key": "a", "secret.key": "s"}
THEIRS = {"key": "a", "secret": "s"}


def translated(settings: dict[str, Any], **own: Any) -> dict[str, Any]:
    named = {f"fs.s3a.{name}": value for name, value in settings.items()}
    return from_hadoop_options({**named, **own}, "lake")


CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (KEYS, THEIRS),
    ({**KEYS, "session.token": "t"}, {**THEIRS, "token": "t"}),
    ({"endpoint": "http://host:9000"}, {"client_kwargs": {"endpoint_url": "http://host:9000"}}),
    ({"endpoint": "host"}, {"client_kwargs": {"endpoint_url": "https://host"}}),
    (
        {"endpoint": "host", "connection.ssl.enabled": "FALSE"},
        {"client_kwargs": {"endpoint_url": "http://host"}},
    ),
    ({"endpoint": "s3.amazonaws.com"}, {}),
    ({"endpoint": ""}, {}),
    ({"access.key": "a", "session.token": "t"}, {}),
    ({"endpoint.region": "eu-west-1"}, {"client_kwargs": {"region_name": "eu-west-1"}}),
    ({"path.style.access": "true"}, {"config_kwargs": {"s3": {"addressing_style": "path"}}}),
    ({"path.style.access": False}, {}),
    ({"requester.pays.enabled": "true"}, {"requester_pays": True}),
    ({"aws.credentials.provider": ANONYMOUS}, {"anon": True}),
    ({"aws.credentials.provider": f"{SIMPLE},\n{ANONYMOUS}"}, {"anon": True}),
    ({**KEYS, "aws.credentials.provider": f"{TEMPORARY}, {SIMPLE}, {ANONYMOUS}"}, THEIRS),
    ({**KEYS, "aws.credentials.provider": PROFILE}, {}),
    ({"aws.credentials.provider": f"{PROFILE},{ANONYMOUS}"}, {}),
    (
        {"encryption.algorithm": "SSE-KMS", "encryption.key": "arn"},
        {"s3_additional_kwargs": {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "arn"}},
    ),
    (
        {"server-side-encryption-algorithm": "AES256"},
        {"s3_additional_kwargs": {"ServerSideEncryption": "AES256"}},
    ),
    ({"connection.maximum": "96", "bucket.other.access.key": "x"}, {}),
    (
        {**KEYS, "bucket.lake.access.key": "b", "bucket.other.secret.key": "x"},
        {**THEIRS, "key": "b"},
    ),
]


@pytest.mark.parametrize(("settings", "expected"), CASES)
@pytest.mark.parametrize("prefix", ["", "spark.hadoop."])
def test_settings(settings: dict[str, Any], expected: dict[str, Any], prefix: str) -> None:
    named = {f"{prefix}fs.s3a.{name}": value for name, value in settings.items()}
    assert from_hadoop_options(named, "lake") == expected


def test_names_of_s3fs_win() -> None:
    own = {"client_kwargs": {"endpoint_url": "https://mine"}, "use_ssl": True}
    settings = {**KEYS, "endpoint": "http://host", "endpoint.region": "here"}
    assert translated(settings, **own) == {
        **THEIRS,
        "client_kwargs": {"endpoint_url": "https://mine", "region_name": "here"},
        "use_ssl": True,
    }


@pytest.mark.parametrize("own", [{"profile": "lake"}, {"anon": True}, {"key": "k", "secret": "z"}])
def test_credentials_of_two_users_are_not_mixed(own: dict[str, Any]) -> None:
    assert translated({**KEYS, "session.token": "t"}, **own) == own


def test_other_filesystems_are_opened_without_them(tmp_path: Any) -> None:
    options = {"fs.s3a.access.key": "a", "skip_instance_cache": True}
    assert from_hadoop_options(options, "") == {"skip_instance_cache": True}
    assert open_root(f"file://{tmp_path}", storage_options=options).is_local
    assert open_root("memory://lake", storage_options=options).protocol == "memory"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"path.style.access": "perhaps"},
            "path.style.access must be true or false, got 'perhaps'",
        ),
        ({"encryption.algorithm": "SSE-C", "encryption.key": "hush"}, "'SSE-C', which is not"),
    ],
)
def test_settings_that_cannot_be_followed(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        translated({"access.key": "hush", "secret.key": "hush", **settings})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("engine", ["pyarrow", "duckdb"])
def test_a_merge_with_settings_of_hadoop(engine: str) -> None:
    bucket = moto().make_bucket()
    options = {
        "fs.s3a.access.key": "wrong",
        "fs.s3a.secret.key": SECRET,
        f"spark.hadoop.fs.s3a.bucket.{bucket}.access.key": KEY,
        "fs.s3a.endpoint": moto().url.removeprefix("http://"),
        "fs.s3a.endpoint.region": REGION,
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.path.style.access": "true",
    }
    url = f"s3a://{bucket}/lake/data"
    result = fsspeckit.merge(
        pa.table({"id": [1]}), url, "upsert", ["id"], engine=engine, storage_options=options
    )
    assert result.inserted == 1
    filesystem = open_root(url, storage_options=options).filesystem
    assert (filesystem.key, filesystem.secret) == (KEY, SECRET)
    assert len(fsspeckit.read_dataset(url, engine="pyarrow", storage_options=options)) == 1
