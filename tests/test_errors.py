"""Errors: one tree, the builtin a caller expects, and a text that helps."""

from __future__ import annotations

import pickle

import pytest

from fsspeckit import errors

# Each error, and the builtin that catches it.
BUILTINS: list[tuple[type[Exception], type[Exception]]] = [
    (errors.InvalidArgumentError, ValueError),
    (errors.NullKeyError, ValueError),
    (errors.DuplicateKeyError, ValueError),
    (errors.DuplicateRowsError, ValueError),
    (errors.SchemaMismatchError, ValueError),
    (errors.PartitionMoveError, ValueError),
    (errors.RewriteLimitError, ValueError),
    (errors.TransactionResetError, ValueError),
    (errors.UnsupportedLayoutError, ValueError),
    (errors.UnreadableFileError, ValueError),
    (errors.ConcurrentModificationError, RuntimeError),
    (errors.StalePlanError, RuntimeError),
    (errors.LockTimeoutError, TimeoutError),
    (errors.CommitPendingError, RuntimeError),
    (errors.CommitIncompleteError, RuntimeError),
    (errors.CommitUnknownError, RuntimeError),
    (errors.LostFileError, RuntimeError),
    (errors.CorruptRecordError, RuntimeError),
    (errors.EngineNotInstalledError, ImportError),
    (errors.LibraryNotInstalledError, ImportError),
    (errors.ExpectationError, ValueError),
]


@pytest.mark.parametrize(("error", "builtin"), BUILTINS)
def test_every_error_is_caught_by_its_builtin_and_by_the_base(
    error: type[Exception], builtin: type[Exception]
) -> None:
    assert issubclass(error, builtin)
    assert issubclass(error, errors.FsspeckitError)
    assert error.__doc__


def test_no_error_is_left_out() -> None:
    assert {error for error, _ in BUILTINS} | {errors.FsspeckitError} == {
        getattr(errors, name) for name in errors.__all__
    }


def test_committed_not_committed_and_unknown_differ_by_type() -> None:
    assert issubclass(errors.CommitUnknownError, errors.CommitPendingError)
    assert not issubclass(errors.CommitPendingError, errors.ConcurrentModificationError)
    assert issubclass(errors.LockTimeoutError, errors.ConcurrentModificationError)
    assert issubclass(errors.StalePlanError, errors.ConcurrentModificationError)


MESSAGES: list[tuple[Exception, list[str]]] = [
    (
        errors.InvalidArgumentError.choice("mode", "x", ("append", "overwrite")),
        ["mode must be one of 'append', 'overwrite', got 'x'"],
    ),
    (
        errors.InvalidArgumentError.missing_columns("key_columns", ["Id"], ["id", "v"]),
        ["key_columns ['Id'] not found", "['id', 'v']", "Hint:", "upper and lower case"],
    ),
    (
        errors.NullKeyError.found({"id": 1_234, "it's": 1}),
        ["'id' has 1,234", '"it\'s" has 1', 'null_keys="match"', "Hint:"],
    ),
    (
        errors.DuplicateKeyError.found(["id"], 2, [(1,), (None,)]),
        ["2 key(s) of ['id']", "for example: 1, None.", 'duplicate_keys="first"', "Hint:"],
    ),
    (
        errors.DuplicateKeyError.found(["a", "b"], 1, [(1, "x")]),
        ["for example: (1, 'x')."],
    ),
    (
        errors.DuplicateRowsError.found(["id"], 2, [(1,)]),
        ["2 row(s) have the same ['id']", "for example: 1.", 'keep="first"', "Hint:"],
    ),
    (
        errors.StalePlanError.changed("/data", "added: 'a.parquet'"),
        ["'/data' has changed since it was made: added: 'a.parquet'", "Hint: plan again"],
    ),
    (
        errors.StalePlanError.decided_otherwise("/data", [f"{n}.parquet" for n in range(7)]),
        ["decide otherwise about '0.parquet'", "'4.parquet' and 2 more", "Hint: plan again"],
    ),
    (
        errors.RewriteLimitError.exceeded("max_rewrite_bytes", "1 bytes", "2,000 bytes", 3),
        ["may rewrite 2,000 bytes in 3 file(s)", "max_rewrite_bytes allows 1 bytes", "Hint:"],
    ),
    (
        errors.PartitionMoveError.found(["day"], 3, [(1,)]),
        [
            "partition columns cannot change for existing keys",
            "3 key(s)",
            "['day']",
            "for example: 1.",
            "Hint:",
        ],
    ),
    (
        errors.TransactionResetError.found("feed", 0, "b", (1_417, 12, "a")),
        [
            "version 0 of run 'b' of the application 'feed'",
            "commit 12 has recorded version 1,417 of run 'a'",
            "Hint: give the new run an application name of its own, or go on with version 1,418",
        ],
    ),
    (
        errors.LockTimeoutError.waited("/x/.d.fsspeckit/lock", 1.5, "pid 7"),
        ["'/x/.d.fsspeckit/lock'", "1.5 s", "pid 7", "Hint:"],
    ),
    (
        errors.CommitIncompleteError.found(7, "/x/d", ["a", *"bcdef"], ["n"]),
        ["commit 7", "still there: 'a'", "and 1 more", "not there: 'n'", "Hint:"],
    ),
    (
        errors.LostFileError.cannot_go_back(7, "p=1/x.parquet"),
        ["commit 7 cannot be abandoned", "'p=1/x.parquet'", "Hint:"],
    ),
    (
        errors.CommitPendingError.interrupted(7, "/x/d", OSError("no space")),
        ["commit 7 of '/x/d'", "no space", "do not repeat", "Hint:"],
    ),
    (
        errors.CommitUnknownError.unanswered(7, "/x/d", OSError("timeout")),
        ["commit 7 of '/x/d'", "timeout", "recover()", "Hint:"],
    ),
    (
        errors.LostFileError.missing(7, "p=1/x.parquet"),
        ["commit 7", "'p=1/x.parquet'", "Nothing was removed", "Hint:"],
    ),
    (
        errors.CorruptRecordError.damaged("/x/7.json", "it ends too early"),
        ["'/x/7.json'", "it ends too early", "Hint:"],
    ),
    (
        errors.CorruptRecordError.newer("/x/7.json", 9, 1),
        ["version 9", "knows 1", "Hint:"],
    ),
    (
        errors.EngineNotInstalledError.missing("duckdb", "pip install duckdb"),
        ["the 'duckdb' engine is not installed", "Hint: pip install duckdb"],
    ),
    (
        errors.LibraryNotInstalledError.missing("gs://lake", "gcsfs"),
        ["'gs://lake'", "library gcsfs", "Hint: pip install gcsfs"],
    ),
]


@pytest.mark.parametrize(("error", "parts"), MESSAGES, ids=lambda v: type(v).__name__)
def test_messages_say_what_was_wrong_and_what_to_do(error: Exception, parts: list[str]) -> None:
    for part in parts:
        assert part in str(error)


@pytest.mark.parametrize(("error", "parts"), MESSAGES, ids=lambda v: type(v).__name__)
def test_errors_survive_the_way_from_a_worker_process(error: Exception, parts: list[str]) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert parts


def test_an_invalid_argument_is_named_by_a_field() -> None:
    assert errors.InvalidArgumentError.choice("mode", "x", ("append",)).argument == "mode"
    assert errors.InvalidArgumentError.missing_columns("order_by", ["a"], []).argument == "order_by"
    again = pickle.loads(pickle.dumps(errors.InvalidArgumentError("odd", argument="mode")))
    assert (str(again), again.argument) == ("odd", "mode")


def test_an_interrupt_knows_the_commit_that_was_recorded_before_it() -> None:
    interrupt = KeyboardInterrupt()
    errors.mark_committed(interrupt, 7)
    assert interrupt.committed == 7  # type: ignore[attr-defined]
    assert interrupt.__notes__ == ["commit 7 is committed; recovery will complete it."]
