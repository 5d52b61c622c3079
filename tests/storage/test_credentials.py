"""Credentials in URLs are in no message and no repr, and containers are no users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

import fsspeckit
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage import open_root, open_storage, passwords_of, without_credentials
from fsspeckit.storage.roots import check_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROWS = pa.table({"id": [1]})

URLS = [
    ("s3://lake/data", "s3://lake/data"),
    ("s3://lake/a@b/data", "s3://lake/a@b/data"),
    ("http://user@host/data", "http://host/data"),
    ("http://user:hush@host:80/data", "http://host:80/data"),
    ("http://user:p@hush@host/data", "http://host/data"),
    ("http://user:p/hush@host/data", "http://host/data"),
    ("http://user:p@s/hush@host/data", "http://host/data"),
    ("http://user:p%40hush%2Fx@host/data", "http://host/data"),
    ("s3://AKIA:abc/hush+x=@lake/data", "s3://lake/data"),
    ("hdfs://host:8020/data@2024", "hdfs://host:8020/data@2024"),
    ("http://[::1]:80/a@b", "http://[::1]:80/a@b"),
    ("abfss://box@account.dfs.core.windows.net/data",) * 2,
    (
        "abfss://box:hush@account.dfs.core.windows.net/data",
        "abfss://account.dfs.core.windows.net/data",
    ),
    ("/home/me@work/data", "/home/me@work/data"),
    ("two: ftp://a:hush@x/y and ftp://b:hush@z/y", "two: ftp://x/y and ftp://z/y"),
]


@pytest.mark.parametrize(("url", "shown"), URLS)
def test_urls_are_shown_without_credentials(url: str, shown: str) -> None:
    assert without_credentials(url) == shown


@pytest.mark.parametrize("password", ["hush", "p@hush", "p%40hush%2F", "p:hush", "hush@"])
def test_no_message_and_no_repr_has_the_password_of_a_url(password: str) -> None:
    url = f"http://user:{password}@127.0.0.1:9/lake/data"
    root = open_root(url)
    assert root.display_path == "http://127.0.0.1:9/lake/data"
    storage_reprs = repr(root) + repr(PyarrowDatasetIO(storage_options={"password": password}))
    with pytest.raises(OSError, match="127") as caught:
        PyarrowDatasetIO().read_dataset(url)
    for text in (storage_reprs, root.to_user_path(f"{root.path}/a.parquet"), str(caught.value)):
        assert "hush" not in text
        assert password not in text


UNCLEAR = ["p/hush", "p@s/hush", "pw/hush@x", "12/hush", "p hush", "p h@hush", "p\nhush"]


@pytest.mark.parametrize("password", [*UNCLEAR, "p#hush", "p?hush", "[hush"])
@pytest.mark.parametrize("scheme", ["http", "s3", "unknown"])
def test_a_password_without_a_clear_end_is_refused_without_showing_it(
    scheme: str, password: str
) -> None:
    with pytest.raises(InvalidArgumentError, match="storage_options") as caught:
        open_root(f"{scheme}://user:{password}@127.0.0.1:9/lake/data")
    assert "hush" not in str(caught.value)


SECRETS = ["AKIA:hush", "AKIA:a@hush", "AKIA:a%2Fhush", ":hush", "hush"]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("scheme", ["s3", "s3a", "gs", "memory", "file", "simplecache::s3"])
def test_credentials_are_refused_where_no_filesystem_takes_them(scheme: str, secret: str) -> None:
    url = f"{scheme}://{secret}@lake/data"
    io = PyarrowDatasetIO()
    calls: list[Callable[[], object]] = [
        lambda: io.merge(ROWS, url, "upsert", ["id"]),
        lambda: io.merge(url, "memory://lake/other", "upsert", ["id"]),
        lambda: io.read_dataset(url),
        lambda: io.plan_merge(ROWS, url, "upsert", ["id"]),
        lambda: fsspeckit.recover(url),
        lambda: fsspeckit.history(url),
        lambda: open_root(url, MemoryFileSystem()),
    ]
    for call in calls:
        with pytest.raises(InvalidArgumentError, match=r"\*@lake/data.*\nHint.*options") as caught:
            call()
        error: BaseException | None = caught.value
        while error is not None:
            assert "hush" not in f"{error!r}{getattr(error, '__notes__', '')}"
            error = error.__cause__ or error.__context__


@pytest.mark.parametrize("url", ["s3://lake/a@b/data", "s3://lake/day=2020-01-01T00:00/x@y"])
def test_an_at_sign_in_a_path_does_not_end_a_password(url: str) -> None:
    check_credentials(url)
    assert without_credentials(url) == url


@pytest.mark.parametrize("url", ["hdfs://host:8020/data@2024", "hdfs://me@host:8020/data"])
def test_a_port_is_not_a_password(url: str) -> None:
    check_credentials(url)
    assert passwords_of(url) == ()


def test_a_control_directory_on_another_filesystem_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    io = PyarrowDatasetIO(control_dir="s3://AKIA:hush@lake/control")
    with pytest.raises(InvalidArgumentError, match="filesystem of the dataset") as caught:
        io.merge(ROWS, str(tmp_path / "data"), "upsert", ["id"])
    assert "hush" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_scheme_that_is_not_known_is_reported_without_the_password() -> None:
    with pytest.raises(InvalidArgumentError, match=r"nowhere://.*@host/x") as caught:
        open_root("nowhere://user:p@hush@host/x")
    assert "hush" not in str(caught.value)


def test_the_forms_of_a_password() -> None:
    assert set(passwords_of("ftp://me:p%40ss@host/x")) == {"p%40ss", "p@ss"}
    assert set(passwords_of("ftp://me:p@ss@host/x")) == {"p%40ss", "p@ss"}
    assert passwords_of("hdfs://host:8020/x@y") == ()
    assert passwords_of("s3://lake/x") == ()


class AzureLike(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """In memory, with the paths of adlfs: the container first, the account nowhere."""

    protocol = ("abfs", "az", "abfss")
    store: ClassVar[dict[str, Any]] = {}
    root_marker = ""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped = path.removeprefix("abfs://")
        if stripped != path:
            host, _, rest = stripped.partition("/")
            stripped = f"{host.partition('@')[0]}/{rest}"
        return stripped.strip("/")


@pytest.fixture
def azure() -> Iterator[str]:
    """A URL of a dataset, with its container and its account."""
    fsspec.register_implementation("abfs", AzureLike, clobber=True)
    yield "abfss://box@account.dfs.core.windows.net/lake/data"
    _registry.pop("abfs")


def test_the_container_of_an_azure_url_is_kept(azure: str) -> None:
    root = open_root(azure)
    assert root.path == "box/lake/data"
    assert root.display_path == azure
    assert root.to_user_path(f"{root.path}/p=1/a.parquet") == f"{azure}/p=1/a.parquet"
    assert root.canonical(f"{azure}/a.parquet") == f"{root.path}/a.parquet"
    assert open_storage(azure).control.path == "box/lake/.data.fsspeckit"
