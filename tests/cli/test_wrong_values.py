"""A wrong value for every argument and option: one paragraph, a hint, and nothing has changed.

The parameters are those of the application itself: one that is added here without a wrong value
fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import typer.main
from tests.cli.running import tree

from fsspeckit.cli.app import app

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Run

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
ENGINE = ("--engine", "pyarrow")
GOOD = {
    "merge": ("source.parquet", "data", "--key", "id", *ENGINE),
    "plan": ("source.parquet", "data", "--key", "id", *ENGINE),
    "apply": ("changes.parquet", "data", "--key", "id", "--sequence-by", "v", *ENGINE),
    "delete": ("data", "--key", "id", "--from", "source.parquet", *ENGINE),
    "write": ("source.parquet", "data", *ENGINE),
    "compact": ("data", *ENGINE),
    "deduplicate": ("data", "--key", "id", *ENGINE),
    "repartition": ("data", "--partition-by", "v", *ENGINE),
    "evolve": ("data", *ENGINE),
    "inspect": ("data",),
    "doctor": ("data", "--key", "id"),
    "verify": ("data",),
    "history": ("data",),
    "report": ("data",),
    "serve": ("data",),
    "undo": ("data",),
    "restore": ("data", "--commit", "0"),
    "recover": ("data",),
    "clean": ("data",),
    "engines": (),
    "init": ("pipeline", "new_project"),
}
WRONG_ARGUMENTS = {
    "changes": ("nowhere.parquet", "nowhere/*.csv", "", "source.unknown", "nosuch://x", "empty"),
    "sources": ("nowhere.parquet", "nowhere/*.csv", "", "source.unknown", "nosuch://x", "empty"),
    "target": ("", "-", "nosuch://data", "source.parquet"),
    "dataset": ("", "-", "nosuch://data", "source.parquet", "nowhere"),
    "kind": ("", "stream", "PIPELINE"),
    "name": ("", "data", "source.parquet", "source.parquet/x", "."),
}
WRONG_OPTIONS: dict[str, tuple[str, ...]] = {
    "key": ("no_such_column", "ID", ""),
    "order_by": ("no_such_column", ""),
    "delete_when": ("no_such_column", "", "v", "id"),
    "only_newer": ("no_such_column", ""),
    "sequence_by": ("no_such_column", ""),
    "apply_as_deletes": ("", "no_such_column", "v = 1", "v = 'a", "v"),
    "except_column": ("no_such_column", "", "id", "v"),
    "column": ("no_such_column", "", "id", "v"),
    "scd_type": ("3", "", "2"),  # 2: the dataset keeps no versions
    "tombstone_retention": ("", "7", "-1d", "soon", "1e9d", "9999999999d"),
    "sources": ("nowhere.parquet", "", "source.unknown"),
    "where": ("id = 1", ""),
    "partition_by": ("no_such_column", ""),
    "bloom": ("no_such_column", ""),
    "strategy": ("replace", "", "UPSERT"),
    "engine": ("polars", ""),
    "duplicates": ("all",),
    "keep": ("any", ""),
    "nulls": ("maybe",),
    "partition_change": ("MOVE", "copy"),
    "schema_changes": ("ADD", "replace"),
    "add": ("price", "price=", "=int64", "price=money", "v=string", "price=decimal(99, 2)"),
    "widen": ("id", "id=int8", "id=double", "no_such_column=int64"),
    "rename": ("v", "v=", "=w", "v=id", "no_such_column=w"),
    "drop": ("no_such_column", ""),
    "order": ("no_such_column", ""),
    "nullable": ("no_such_column", ""),
    "required": ("no_such_column", ""),
    "mode": ("truncate",),
    "compression": ("zip",),
    "source_format": ("xlsx", "csv"),
    "delimiter": ("", "ab", '"'),
    "max_rows_per_file": ("0", "-1", "many", "1.5"),
    "row_group_size": ("0", "many"),
    "max_rewrite_fraction": ("-0.1", "1.1", "half", "nan"),
    "max_rewrite_bytes": ("-1", "few", "1 potato"),
    "transaction": ("feed", "feed:", ":1", "feed:-1", "feed:1.5", "feed:99999999999999999999"),
    "lock_timeout": ("-1", "soon", "nan"),
    "limit": ("0", "few"),
    "html": ("", "-", "data", "nowhere/page.html", "source.parquet"),
    "output": ("", "-", "data", "nowhere/page.html", "source.parquet"),
    "port": ("-1", "65536", "any"),
    "every": ("0", "-1", "soon", "nan", "1e9"),
    "commit": ("1", "-1", "last", ""),
    "keep_commits": ("-1", "few"),
    "keep_age": ("", "7", "-1d", "soon"),
    "keep_bytes": ("-1", "few", "1 potato"),
    "target_size": ("0", "few", "-1"),
    "min_files": ("1", "few"),
    "partition": ("nonsense", "no_such_column=1", ""),
    "sort_by": ("no_such_column", ""),
    "storage_option": ("nonsense", "=", "a:=nonsense"),
    "config": ("nowhere.toml", "source.parquet", "data"),
    "control_dir": ("source.parquet/x", ""),
}


def cases() -> list[Any]:
    """Every parameter of every command, with each of its wrong values."""
    found = []
    for command, parsed in COMMANDS.items():
        for parameter in parsed.params:
            for value in _wrong(parameter):
                words = _words(command, parameter, value)
                found.append(pytest.param(words, id=f"{command} {parameter.name}={value}"))
    return found


def _wrong(parameter: Any) -> tuple[str, ...]:
    if parameter.param_type_name == "argument":
        return WRONG_ARGUMENTS[parameter.name]
    if parameter.is_flag:
        return ("maybe",)
    return WRONG_OPTIONS[parameter.name]


def _words(command: str, parameter: Any, value: str) -> list[str]:
    words = [command, *GOOD[command]]
    if parameter.param_type_name == "argument":
        usual = {"sources": "source.parquet", "changes": "changes.parquet"}
        usual |= {"kind": "pipeline", "name": "new_project"}
        words[words.index(usual.get(parameter.name, "data"))] = value
        return words
    return [*words, f"{max(parameter.opts, key=len)}={value}"]


@pytest.fixture
def place(dataset: Path, source: Path, tmp_path: Path) -> Path:
    """A directory with a dataset, a source, and some things that are neither."""
    (tmp_path / "source.unknown").write_text("id,v\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "changes.parquet").write_bytes(source.read_bytes())
    return tmp_path


@pytest.mark.parametrize("words", cases())
def test_a_wrong_value(run: Run, place: Path, words: list[str]) -> None:
    before = tree(place)
    ran = run(*words)
    assert ran.code in (1, 2), ran.out
    assert ran.out == ""
    assert tree(place) == before
    what, hint, *rest = ran.err.splitlines()
    assert rest == []
    assert what.startswith("error: ")
    assert what.endswith((".", "!", "?"))
    assert hint.startswith("hint: ")
    assert 10 < len(what) < 600
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("command", COMMANDS)
def test_the_right_values_work(
    run: Run, place: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command == "serve":  # until Ctrl-C
        monkeypatch.setattr("fsspeckit.report.ReportServer.run", _interrupted)
    if command == "undo":
        assert run("write", *GOOD["write"]).code == 0
    assert run(command, *GOOD[command]).code == 0


def _interrupted(server: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["merge", "--key", "id"], "Missing argument 'SOURCE'"),
        (["merge", "source.parquet", "--key", "id"], "or 'TARGET': name the rows first"),
        (["merge", "source.parquet", "data"], "Missing option '--key'"),
        (["merge", "source.parquet", "data", "--keys", "id"], "No such option: --keys"),
        (["inspect"], "Missing argument 'DATASET'"),
        (["inspect", "data", "more"], "unexpected extra argument"),
        (["mergee"], "No such command 'mergee'"),
    ],
)
def test_a_wrong_command_line(run: Run, words: list[str], text: str) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert text in ran.err
    assert ran.err.splitlines()[-1].startswith("hint: see fsspeckit")
