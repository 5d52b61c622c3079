"""Every spelling of an object store's URL is one root, and messages keep the user's spelling."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import InvalidArgumentError, LibraryNotInstalledError
from fsspeckit.storage import open_root, open_storage
from fsspeckit.storage.schemes import canonical_scheme, canonical_url
from fsspeckit.testing.object_stores import moto

if TYPE_CHECKING:
    from collections.abc import Iterator

AZURE = [
    "abfss://box@account.dfs.core.windows.net/lake/data",
    "abfs://box@account.blob.core.windows.net/lake/data/",
    "ABFSS://box@account.dfs.core.windows.net/lake/data",
    "abfss://box@account/lake/data",
    "az://box/lake/data",
    "abfs://box/lake/data",
    "AZ://box/lake/data",
]
GCS = ["gs://box/lake/data", "gcs://box/lake/data", "GS://box/lake/data/"]
S3_SCHEMES = ["s3", "s3a", "s3n", "S3", "S3A"]


class StoreInMemory(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """In memory, with the schemes and the options of a store's library, and paths as it has."""

    store: ClassVar[dict[str, Any]] = {}
    root_marker = ""

    def __init__(self, account_key: str = "", account_name: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.account_name = account_name
        self.account_host = options.get("account_host")

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        for protocol in cls.protocol:
            path = path.removeprefix(f"{protocol}://")
        assert ":" not in path, path
        return path.strip("/")


class Azure(StoreInMemory):
    protocol = ("abfs", "az", "abfss")


class Google(StoreInMemory):
    protocol = ("gs", "gcs")


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The schemes of Azure and Google, in memory."""
    for kind in (Azure, Google):
        for protocol in kind.protocol:
            monkeypatch.setitem(_registry, protocol, kind)
    yield
    StoreInMemory.store.clear()


def azure_options(url: str) -> dict[str, str]:
    """The account is in the URL or in the options, which come in any order."""
    return {"account_key": "key"} | ({} if "@" in url else {"account_name": "account"})


@pytest.mark.usefixtures("stores")
@pytest.mark.parametrize("urls", [AZURE, GCS], ids=["azure", "gcs"])
def test_every_spelling_of_a_store_is_one_root(urls: list[str]) -> None:
    first = open_storage(urls[0], storage_options=azure_options(urls[0]))
    for url in urls:
        storage = open_storage(url, storage_options=azure_options(url))
        assert storage.root == first.root
        assert storage.root.filesystem is first.root.filesystem
        assert storage.control.path == "box/lake/.data.fsspeckit"
        assert storage.root.display_path == url.rstrip("/")
        for other in urls:
            assert storage.root.canonical(f"{other.rstrip('/')}/a") == "box/lake/data/a"
            found = open_root(other, storage.root.filesystem)
            assert found.path == storage.root.path


@pytest.mark.usefixtures("stores")
@pytest.mark.parametrize("url", AZURE)
def test_the_account_reaches_the_filesystem(url: str) -> None:
    root = open_root(url, storage_options=azure_options(url))
    assert root.filesystem.account_name == "account"
    assert root.filesystem.account_host is None


@pytest.mark.usefixtures("stores")
def test_an_account_of_another_cloud_reaches_the_filesystem_with_its_host() -> None:
    url = "abfss://box@account.dfs.core.chinacloudapi.cn/lake"
    root = open_root(url, storage_options={"account_key": "key"})
    assert root.filesystem.account_name == "account"
    assert root.filesystem.account_host == "account.blob.core.chinacloudapi.cn"
    assert root.display_path == url


@pytest.mark.usefixtures("stores")
def test_two_accounts_for_one_url_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'account', but account_name .* is 'other'"):
        open_root(AZURE[0], storage_options={"account_name": "other", "account_key": "hush"})


def test_every_spelling_of_a_bucket_is_one_dataset() -> None:
    bucket = moto().make_bucket()
    roots = []
    for number, scheme in enumerate(S3_SCHEMES, 1):
        url = f"{scheme}://{bucket}/lake/data"
        control = f"{S3_SCHEMES[-number]}://{bucket}/lake/control"
        with PyarrowDatasetIO(storage_options=moto().options, control_dir=control) as io:
            io.merge(pa.table({"id": [number]}), url, "upsert", ["id"])
            assert len(io.read_dataset(url)) == number
        roots.append(open_root(url, storage_options=moto().options))
        assert roots[-1].display_path == url
    assert all(root == roots[0] and root.filesystem is roots[0].filesystem for root in roots)


def test_a_source_of_another_spelling_has_the_options_of_the_target() -> None:
    bucket = moto().make_bucket()
    with PyarrowDatasetIO(storage_options=moto().options) as io:
        io.write_dataset(pa.table({"id": [1]}), f"s3://{bucket}/source")
        result = io.merge(f"S3N://{bucket}/source", f"s3a://{bucket}/target", "upsert", ["id"])
    assert result.inserted == 1


def test_messages_keep_the_spelling_of_the_user() -> None:
    bucket = moto().make_bucket()
    with (
        PyarrowDatasetIO(storage_options=moto().options) as io,
        pytest.raises(FileNotFoundError, match=f"S3N://{bucket}/nothing"),
    ):
        io.read_dataset(f"S3N://{bucket}/nothing")


@pytest.mark.parametrize(
    ("url", "module"),
    [
        *((url, "gcsfs") for url in GCS),
        *((url, "adlfs") for url in AZURE),
        ("S3A://bucket/data", "s3fs"),
    ],
)
def test_a_library_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, module: str
) -> None:
    for protocol in ("s3", "gs", "abfs"):
        monkeypatch.delitem(_registry, protocol, raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(LibraryNotInstalledError, match=f"pip install {module}") as caught:
        open_root(url)
    assert repr(url) in str(caught.value)


def test_a_library_of_another_scheme_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(_registry, "sftp", raising=False)
    monkeypatch.setitem(sys.modules, "paramiko", None)
    with pytest.raises(LibraryNotInstalledError, match="paramiko"):
        open_root("sftp://host/data")


@pytest.mark.parametrize(
    ("scheme", "canonical"),
    [("S3N", "s3"), ("MEMORY", "memory"), ("webhdfs", "webhdfs"), ("HDFS", "hdfs"), ("x", "x")],
)
def test_schemes(scheme: str, canonical: str) -> None:
    assert canonical_scheme(scheme) == canonical


def test_only_the_scheme_changes() -> None:
    assert canonical_url("S3A://Bucket/S3A://x") == "s3://Bucket/S3A://x"
    assert canonical_url("/disk/S3A://x") == "/disk/S3A://x"
    assert canonical_url("simplecache::S3://x") == "simplecache::S3://x"


@pytest.mark.parametrize("url", ["s3://bucket/lake", "S3A://bucket/lake", "memory://lake"])
def test_a_url_that_has_lost_a_slash_is_not_a_local_path(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with PyarrowDatasetIO() as io:
        paths: list[Any] = [Path(url), str(Path(url))]
        for path in paths:
            with pytest.raises(InvalidArgumentError, match=f"one slash .*\nHint: write {url}, as"):
                io.merge(pa.table({"id": [1]}), path, "upsert", ["id"])
    assert list(tmp_path.iterdir()) == []


def test_local_paths_with_a_colon(tmp_path: Path) -> None:
    for name in ("s3:data", "at 10:/data", "./s3:/data"):
        root = open_root(f"{tmp_path}/{name}")
        assert root.is_local


def test_upper_case_of_other_schemes() -> None:
    root = open_root("MEMORY://upper/case")
    assert root.path == "/upper/case"
    assert isinstance(root.filesystem, fsspec.get_filesystem_class("memory"))
