"""moto, the stand-in for S3: it has to be as strict as S3 where tests rely on it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from moto.s3.models import S3Backend

from fsspeckit.testing.object_stores import moto

if TYPE_CHECKING:
    import pytest


def test_of_puts_that_must_create_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = S3Backend.put_object

    def slowly(*arguments: Any, **options: Any) -> Any:
        time.sleep(0.05)
        return stored(*arguments, **options)

    monkeypatch.setattr(S3Backend, "put_object", slowly)
    client, bucket = moto().client(), moto().make_bucket()

    def create(body: bytes) -> str:
        try:
            client.put_object(Bucket=bucket, Key="record", Body=body, IfNoneMatch="*")
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return "created"

    with ThreadPoolExecutor(4) as threads:
        outcomes = list(threads.map(create, [b"0", b"1", b"2", b"3"]))
    winner = b"%d" % outcomes.index("created")
    assert sorted(outcomes) == ["PreconditionFailed"] * 3 + ["created"]
    assert client.get_object(Bucket=bucket, Key="record")["Body"].read() == winner
