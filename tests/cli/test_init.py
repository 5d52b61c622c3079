"""The command ``init``: what it writes, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.pipelines.cli import load_pipeline_spec
from tests.cli.running import tree

import fsspeckit.cli
from fsspeckit.testing.landing import APPLY_AS_DELETES, EXPECT, SPARK_SCHEMA

if TYPE_CHECKING:
    from tests.cli.running import Run

FILES = [
    ".gitignore",
    "README.md",
    "landing/orders-1.json",
    "landing/orders-2.json",
    "spark-pipeline.yml",
    "transformations/orders.py",
]
NAMES = ["feed", "a b", 'quo"te', "hash # tag", "colon: x", "Ünïcode 文", "per%20cent", "-dash"]


def test_the_files_of_a_pipeline(done: Run, tmp_path: Path) -> None:
    out = done("init", "pipeline", "feed").out
    assert sorted(tree(tmp_path / "feed")) == FILES
    lines = [line.strip() for line in out.splitlines()]
    assert lines[0] == f"pipeline in {tmp_path / 'feed'}"
    assert lines[1:-3] == FILES
    assert lines[-2:] == [f"cd {tmp_path / 'feed'}", "spark-pipelines run"]


def test_as_json(done: Run, tmp_path: Path) -> None:
    document = done("init", "pipeline", "jobs/feed", "--json").document
    assert document["directory"] == str(tmp_path / "jobs" / "feed")
    assert (document["project"], document["files"]) == ("pipeline", FILES)


@pytest.mark.parametrize("name", NAMES)
def test_spark_reads_the_specification(done: Run, tmp_path: Path, name: str) -> None:
    done("init", "pipeline", "--", name)
    spec = load_pipeline_spec(tmp_path / name / "spark-pipeline.yml")
    assert spec.name == name
    assert spec.storage == f"file://{tmp_path / name}/pipeline-storage"
    assert (tmp_path / name / "README.md").read_text("utf-8").startswith(f"# {name}\n")


@pytest.mark.parametrize(
    ("name", "written"),
    [("a b", "a%20b"), ("100%", "100%25"), ("Ünï-code_1.x~", None)],
)
def test_a_path_that_spark_escapes_is_named(
    done: Run, tmp_path: Path, name: str, written: str | None
) -> None:
    done("init", "pipeline", name)
    text = (tmp_path / name / "spark-pipeline.yml").read_text("utf-8")
    assert ("Spark escapes the path" in text) == (written is not None)
    assert written is None or f'# "{tmp_path / written}/pipeline-storage"' in text


def test_nothing_is_left_to_fill_in(done: Run, tmp_path: Path) -> None:
    done("init", "pipeline", "feed")
    assert [name for name, text in tree(tmp_path / "feed").items() if b"{{" in text] == []


def test_an_empty_directory_will_do(done: Run, tmp_path: Path) -> None:
    (tmp_path / "feed").mkdir()
    done("init", "pipeline", "feed")
    assert sorted(tree(tmp_path / "feed")) == FILES


def test_nothing_is_overwritten(run: Run, tmp_path: Path) -> None:
    (tmp_path / "feed").mkdir()
    (tmp_path / "feed" / "README.md").write_text("mine")
    ran = run("init", "pipeline", "feed")
    assert ran.code == 1
    assert ran.err.splitlines() == [
        "error: the directory 'feed' is not empty, and no file is overwritten.",
        "hint: choose another name, or remove the directory first.",
    ]
    assert tree(tmp_path / "feed") == {"README.md": b"mine"}


def test_the_transformation_is_in_order(done: Run, tmp_path: Path) -> None:
    """As tools see it: by ruff with the rules of this repository."""
    done("init", "pipeline", "feed")
    script = tmp_path / "feed" / "transformations" / "orders.py"
    config = Path(__file__).parents[2] / "pyproject.toml"
    for words in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *words, "--config", str(config), str(script)]
        checked = subprocess.run(command, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_it_takes_the_day_of_orders_of_the_tests(done: Run, tmp_path: Path) -> None:
    done("init", "pipeline", "feed")
    text = (tmp_path / "feed" / "transformations" / "orders.py").read_text("utf-8")
    columns = " ".join(text.partition('COLUMNS = """')[2].partition('"""')[0].split())
    assert columns == SPARK_SCHEMA
    assert f'"{APPLY_AS_DELETES}"' in text
    assert json.dumps(EXPECT) in text
    for file in (tmp_path / "feed" / "landing").iterdir():
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        assert all(list(row) == [c.split()[0] for c in columns.split(", ")] for row in rows)


def test_a_template_is_not_taken_for_a_module() -> None:
    templates = Path(fsspeckit.cli.__file__).parent / "templates"
    assert {path.suffix for path in templates.rglob("*") if path.is_file()} == {".template"}
