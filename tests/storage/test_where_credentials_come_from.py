"""Environment, profiles and short-lived tokens reach the store, without any storage options."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow as pa
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.testing.object_stores import KEY, REGION, SECRET, moto, refusal
from fsspeckit.testing.rule_server import RuleServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from werkzeug.wrappers import Request, Response

    from fsspeckit.testing.object_stores import Answer

pytestmark = pytest.mark.slow
ROWS = pa.table({"id": [1, 2]})
LIFE_SECONDS = 2.0

PROCESS = """
import datetime, json, time
end = time.time() + {life}
when = datetime.datetime.fromtimestamp(end, datetime.timezone.utc).isoformat()
print(json.dumps(dict(Version=1, AccessKeyId="{key}", SecretAccessKey="{secret}",
                      SessionToken=f"until-{{end}}", Expiration=when)))
"""


class Watch:
    """Writes down with which key and token requests come, and refuses tokens that have expired."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.keys: set[str] = set()
        self.tokens: set[str] = set()
        self._seconds = seconds

    def __call__(self, request: Request, answer: Answer) -> Response:
        time.sleep(self._seconds)
        signed = request.headers.get("Authorization", "").partition("Credential=")[2]
        token = request.headers.get("X-Amz-Security-Token", "")
        self.keys.add(signed.partition("/")[0])
        self.tokens.add(token)
        if token.startswith("until-") and time.time() > float(token.removeprefix("until-")):
            return refusal(400, "ExpiredToken", "The provided token has expired.")
        return answer()


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A bucket, in a process whose environment knows its endpoint only."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto().url)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    yield f"s3://{moto().make_bucket()}/lake/data"
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def merged(url: str, watch: Watch, **options: Any) -> int:
    # fsspec remembers filesystems by their options, and here the environment differs.
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    bucket = url.split("/")[2]

    def watched(request: Request, answer: Answer) -> Response:
        # What earlier tests have begun may still be on its way to their own buckets.
        return watch(request, answer) if bucket in request.path else answer()

    with moto().following(watched), PyarrowDatasetIO(storage_options=options) as io:
        return io.merge(ROWS, url, "upsert", ["id"]).inserted


def test_variables(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-of-environment")
    watch = Watch()
    assert merged(url, watch) == 2
    assert watch.keys == {"from-environment"}
    assert watch.tokens == {"token-of-environment"}


@pytest.mark.parametrize("by", ["variable", "option"])
def test_a_profile(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by: str) -> None:
    (tmp_path / "credentials").write_text(
        f"[default]\naws_access_key_id=other\naws_secret_access_key={SECRET}\n"
        f"[lake]\naws_access_key_id=of-profile\naws_secret_access_key={SECRET}\n"
    )
    options = {"profile": "lake"} if by == "option" else {}
    if by == "variable":
        monkeypatch.setenv("AWS_PROFILE", "lake")
    watch = Watch()
    assert merged(url, watch, **options) == 2
    assert watch.keys == {"of-profile"}


def test_an_endpoint_of_a_profile(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    (tmp_path / "config").write_text(
        f"[profile lake]\nendpoint_url={moto().url}\nregion={REGION}\n"
        f"aws_access_key_id=of-profile\naws_secret_access_key={SECRET}\n"
    )
    watch = Watch()
    assert merged(url, watch, profile="lake") == 2
    assert watch.keys == {"of-profile"}


@pytest.fixture
def role(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A service that gives out the keys of a role, as machines and containers have one."""

    def answer(request: Request) -> Response:
        from werkzeug.wrappers import Response

        if request.path == "/latest/api/token":
            return Response("token-of-service")
        if request.path == "/latest/meta-data/iam/security-credentials/":
            return Response("writer")
        end = datetime.now(UTC) + timedelta(hours=1)
        keys = {"AccessKeyId": "of-role", "SecretAccessKey": SECRET, "Token": "token-of-role"}
        given = {"Code": "Success", **keys, "Expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ")}
        return Response(json.dumps(given), content_type="application/json")

    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)
    server = RuleServer(answer)
    yield server.url
    server.stop()


@pytest.mark.parametrize(
    ("variable", "place"),
    [
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "/"),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "/keys"),
    ],
    ids=["instance", "container"],
)
def test_a_role(
    url: str, role: str, monkeypatch: pytest.MonkeyPatch, variable: str, place: str
) -> None:
    monkeypatch.setenv(variable, f"{role}{place}")
    watch = Watch()
    assert merged(url, watch) == 2
    assert watch.keys == {"of-role"}
    assert watch.tokens == {"token-of-role"}


def test_the_role_of_a_pod(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "identity").write_text("signed by the cluster")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "identity"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/writer")
    watch = Watch()
    assert merged(url, watch) == 2
    # The request that exchanges the token is not signed.
    assert len(watch.keys - {""}) == len(watch.tokens - {""}) == 1


def test_a_token_that_expires_in_the_middle_of_a_merge_is_renewed(url: str, tmp_path: Path) -> None:
    program = tmp_path / "process.py"
    program.write_text(PROCESS.format(life=LIFE_SECONDS, key=KEY, secret=SECRET))
    command = f"{sys.executable} -S -E {program}"
    (tmp_path / "config").write_text(f"[profile lake]\ncredential_process = {command}\n")
    watch = Watch(seconds=0.2)
    start = time.monotonic()
    assert merged(url, watch, profile="lake") == 2
    assert time.monotonic() - start > LIFE_SECONDS
    assert len(watch.tokens) > 1


def test_a_token_that_nobody_renews_is_reported_as_expired(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", f"until-{time.time() - 1}")
    with pytest.raises(PermissionError, match=r"the credentials have expired.*\nHint: renew them"):
        merged(url, Watch())
