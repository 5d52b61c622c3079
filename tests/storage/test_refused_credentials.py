"""Credentials that a store refuses: the error says what is wrong, where, and what to grant."""

from __future__ import annotations

import json
import re
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import CommitPendingError, InvalidArgumentError
from fsspeckit.testing.conformance.stores import object_store
from fsspeckit.testing.object_stores import Moto, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

pytestmark = pytest.mark.slow
EVERY = ("s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject")
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "s3.md"
PATH = "lake/orders"


@pytest.fixture(params=["moto", "minio"])
def server(request: pytest.FixtureRequest) -> ObjectStore:
    return object_store(request.param)


@pytest.fixture
def url(server: ObjectStore) -> str:
    """A dataset of one file."""
    url = f"s3://{server.make_bucket()}/{PATH}"
    with PyarrowDatasetIO(storage_options=server.options) as io:
        io.write_dataset(pa.table({"id": [1, 2]}), url)
    return url


def allowing(*actions: str) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": "arn:aws:s3:::*"}
    return {"Version": "2012-10-17", "Statement": [statement]}


@contextmanager
def granted(server: ObjectStore, policy: dict[str, Any]) -> Iterator[Mapping[str, str]]:
    """Credentials that the store itself limits, by a policy."""
    if not isinstance(server, Moto):
        answer = server.client("sts").assume_role(
            RoleArn="arn:aws:iam::000000000000:role/limited",
            RoleSessionName="limited",
            Policy=json.dumps(policy),
        )["Credentials"]
        token = answer["SessionToken"]
        yield {"key": answer["AccessKeyId"], "secret": answer["SecretAccessKey"], "token": token}
        return
    iam = server.client("iam")
    user = f"user-{id(policy)}"
    iam.create_user(UserName=user)
    answer = iam.create_access_key(UserName=user)["AccessKey"]
    iam.put_user_policy(UserName=user, PolicyName="it", PolicyDocument=json.dumps(policy))
    enforce(server, "0")
    try:
        yield {"key": answer["AccessKeyId"], "secret": answer["SecretAccessKey"]}
    finally:
        enforce(server, "inf")


def enforce(server: ObjectStore, free_requests: str) -> None:
    """Let moto check keys, signatures and policies after some requests."""
    address = f"{server.url}/moto-api/reset-auth"
    as_text = {"Content-Type": "text/plain"}
    question = urllib.request.Request(address, free_requests.encode(), as_text)
    with urllib.request.urlopen(question, timeout=10):
        pass


def merge(
    server: ObjectStore, url: str, credentials: Mapping[str, str], ids: Sequence[int] = (2, 3)
) -> Any:
    with PyarrowDatasetIO(storage_options=server.opened_with(credentials)) as io:
        return io.merge(pa.table({"id": ids}), url, "upsert", ["id"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"key": "AKIAHUSHHUSHHUSHHUSH"}, "the store does not know the access key"),
        ({"secret": "hush" * 10}, "the secret is not that of the access key"),
    ],
)
def test_wrong_credentials_need_no_permission(
    server: ObjectStore, url: str, change: dict[str, str], reason: str
) -> None:
    with granted(server, allowing("s3:*")) as credentials:
        given = {name: text for name, text in credentials.items() if name != "token"}
        given = {**(credentials if "secret" in change else given), **change}
        with pytest.raises(PermissionError, match=reason) as caught:
            merge(server, url, given)
    text = str(caught.value)
    assert url.rpartition("/")[0] in text
    assert "permission" not in text
    assert "HUSH" not in text.upper()


def test_a_token_of_another_session() -> None:
    server = object_store("minio")
    url = f"s3://{server.make_bucket()}/{PATH}"
    with (
        granted(server, allowing("s3:*")) as credentials,
        pytest.raises(PermissionError, match="the session token is not valid") as caught,
    ):
        merge(server, url, {**credentials, "token": "hush"})
    assert "hush" not in str(caught.value)


def test_no_credentials_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server = object_store("moto")
    url = f"s3://{server.make_bucket()}/{PATH}"
    with pytest.raises(PermissionError, match=r"no credentials were found.*\nHint: set them"):
        merge(server, url, {})


@pytest.mark.parametrize("kind", ["moto", "minio", "azurite", "fake-gcs"])
def test_a_bucket_that_is_not_there_is_named(kind: str) -> None:
    server = object_store(kind)
    with (
        PyarrowDatasetIO(storage_options=server.options) as io,
        pytest.raises(
            FileNotFoundError, match=r"there is no (bucket|container) 'no-such-lake'"
        ) as caught,
    ):
        io.merge(pa.table({"id": [1]}), server.at("no-such-lake", PATH), "upsert", ["id"])
    assert "\nHint: check its name, and the endpoint or account" in str(caught.value)


def test_a_store_that_cannot_be_reached() -> None:
    address = {"endpoint_url": "http://127.0.0.1:9", "region_name": "us-east-1"}
    options = {"key": "key", "secret": "hush", "client_kwargs": address}
    with (
        PyarrowDatasetIO(storage_options=options) as io,
        pytest.raises(OSError, match=r"127\.0\.0\.1:9.*\nHint: check the network, and the endp"),
    ):
        io.read_dataset("s3://bucket/lake")


def test_an_option_that_the_library_does_not_know() -> None:
    server = object_store("moto")
    with (
        PyarrowDatasetIO(storage_options={**server.options, "access_key": "hush"}) as io,
        pytest.raises(InvalidArgumentError, match="'access_key', which s3fs does not know"),
    ):
        io.read_dataset("s3://bucket/lake")


def test_an_endpoint_without_a_scheme() -> None:
    options = {"key": "key", "secret": "hush", "endpoint_url": "minio.example.org:9000"}
    with (
        PyarrowDatasetIO(storage_options=options) as io,
        pytest.raises(InvalidArgumentError, match=r"minio.*\nHint: an endpoint begins with https"),
    ):
        io.read_dataset("s3://bucket/lake")


def test_an_account_of_azure_that_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONNECTION_STRING", "ACCOUNT_NAME", "ACCOUNT_KEY"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    with (
        PyarrowDatasetIO() as io,
        pytest.raises(InvalidArgumentError, match="\nHint: pass account_name and a credential"),
    ):
        io.read_dataset("az://box/lake")


@pytest.mark.parametrize("missing", EVERY)
def test_a_missing_permission_is_named(server: ObjectStore, url: str, missing: str) -> None:
    if isinstance(server, Moto) and missing == "s3:DeleteObject":
        pytest.skip("moto does not ask for it where many objects are deleted at once")
    rest = [action for action in EVERY if action != missing]
    # What is committed stays so: only the removal of the old file is left.
    kind = CommitPendingError if missing == "s3:DeleteObject" else PermissionError
    with (
        granted(server, allowing(*rest)) as credentials,
        pytest.raises(kind, match=f"it needs the permission {missing}") as caught,
    ):
        merge(server, url, credentials)
    assert url.rpartition("/")[0] in str(caught.value)
    assert "None" not in str(caught.value)


@pytest.mark.parametrize("server", ["minio"], indirect=True)
def test_after_a_permission_is_granted_the_commit_is_completed(
    server: ObjectStore, url: str
) -> None:
    with (
        granted(server, allowing(*EVERY[:3])) as credentials,
        pytest.raises(CommitPendingError),
    ):
        merge(server, url, credentials)
    with granted(server, allowing(*EVERY)) as credentials:
        assert merge(server, url, credentials).inserted == 0
        with PyarrowDatasetIO(storage_options=server.opened_with(credentials)) as io:
            assert sorted(io.read_dataset(url)["id"].to_pylist()) == [1, 2, 3]


def test_the_policy_of_the_guide_is_enough() -> None:
    """And no less is: without any one of its actions a merge is refused, or not completed.

    All but s3:AbortMultipartUpload, which only uploads of large files need, when they fail.
    """
    server = object_store("minio")
    url = f"s3://{server.make_bucket()}/{PATH}"
    shown = re.search(r"```json\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    bucket = url.split("/")[2]
    policy = json.loads(shown[1].replace("arn:aws:s3:::bucket", f"arn:aws:s3:::{bucket}"))
    with granted(server, policy) as credentials:
        assert merge(server, url, credentials).inserted == 2
        assert merge(server, url, credentials).inserted == 0
        with pytest.raises(PermissionError, match="s3:ListBucket"):
            merge(server, f"s3://{bucket}/lake/others", credentials)
    for number, action in enumerate(EVERY):
        with (
            granted(server, without(action, policy)) as credentials,
            pytest.raises((PermissionError, CommitPendingError), match=action),
        ):
            merge(server, url, credentials, [100 + number])


def without(action: str, policy: dict[str, Any]) -> dict[str, Any]:
    """The policy with an action less."""
    statements = [
        {**statement, "Action": [one for one in statement["Action"] if one != action]}
        for statement in policy["Statement"]
    ]
    return {**policy, "Statement": [one for one in statements if one["Action"]]}
