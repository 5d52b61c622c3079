"""What the commands run, as make itself prints it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def dry_run(*targets: str) -> str:
    """The commands of some targets, in order, without running them."""
    done = subprocess.run(
        ["make", "--dry-run", *targets], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_help_lists_every_command_and_is_the_default() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    shown = subprocess.run(["make"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    listed = re.findall(r"^  make ([a-z0-9-]+) +\S", shown.stdout, re.MULTILINE)
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert {*listed, "java"} == set(phony[1].split())


@pytest.mark.parametrize(
    ("target", "commands"),
    [
        ("lint", ["ruff check .", "ruff format --check ."]),
        ("types", ["mypy"]),
        ("hooks", ["pip install", "pre-commit install"]),
        ("test", ["scripts/java.sh", "scripts/browser.sh --browser --if", "scripts.run_tests"]),
        ("frontend", ["scripts/browser.sh", "npm run --silent check", "npm run --silent build"]),
        ("browser", ["scripts/browser.sh --browser"]),
        ("test-smoke", ["--engine pyarrow --first-case", "test_pyarrow.py", "test_commands.py"]),
        ("test-duckdb1", ["import duckdb", "pytest tests/datasets/test_duckdb.py"]),
        ("test-spark41", ["import pyspark", "-m pytest", "tests/datasets/test_spark.py"]),
        ("test-package", ["scripts.package_check"]),
        ("test-newcomer", ["scripts.newcomer"]),
        ("test-pythons", ["scripts.pythons"]),
        ("test-like-macos", ["-p tests.like_macos", "tests/storage", "test_pyarrow.py"]),
        ("test-integrations", ["dbt dagster airflow", "pytest tests/integrations/test_"]),
        ("bench", ["scripts/java.sh", "benchmarks.every_page"]),
        ("bench-quick", ["benchmarks.peers --quick"]),
        ("bench-spark", ["scripts/java.sh", "benchmarks.peers --spark"]),
        ("demo", ["scripts/java.sh", "examples/demo.py"]),
        ("torture-feeds", ["scripts/java.sh", "sequences_of_feeds or four_jobs", "test_duckdb.py"]),
        ("torture-pipelines", ["scripts/java.sh", "test_declarative_pipelines.py"]),
        ("torture-streams", ["scripts/java.sh", "TORTURE=1", "test_spark_streams_killed.py"]),
        ("test-spark-s3", ["scripts.stores hadoop-aws", "TORTURE=1", "test_spark_hadoop_aws.py"]),
        ("torture-stores", ["scripts.stores azurite", "TORTURE=1", "test_store_faults.py"]),
        (
            "torture",
            [
                *("scripts.stores minio", "scripts.stores azurite", "scripts.stores fake-gcs"),
                *("pytest tests/storage", "moto or minio or azurite or fake-gcs"),
            ],
        ),
    ],
)
def test_a_command_runs(target: str, commands: list[str]) -> None:
    printed = dry_run(target)
    offsets = [printed.find(command) for command in commands]
    assert -1 not in offsets
    assert offsets == sorted(offsets)


def test_the_tables_of_object_stores_can_be_made_one_store_at_a_time() -> None:
    """A second ``-k`` would replace the first, so that HDFS, which takes long, is left out."""
    printed = dry_run("torture-stores", "ARGS=--keep-cells -k minio")
    assert printed.count(" -k ") == 1
    assert printed.count("[hdfs]' ") == printed.count("--deselect ") == 2


def test_what_must_be_green_is_lint_types_and_tests() -> None:
    script = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    assert script.splitlines()[-1] == "make lint types test"


def test_hooks_run_what_lint_runs() -> None:
    """With the tools that are there: a hook that fetches names a repository other than local."""
    config = (REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    hooks = re.findall(
        r"entry: bash -c 'PATH=\"\.venv/bin:\$PATH\" exec (.+)'$", config, re.MULTILINE
    )
    linted = re.findall(r"^\.venv/bin/(ruff .+)$", dry_run("lint"), re.MULTILINE)
    assert hooks == linted != []
    assert re.findall(r"repo: (\S+)", config) == ["local"]
    assert config.count("entry:") == config.count("- id:") == len(hooks)
