"""What a command prints about an error, and its exit code."""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from tests.cli.running import rows

from fsspeckit import errors
from fsspeckit.cli.errors import advice_in_cli_terms, explain, to_cli_terms
from fsspeckit.datasets.base import DatasetIO
from fsspeckit.errors import Argument, Call

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Run

PYARROW = ("--engine", "pyarrow")


@pytest.mark.parametrize(
    ("error", "code", "what", "hint"),
    [
        (errors.InvalidArgumentError("odd.\nHint: be even."), 1, "odd.", "be even."),
        (errors.InvalidArgumentError("odd"), 1, "odd.", "--help"),
        (errors.CommitPendingError.interrupted(3, "x", OSError("no")), 3, "commit 3", "recover"),
        (errors.CommitUnknownError.unanswered(3, "x", OSError("no")), 3, "commit 3", "history"),
        (errors.LockTimeoutError.waited("x", 1, "me"), 1, "for 1 s: me.", "end that process"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 1, "No space left", "has room"),
        (FileNotFoundError(2, "No such file", "a"), 1, "No such file: 'a'.", "check the path"),
        (OSError(18, "Invalid link", "a", 0, "b"), 1, "Invalid link: 'a' and 'b'.", "try again"),
        (PermissionError("no"), 1, "no.", "read and write"),
        (MemoryError(), 1, "MemoryError.", "--engine spark"),
        (ZeroDivisionError("division"), 1, "ZeroDivisionError: division.", "--verbose"),
    ],
)
def test_errors(error: BaseException, code: int, what: str, hint: str) -> None:
    failure = explain(error)
    assert failure.code == code
    assert what in failure.what
    assert hint in failure.hint
    assert "\n" not in failure.what + failure.hint


@pytest.mark.parametrize(
    ("text", "mention", "expected"),
    [
        ('pass null_keys="match" to', Argument("null_keys", ("match",)), "pass --nulls match to"),
        (
            'duplicate_keys="first" or "last", or',
            Argument("duplicate_keys", ("first", "last")),
            "--duplicates first or last, or",
        ),
        ("or order_by=[...]", Argument("order_by", (...,)), "or --order-by COLUMN"),
        ("pass allow_empty=True if", Argument("allow_empty", (True,)), "pass --allow-empty if"),
        ("call recover(), then", Call("recover"), "call 'fsspeckit recover', then"),
        ("see history()", Call("history"), "see 'fsspeckit history'"),
        ("abandon=True", Argument("abandon", (True,)), "--abandon"),
        ('bloom_columns=["id"]', Argument("bloom_columns", (["id"],)), "--bloom id"),
        ("pass control_dir=, a", Argument("control_dir"), "pass --control-dir, a"),
        ("leave control_dir out", Argument("control_dir"), "leave --control-dir out"),
        ("'/data/control_dir/x'", Argument("control_dir"), "'/data/control_dir/x'"),
        ("max_rewrite_bytes allows", Argument("max_rewrite_bytes"), "--max-rewrite-bytes allows"),
        ("key_columns ['x']", Argument("key_columns"), "--key ['x']"),
        ("publish must be", Argument("publish"), "publish must be"),
    ],
)
def test_arguments_are_called_as_on_the_command_line(
    text: str, mention: Argument | Call, expected: str
) -> None:
    assert to_cli_terms(text, [mention]) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("data", "--mode", "overwrite"), "with --partition-by COLUMN."),
        (("new", "--mode", "overwrite_partitions"), "use --mode overwrite to replace all data"),
        (("s3://me:secret@bucket/data",), "pass them in --storage-option, as"),
        (("ftp://me:se/cret@host/data",), "password in --storage-option, or"),
        (("data", "--control-dir", ""), "error: --control-dir must name a directory, got ''."),
    ],
)
def test_messages_name_options(
    run: Run, tmp_path: Path, source: Path, words: tuple[str, ...], expected: str
) -> None:
    place = tmp_path / "data" / "day=1"
    place.mkdir(parents=True)
    source.rename(place / "a.parquet")
    pq.write_table(rows(1), tmp_path / "source.parquet")
    ran = run("write", "source.parquet", *words, "--engine", "pyarrow")
    assert ran.code == 1
    assert expected in ran.err
    assert not re.search("partition_by|storage_options|control_dir|path must", ran.err)


def test_only_what_an_error_mentions_is_replaced() -> None:
    text = "order_by 'recover()' has no order"
    assert explain(errors.InvalidArgumentError(text)).what == f"{text}."
    error = errors.InvalidArgumentError(text, argument="order_by")
    assert explain(error).what == "--order-by 'recover()' has no order."


@pytest.mark.parametrize(
    "error",
    [
        errors.NullKeyError.found({"id": 1}),
        errors.DuplicateKeyError.found(["id"], 1, [(1,)]),
        errors.CommitPendingError.interrupted(1, "x", OSError("no")),
        errors.CommitUnknownError.unanswered(1, "x", OSError("no")),
        errors.CommitIncompleteError.found(1, "x", ["a"], []),
        errors.LostFileError.missing(1, "a"),
        errors.LostFileError.cannot_go_back(1, "a"),
        errors.CorruptRecordError.damaged("x", "it is empty"),
        errors.RewriteLimitError.exceeded("max_rewrite_bytes", "1", "2", 3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_messages_with_hints_contain_no_python(error: BaseException) -> None:
    failure = explain(error)
    assert not re.search(r"\w=|\w\(\)|\w_\w", failure.what + failure.hint)


def test_hints_of_the_library_name_options(run: Run, dataset: Path) -> None:
    (dataset.parent / "a.csv").write_text("id,v\n1,a\n1,b\n")
    assert "hint: pass --duplicates first or last" in (
        run("merge", "a.csv", dataset, "-k", "id", *PYARROW).err
    )
    (dataset.parent / "a.csv").write_text("id,v\n,a\n")
    assert "or pass --nulls match" in run("merge", "a.csv", dataset, "-k", "id", *PYARROW).err


@pytest.mark.parametrize("verbose", [(), ("-v",)])
def test_a_commit_that_is_not_completed(
    run: Run,
    dataset: Path,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    verbose: tuple[str, ...],
) -> None:
    def fails(*arguments: object, **options: object) -> None:
        raise errors.CommitPendingError.interrupted(7, "data", OSError("the disk is gone"))

    monkeypatch.setattr(DatasetIO, "merge", fails)
    ran = run("merge", source, dataset, "-k", "id", *PYARROW, *verbose)
    assert ran.code == 3
    assert "error: commit 7 of 'data' is committed, but publishing it was interrupted" in ran.err
    assert "hint: do not repeat the call" in ran.err
    assert ("Traceback" in ran.err) == bool(verbose)


def test_a_dataset_that_may_not_be_written(run: Run, tmp_path: Path, source: Path) -> None:
    ran = run("merge", source, "/proc/no/such/place", "-k", "id", *PYARROW)
    assert ran.code == 1
    assert ran.err.count("\n") == 2


def test_a_file_in_the_way(run: Run, source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = run("merge", source, "file/data", "-k", "id", *PYARROW)
    assert ran.code == 1
    assert "Traceback" not in ran.err


def test_advice_names_options_for_columns_of_any_alphabet() -> None:
    advice = 'write with bloom_columns=["größe"].'
    assert advice_in_cli_terms(advice, ["größe"]) == "write with --bloom größe."
