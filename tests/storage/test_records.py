"""Records: readable, versioned, and never believed when they are damaged."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.storage.checks import read_plainly
from tests.storage.scenario import FLAT, PARTITIONED, fresh, parquet_bytes, put, rewrite, run_commit

from fsspeckit.errors import CorruptRecordError, InvalidArgumentError
from fsspeckit.storage import (
    CommitFacts,
    FileChanges,
    Retention,
    check_data_name,
    commit,
    history,
    open_storage,
    recover,
    stable_files,
    staging,
    take_snapshot,
    unique_basename,
)
from fsspeckit.storage.commit.log import encode_document
from fsspeckit.storage.listing import check_basename, check_relative

if TYPE_CHECKING:
    from tests.storage.conftest import ForkServer


@pytest.fixture
def root(tmp_path: Path) -> str:
    return fresh(FLAT, str(tmp_path / "x"))


def record_path(root: str, number: int = 1) -> Path:
    return Path(open_storage(root).control.record(number))


def test_a_person_can_read_a_record(root: str) -> None:
    run_commit(FLAT, root)
    text = record_path(root).read_text()
    content = json.loads(text)
    assert len(text.splitlines()) > 50
    assert content["version"] == 1
    assert content["strategy"] == "upsert"
    assert content["removes"][0]["path"] == "f0.parquet"
    assert content["adds"][0]["final"].endswith(".parquet")


def test_history_lists_the_commits(root: str) -> None:
    assert history(root) == []
    run_commit(FLAT, root)
    storage = open_storage(root)
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        file = put(storage, stage.new_file(), parquet_bytes(700, "new"))
        facts = CommitFacts("spark", "overwrite", ("a", "b"), {"inserted": 2}, started=None)
        commit(storage, snapshot, stage, FileChanges([file], list(snapshot.by_path)), facts)
    first, second = history(root)
    assert (first.number, first.engine, first.strategy) == (1, "pyarrow", "upsert")
    assert (first.key_columns, first.counts) == (("id",), {"updated": 8, "inserted": 4})
    assert (len(first.added), len(first.removed)) == (6, 4)
    assert first.complete
    assert not first.recovered
    assert 0 < first.seconds < 60
    assert first.time < second.time
    assert first.published == "exchange"
    assert (len(second.added), len(second.removed)) == (1, 8)


def test_history_says_what_recovery_did(root: str, fork_server: ForkServer) -> None:
    fork_server.run("commit", root, scenario="flat", kill=60)
    before = history(root)[0]
    assert (before.complete, before.recovered) == (False, False)
    report = recover(root)
    assert "completed commit 1: 6 file(s) added, 4 removed (exchange)" in str(report)
    assert history(root)[0].recovered
    assert "nothing to recover" in str(recover(root))


def damage(content: bytes) -> dict[str, bytes]:
    """Ways in which a record goes bad."""
    document = json.loads(content)
    newer = json.loads(encode_document("fsspeckit-commit", {}))
    outside = {**document, "removes": [{**document["removes"][0], "path": "../other.parquet"}]}
    return {
        "empty": b"",
        "truncated": content[: len(content) // 2],
        "one byte": content.replace(b"f1.parquet", b"f9.parquet"),
        "no text": b"\xff\xfe\x00",
        "a list": b"[]",
        "another format": json.dumps({**document, "format": "x"}).encode(),
        "no version": json.dumps({**document, "version": None}).encode(),
        "no content": json.dumps(newer).encode(),
        "outside": _resealed(outside),
        "absolute": _resealed({**document, "staging": "/etc"}),
        "mode": _resealed({**document, "publish": "magic"}),
        "number": _resealed({**document, "number": 7}),
        "extra": _resealed({**document, "adds": [{"staged": "x"}]}),
    }


def _resealed(document: dict[str, Any]) -> bytes:
    kept = {
        key: value
        for key, value in document.items()
        if key not in ("checksum", "format", "version")
    }
    return encode_document("fsspeckit-commit", kept)


KINDS = [
    "empty",
    "truncated",
    "one byte",
    "no text",
    "a list",
    "another format",
    "no version",
    "no content",
    "outside",
    "absolute",
    "mode",
    "number",
    "extra",
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_record_is_named_and_never_acted_upon(
    root: str, fork_server: ForkServer, kind: str
) -> None:
    fork_server.run("commit", root, scenario="flat", publish="plain", kill=40)
    path = record_path(root)
    good = path.read_bytes()
    before = sorted(os.listdir(root))
    path.write_bytes(damage(good)[kind])
    for act in (recover, history, lambda where: take_snapshot(open_storage(where))):
        with pytest.raises(CorruptRecordError, match=r"commits/0000000001\.json"):
            act(root)
    with pytest.raises(CorruptRecordError):
        stable_files(open_storage(root))
    assert sorted(os.listdir(root)) == before
    path.write_bytes(good)
    recover(root)
    assert read_plainly(root) == FLAT.new()


def test_a_damaged_record_can_be_set_aside(root: str, fork_server: ForkServer) -> None:
    """Without a backup of it there must be a way out; no data file is touched."""
    fork_server.run("commit", root, scenario="flat", publish="plain", kill=40)
    path = record_path(root)
    path.write_bytes(b"{")
    before = sorted(os.listdir(root))
    report = recover(root, abandon=True)
    assert [commit.abandoned for commit in report.completed] == [True]
    assert "compare the rows" in report.completed[0].notes[0]
    assert sorted(os.listdir(root)) == before
    assert path.with_name("0000000001.damaged.json").read_bytes() == b"{"
    assert rewrite(root, "later").number == 1


def test_a_record_of_a_newer_version_is_not_set_aside(root: str, fork_server: ForkServer) -> None:
    fork_server.run("commit", root, scenario="flat", publish="plain", kill=40)
    path = record_path(root)
    good = path.read_bytes()
    path.write_text(json.dumps({**json.loads(good), "version": 2}))
    with pytest.raises(CorruptRecordError, match="use the version of fsspeckit"):
        recover(root, abandon=True)
    path.write_bytes(good)
    recover(root)
    assert read_plainly(root) == FLAT.new()


def test_damaged_records_of_complete_commits_stop_the_history_and_nothing_else(root: str) -> None:
    """Nothing is done with them any more; but a history with gaps would be a lie."""
    for version in ("a", "b", "c"):
        rewrite(root, version)
    for number in (1, 3):
        record_path(root, number).write_bytes(b"{")
    with pytest.raises(CorruptRecordError, match=r"commits/0000000001\.json") as caught:
        history(root)
    assert "commits/0000000003.json" in caught.value.__notes__[0]
    assert not recover(root)
    assert stable_files(open_storage(root)).number == 3
    assert rewrite(root, "d").number == 4


@pytest.mark.parametrize("act", [recover, history])
def test_a_path_where_nothing_is(tmp_path: Path, act: Any) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing' is not there.*\nHint: check the path"):
        act(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="Hint"):
        act("memory://nothing/at all")
    (tmp_path / "empty").mkdir()
    assert not act(tmp_path / "empty")


@pytest.mark.parametrize("act", [recover, history])
def test_a_dataset_that_was_deleted_has_a_history(root: str, act: Any) -> None:
    run_commit(FLAT, root)
    shutil.rmtree(root)
    act(root)


def test_a_newer_version_is_a_clear_error(root: str) -> None:
    run_commit(FLAT, root)
    path = record_path(root)
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "version": 2}))
    with pytest.raises(CorruptRecordError, match=r"has version 2, this version .* knows 1"):
        history(root)


@pytest.mark.parametrize("content", [{}, {"published": "plain", "seconds": "x"}])
def test_a_damaged_mark_of_completion(root: str, content: dict[str, Any]) -> None:
    run_commit(FLAT, root)
    path = Path(open_storage(root).control.done(1))
    path.write_bytes(encode_document("fsspeckit-commit-done", content))
    with pytest.raises(CorruptRecordError, match=r"0000000001\.done\.json"):
        history(root)


def test_a_damaged_manifest_stops_recovery(root: str, fork_server: ForkServer) -> None:
    calls = fork_server.run("commit", root, scenario="flat", fresh=True)["calls"]
    request = {"scenario": "flat", "fresh": True, "kill": calls.index("exchange")}
    fork_server.run("commit", root, when="after", **request)
    control = Path(open_storage(root).control.path)
    manifest = next(control.glob(".shadow_*/manifest.json"))
    good = manifest.read_bytes()
    for bad in (good[:50], encode_document("fsspeckit-shadow", {"body": "{}"})):
        manifest.write_bytes(bad)
        with pytest.raises(CorruptRecordError, match="manifest"):
            recover(root)
        assert read_plainly(root) == FLAT.new()
    manifest.write_bytes(good)
    recover(root)
    assert read_plainly(root) == FLAT.new()


@pytest.mark.parametrize(
    "name", ["../a.parquet", "/a.parquet", "p=1//a", "", ".", "a\0b", "p/../x"]
)
def test_paths_cannot_leave_the_root(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is not allowed"):
        check_relative(name)


@pytest.mark.parametrize("name", ["a/b", "..", "", "a\0", "a\\b"])
def test_names_have_no_separators(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is not allowed"):
        check_basename(name)
    with pytest.raises(InvalidArgumentError):
        unique_basename(name)


@pytest.mark.parametrize("name", ["a.json", "_a.parquet", ".x/a.parquet"])
def test_new_files_must_be_data(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="no part hidden"):
        check_data_name(name)


@pytest.mark.parametrize(
    ("directory", "basename"),
    [("..", "a.parquet"), ("/etc", "a.parquet"), ("p=\0", "a.parquet"), ("p=1", "../a.parquet")],
)
def test_partition_values_and_templates_cannot_leave_the_root(
    root: str, directory: str, basename: str
) -> None:
    storage = open_storage(root)
    with staging(storage) as stage, pytest.raises(InvalidArgumentError):
        stage.new_file(directory, basename)


def test_names_are_unique(root: str) -> None:
    storage = open_storage(root)
    with staging(storage) as stage:
        files = [stage.new_file("p=1", "part-0.parquet") for _ in range(100)]
    assert len({file.final for file in files}) == 100
    assert all(file.final.startswith("p=1/part-0-") for file in files)
    assert not any(file.path.endswith(".parquet") for file in files)


def test_changes_that_make_no_sense(root: str) -> None:
    storage = open_storage(root)
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        file = put(storage, stage.new_file(), parquet_bytes(0, "new"))
        taken = put(storage, stage.new_copy("f0.parquet"), parquet_bytes(0, "new"))
        outside = put(storage, stage.new_file(), parquet_bytes(0, "new"))
        wrong = type(file)(f"{root}/f1.parquet", file.final)
        for change, message in [
            (FileChanges([file], ["nothing.parquet"]), "not a data file of the snapshot"),
            (FileChanges([file, file]), "already has a file of that name"),
            (FileChanges([taken]), "already has a file of that name"),
            (FileChanges([wrong]), "not in the staging directory"),
        ]:
            with pytest.raises(InvalidArgumentError, match=message):
                commit(storage, snapshot, stage, change)
        commit(storage, snapshot, stage, FileChanges([outside], [f"{root}/f0.parquet"]))
    assert not os.path.exists(f"{root}/f0.parquet")


def test_trash_is_kept_for_three_commits(root: str) -> None:
    control = Path(open_storage(root).control.path)
    for number in range(5):
        storage = open_storage(root)
        snapshot = take_snapshot(storage)
        with staging(storage) as stage:
            file = put(storage, stage.new_file(), parquet_bytes(number, "new"))
            victim = sorted(snapshot.by_path)[0]
            commit(storage, snapshot, stage, FileChanges([file], [victim]))
    assert sorted(os.listdir(control / "trash")) == ["0000000003", "0000000004", "0000000005"]


@pytest.mark.parametrize(
    ("retention", "kept"),
    [(Retention(0), []), (Retention(1), ["0000000002"]), (Retention(9, 0.0), ["0000000002"])],
    ids=["off", "one commit", "no time"],
)
@pytest.mark.parametrize("publish", ["auto", "plain"])
def test_trash_by_retention(
    tmp_path: Path, retention: Retention, kept: list[str], publish: Any
) -> None:
    root = fresh(PARTITIONED, str(tmp_path / "x"))
    storage = replace(open_storage(root, publish=publish), retention=retention)
    for number in range(2):
        snapshot = take_snapshot(storage)
        with staging(storage) as stage:
            file = put(storage, stage.new_file("p=0"), parquet_bytes(number, "new"))
            commit(storage, snapshot, stage, FileChanges([file], [sorted(snapshot.by_path)[-1]]))
    trash = Path(storage.control.trash)
    assert (sorted(os.listdir(trash)) if trash.exists() else []) == kept
