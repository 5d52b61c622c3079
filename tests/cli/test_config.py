"""Settings: where storage options come from, which one wins, and that secrets stay secret."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from fsspeckit.cli import config
from fsspeckit.cli.config import hide, load_settings
from fsspeckit.storage.history import history

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Run

FILE = """
engine = "pyarrow"
[storage.s3]
endpoint_url = "https://file.example"
region = "file"
secret = "hunter2hunter2"
[storage.memory]
odd = 1
"""


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "_secrets", set())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.toml"
    path.write_text(FILE)
    return path


def test_the_file_is_for_one_kind_of_url(file: Path) -> None:
    settings = load_settings((), file)
    assert settings.storage_options("s3://bucket/x")["region"] == "file"
    assert settings.storage_options("memory://x") == {"odd": 1}
    assert settings.storage_options("x/y") == {}


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSSPECKIT_STORAGE_OPTIONS", '{"region": "variable", "key": "variable"}')
    found = load_settings(["key=option"], file).storage_options("s3://bucket/x")
    assert (found["endpoint_url"], found["region"], found["key"]) == (
        *("https://file.example", "variable", "option"),
    )


def test_options_are_for_urls_only() -> None:
    assert load_settings(["a=b"]).storage_options("/local/path") == {}
    assert load_settings(["a=b"]).storage_options("file:///local/path") == {}


def test_a_heading_holds_for_every_spelling_of_its_scheme(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[storage.s3a]\nregion = "here"\n')
    for scheme in ("s3", "s3a", "S3N"):
        assert load_settings((), file).storage_options(f"{scheme}://x") == {"region": "here"}
    assert load_settings((), file).storage_options("gs://x") == {}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["a=b=c"], {"a": "b=c"}),
        (["a="], {"a": ""}),
        (["anon=true", "ssl=FALSE"], {"anon": True, "ssl": False}),
        (["key=12345"], {"key": "12345"}),
        (["n:=12345"], {"n": 12345}),
        (["o:={}", "l:=[1]"], {"o": {}, "l": [1]}),
        (["a.b=1", "a.c.d=2"], {"a": {"b": "1", "c": {"d": "2"}}}),
        (["fs.s3a.access.key=1"], {"fs.s3a.access.key": "1"}),
        (["spark.hadoop.fs.s3a.endpoint=1"], {"spark.hadoop.fs.s3a.endpoint": "1"}),
    ],
)
def test_options(options: list[str], expected: dict[str, Any]) -> None:
    assert load_settings(options).storage_options("s3://x") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("engine = 7", "engine in the config file must be a text"),
        ("storage = 7", r"must hold tables such as \[storage.s3\]"),
        ("[storage]\ns3 = 7", r"must hold tables such as \[storage.s3\]"),
        ("nonsense", "is not valid TOML"),
        ('engin = "duckdb"', r"sets \['engin'\], which are not settings"),
    ],
)
def test_a_file_that_cannot_be_understood(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_settings((), tmp_path / "bad.toml")


@pytest.mark.parametrize("text", ["nonsense", "[1]"])
def test_a_variable_that_cannot_be_understood(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("FSSPECKIT_STORAGE_OPTIONS", text)
    with pytest.raises(ValueError, match="must be a JSON object"):
        load_settings()


def test_an_option_inside_of_another_that_has_a_value() -> None:
    with pytest.raises(ValueError, match="already has a value"):
        load_settings(["a=1", "a.b=2"])


@pytest.mark.parametrize("variable", ["FSSPECKIT_CONFIG", "XDG_CONFIG_HOME"])
def test_where_the_file_is(
    done: Run, dataset: Path, source: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    path = dataset.parent / "home" / "fsspeckit" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text('engine = "pyarrow"')
    value = path if variable == "FSSPECKIT_CONFIG" else path.parent.parent
    monkeypatch.setenv(variable, str(value))
    done("merge", source, dataset, "--key", "id")
    assert history(dataset)[0].engine == "pyarrow"
    assert "pyarrow (default)" in done("engines").out


def test_an_engine_of_the_file_that_is_none(run: Run, dataset: Path, source: Path) -> None:
    (dataset.parent / "odd.toml").write_text('engine = "polars"')
    ran = run("merge", source, dataset, "-k", "id", "--config", "odd.toml")
    assert ran.code == 1
    assert "engine must be one of 'spark', 'duckdb', 'pyarrow', got 'polars'" in ran.err


def test_secrets_are_hidden() -> None:
    load_settings(["secret=abcdef", "client.password=ghijkl", "region=mnopqr", "key=abc"])
    assert hide("abcdef ghijkl mnopqr abc") == "*** *** mnopqr abc"


@pytest.mark.parametrize("verbose", [(), ("--verbose",)])
def test_secrets_are_not_echoed_by_a_failure(
    run: Run, source: Path, verbose: tuple[str, ...]
) -> None:
    ran = run(
        *("merge", source, "nosuch://hunter2hunter2@x", "-k", "id", "--engine", "pyarrow"),
        *("--storage-option", "secret=hunter2hunter2", *verbose),
    )
    assert ran.code == 1
    assert "hunter2" not in ran.err + ran.out
    assert ("Traceback" in ran.err) == bool(verbose)


@pytest.mark.parametrize("password", ["opensesame", "open@sesame", "open%40sesame", "open/sesame"])
def test_passwords_in_urls_are_hidden(password: str) -> None:
    url = f"sftp://me:{password}@host/path"
    load_settings().storage_options(url)
    assert hide(f"{url} with {password}") == "sftp://me:***@host/path with ***"
    assert hide(unquote(password)) == "***"


@pytest.mark.parametrize("command", ["inspect", "history"])
def test_variables_do_not_reach_other_libraries(dataset: Path, command: str) -> None:
    script = "from fsspeckit.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", script, command, dataset],
        env={**os.environ, "FSSPECKIT_STORAGE_OPTIONS": '{"anon": true}'},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr == ""


@pytest.mark.parametrize("text", ['{"endpoint_url": "http://x"}', '["a"]'])
def test_json_that_is_given_as_text_is_refused(run: Run, dataset: Path, text: str) -> None:
    ran = run("inspect", dataset, "--storage-option", f"client_kwargs={text}")
    assert ran.code == 1
    assert "--storage-option client_kwargs is given as text, but is JSON" in ran.err
    assert "client_kwargs:=..." in ran.err


@pytest.mark.parametrize("text", ["{not-json", "[]", "{}", "[secret"])
def test_text_may_begin_like_json(run: Run, dataset: Path, text: str) -> None:
    assert run("inspect", dataset, "--storage-option", f"secret={text}").code == 0
