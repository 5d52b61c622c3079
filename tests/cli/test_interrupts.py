"""Ctrl-C at any moment: the dataset is unchanged or the commit complete; a message says which."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from tests.cli.running import content, tree

from fsspeckit.cli.errors import Interrupts, report_on_interrupt
from fsspeckit.errors import (
    CommitPendingError,
    InvalidArgumentError,
    mark_committed,
    mark_undecided,
)
from fsspeckit.storage.commit.recovery import recover
from fsspeckit.storage.history import history
from fsspeckit.storage.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cli.running import Run

REPOSITORY = Path(__file__).parents[2]
STRIDE = 1 if float(os.environ.get("FSSPECKIT_EXAMPLES", "1")) > 1 else 7
RANDOM_TRIES = {"pyarrow": 20, "duckdb": 10}
COMMANDS = {
    "merge": ("merge", "source.parquet", "data", "--key", "id", "--engine", "pyarrow"),
    "write": ("write", "source.parquet", "data", "--engine", "pyarrow"),
}


def interrupted(place: Path, pressed: int, stride: int, words: tuple[str, ...]) -> list[Path]:
    """A directory for each moment, in their order."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.cli.interrupted", place, str(pressed), str(stride), *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return sorted(
        (path for path in place.iterdir() if path.name.isdecimal()), key=lambda p: int(p.name)
    )


@pytest.fixture
def start(dataset: Path, source: Path, tmp_path: Path) -> Path:
    """A place whose ``start`` holds a dataset and a source."""
    place = tmp_path / "place"
    (place / "start").mkdir(parents=True)
    dataset.rename(place / "start" / "data")
    source.rename(place / "start" / "source.parquet")
    return place


@pytest.mark.slow
@pytest.mark.parametrize("pressed", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("command", COMMANDS)
def test_ctrl_c_at_many_moments(start: Path, command: str, pressed: int) -> None:
    moments = interrupted(start, pressed, STRIDE, COMMANDS[command])
    assert {0, 1} <= check_moments(start, moments)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["pyarrow", "duckdb"])
def test_ctrl_c_at_random_moments(start: Path, engine: str) -> None:
    """Each process ends, whatever its main thread was doing."""
    words = (*COMMANDS["merge"][:-1], engine)
    tries = RANDOM_TRIES[engine]
    moments = interrupted(start, 0, tries, words)
    assert len(moments) == tries + 1
    check_moments(start, moments)


def check_moments(start: Path, moments: list[Path]) -> set[int]:
    """Check that a dataset is as before or as after, and as is said; return the exit codes."""
    before = tree(start / "start" / "data")
    seen = set()
    for place in moments:
        code, said = int((place / "code").read_text()), (place / "err").read_text()
        seen.add(code)
        changed = 999 in content(place / "data")
        assert "Traceback" not in said
        if code == 1:
            assert said.endswith("interrupted: nothing was changed\n")
            assert not changed
            assert tree(place / "data") == before
        elif code == 0:
            assert changed
            assert all(entry.complete for entry in history(place / "data"))
        else:
            assert code == 3
            assert "'fsspeckit history' shows its state" in said or "hint: " in said
        recover(place / "data")
        assert (999 in content(place / "data")) == changed or code == 3
    return seen


@pytest.mark.parametrize("words", [("plan", "--dry-run"), ("write",)], ids=str)
def test_an_interrupt_of_what_is_not_committing(
    run: Run,
    dataset: Path,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    from fsspeckit.datasets.base import DatasetIO

    def stopped(*arguments: object, **options: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(DatasetIO, "plan_merge" if "plan" in words else "write_dataset", stopped)
    key = ("-k", "id") if "plan" in words else ()
    ran = run(words[0], source, dataset, *key, "--engine", "pyarrow")
    assert ran.code == 1
    assert ran.err == "interrupted: nothing was changed\n"


def test_an_interrupt_before_a_command_works(
    run: Run, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fsspeckit.datasets.inspection.inspect_dataset", stopped)
    ran = run("inspect", dataset)
    assert (ran.code, ran.err) == (1, "interrupted: nothing was changed\n")


class Broken:
    """Something that a Ctrl-C interrupts while a class is created."""

    def __set_name__(self, owner: type, name: str) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("opened", ["open_engine", "inspect_dataset"])
def test_an_interrupt_while_a_class_is_created(
    run: Run, dataset: Path, source: Path, monkeypatch: pytest.MonkeyPatch, opened: str
) -> None:
    """Up to Python 3.11, that is a RuntimeError caused by the interrupt."""

    def stopped(*arguments: object, **options: object) -> None:
        type("Created", (), {"member": Broken()})

    if opened == "open_engine":
        monkeypatch.setattr("fsspeckit.cli.runner.Job._open_engine", stopped)
        ran = run("merge", source, dataset, "-k", "id", "--engine", "pyarrow")
    else:
        monkeypatch.setattr("fsspeckit.datasets.inspection.inspect_dataset", stopped)
        ran = run("inspect", dataset)
    assert (ran.code, ran.err) == (1, "interrupted: nothing was changed\n")


STARTING = """
import signal, sys
from fsspeckit.cli import main

class Pressed:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Pressed())
main()
"""


@pytest.mark.parametrize("module", ["typer", "fsspeckit.cli.app", "typer.main"])
def test_an_interrupt_while_the_command_line_starts(module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STARTING, module], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (1, "interrupted: nothing was changed\n")


class PressedWhileWriting(io.RawIOBase):
    """A stream on whose first write somebody presses Ctrl-C."""

    def __init__(self) -> None:
        self.written = b""
        self._pressed = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if not self._pressed:
            self._pressed = True
            os.kill(os.getpid(), signal.SIGINT)
        self.written += bytes(data)
        return len(data)


def test_an_interrupt_in_the_middle_of_a_write_is_reported_after_it() -> None:
    """The stream refuses to be written to by the handler, in whose middle of a write it runs."""
    raw = PressedWhileWriting()
    stream = io.TextIOWrapper(io.BufferedWriter(raw), line_buffering=True)
    with Interrupts(lambda text: print(text, file=stream)) as interrupts:
        interrupts.watch(lambda phase, done, total: None)("commit", 0, 1)
        print("a bar", file=stream)
        assert interrupts.was_deferred
    first, second = raw.written.decode().splitlines()
    assert first == "a bar"
    assert second.startswith("interrupted: the commit is completed first")


@pytest.mark.parametrize("command", ["merge", "write"])
def test_an_interrupt_after_the_commit(
    run: Run, dataset: Path, source: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def stopped(*arguments: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    shown = {"merge": "merged", "write": "written"}[command]
    monkeypatch.setattr(f"fsspeckit.cli.output.TextOutput.{shown}", stopped)
    ran = run(*COMMANDS[command])
    assert (ran.code, ran.err) == (0, "interrupted after the commit: it is complete\n")
    assert content(dataset)[999]["v"] == "new"


def test_an_interrupt_of_recover(run: Run, dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fsspeckit.storage.recover_storage", stopped)
    ran = run("recover", dataset)
    assert ran.code == 3
    assert ran.err.startswith("interrupted: the next 'fsspeckit recover'")


@pytest.mark.slow
def test_recover_watches_until_ctrl_c(done: Run, dataset: Path, source: Path) -> None:
    done("merge", source, dataset, "-k", "id", "--engine", "pyarrow")
    mark = dataset.parent / ".data.fsspeckit" / "commits" / "0000000001.done.json"
    words = ["recover", str(dataset), "--watch", "--every", "0.1", "--json"]
    program = [sys.executable, "-c", "from fsspeckit.cli import main; main()", *words]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watcher:
        assert watcher.stdout is not None
        assert json.loads(watcher.stdout.readline())["completed"] == []
        for _ in range(2):
            mark.unlink()
            (completed,) = json.loads(watcher.stdout.readline())["completed"]
            assert completed["number"] == 1
            assert mark.exists()
        record = mark.with_name("0000000001.json")
        content = record.read_bytes()
        record.write_bytes(b"damaged")
        mark.unlink()
        assert watcher.stderr is not None
        assert "tried again in 0.1 s" in watcher.stderr.readline()
        record.write_bytes(content)
        (completed,) = json.loads(watcher.stdout.readline())["completed"]
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(20) == 0
        assert watcher.stdout.read() == ""


@pytest.mark.parametrize("is_pending", [False, True])
def test_what_happens_while_recover_watches(
    done: Run,
    run: Run,
    dataset: Path,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_pending: bool,
) -> None:
    done("merge", source, dataset, "-k", "id", "--engine", "pyarrow")
    mark = dataset.parent / ".data.fsspeckit" / "commits" / "0000000001.done.json"
    record = mark.with_name("0000000001.json")
    content = record.read_bytes()

    def damage() -> None:
        mark.unlink()
        record.write_bytes(b"damaged")

    def stop() -> None:
        if is_pending:
            mark.unlink()
        raise KeyboardInterrupt

    events: Iterator[Callable[[], object]] = iter(
        [mark.unlink, damage, lambda: None, partial(record.write_bytes, content), stop]
    )
    monkeypatch.setattr("fsspeckit.cli.commands.inspect.time.sleep", lambda _: next(events)())
    ran = run("recover", dataset, "--watch")
    assert ran.code == (3 if is_pending else 0)
    assert ran.out.count("completed commit 1") == 2
    assert ran.err.count("tried again in 10 s") == 1
    assert mark.exists() != is_pending


def test_an_interrupt_that_was_deferred_ends_a_merge_that_begins_again() -> None:
    said: list[str] = []
    with Interrupts(said.append) as interrupts:
        watched = interrupts.watch(lambda phase, done, total: None)
        watched("commit", 0, 1)
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.was_deferred
        with pytest.raises(KeyboardInterrupt):
            watched("plan", 0, 1)
    assert "completed first" in said[0]


def test_an_interrupt_while_a_merge_plans_again_stops_it() -> None:
    with Interrupts(lambda text: None) as interrupts:
        watched = interrupts.watch(lambda phase, done, total: None)
        for event in (("commit", 0, 1), ("plan", 0, 1)):
            watched(*event)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        watched("insert", 1, 1)
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.was_deferred


def test_a_commit_of_nobody_knows_whom(dataset: Path, source: Path, done: Run) -> None:
    """Stopped by force while another commit was made: it may be ours or not."""
    said: list[str] = []
    storage = open_storage(str(dataset))
    interrupts = Interrupts(said.append)
    interrupts.commit_started = True

    def forced() -> None:
        with report_on_interrupt(storage, interrupts, said.append):
            done("merge", source, dataset, "-k", "id", "--engine", "pyarrow")
            raise KeyboardInterrupt

    with pytest.raises(typer.Exit) as end:
        forced()
    assert end.value.exit_code == 3
    assert "'fsspeckit history' shows its state" in said[0]


def test_a_record_of_which_nobody_knows_whether_it_is_there(dataset: Path) -> None:
    """An object store that was asked to write it may do so after the command has ended."""
    said: list[str] = []
    interrupts = Interrupts(said.append)
    interrupts.commit_started = True
    interrupt = KeyboardInterrupt()
    mark_undecided(interrupt, 1)
    with (
        pytest.raises(typer.Exit) as end,
        report_on_interrupt(open_storage(str(dataset)), interrupts, said.append),
    ):
        raise interrupt
    assert end.value.exit_code == 3
    assert "'fsspeckit history' shows whether it is" in said[0]


def test_ctrl_c_works_as_before_afterwards(dataset: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    with (
        pytest.raises(typer.Exit),
        report_on_interrupt(open_storage(str(dataset)), Interrupts(print), lambda text: None),
    ):
        raise KeyboardInterrupt
    assert signal.getsignal(signal.SIGINT) == before


def _recorded() -> KeyboardInterrupt:
    interrupt = KeyboardInterrupt()
    mark_committed(interrupt, 1)
    return interrupt


def _interrupted_after_record(dataset: Path, said: list[str]) -> None:
    with report_on_interrupt(open_storage(str(dataset)), Interrupts(said.append), said.append):
        raise _recorded()


def test_a_commit_that_was_recorded_is_completed(done: Run, dataset: Path, source: Path) -> None:
    done("merge", source, dataset, "-k", "id", "--engine", "pyarrow")
    for path in (dataset.parent / ".data.fsspeckit" / "commits").iterdir():
        if "fsspeckit-commit-done" in path.read_text():
            path.unlink()
    assert not history(dataset)[0].complete
    said: list[str] = []
    with pytest.raises(typer.Exit) as end:
        _interrupted_after_record(dataset, said)
    assert end.value.exit_code == 0
    assert said == ["interrupted after the commit was recorded: it is complete now"]
    assert history(dataset)[0].complete


def test_a_commit_that_cannot_be_completed_is_pending(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: object, **options: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr("fsspeckit.storage.recover_storage", fails)
    with pytest.raises(CommitPendingError, match="the disk is gone"):
        _interrupted_after_record(dataset, [])


def test_interrupts_that_are_ignored_stay_so() -> None:
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts(lambda text: None):
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, previous)


class Py4JError(Exception):
    """What py4j may make of an interrupt."""


def query(error: Exception) -> None:
    """Does with an interrupt what a library does."""
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        raise error from None


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Query interrupted"),
        Py4JError("Gateway must be connected to send cancel cmd."),
        InvalidArgumentError("the job was cancelled."),
    ],
    ids=["duckdb", "py4j", "our own"],
)
def test_what_a_library_makes_of_an_interrupt_is_one(dataset: Path, error: Exception) -> None:
    said: list[str] = []
    interrupts = Interrupts(said.append)
    with (
        pytest.raises(typer.Exit) as end,
        report_on_interrupt(open_storage(str(dataset)), interrupts, said.append),
        interrupts,
    ):
        query(error)
    assert end.value.exit_code == 1
    assert said == ["interrupted: nothing was changed"]


def test_another_error_is_not_an_interrupt(dataset: Path) -> None:
    interrupts = Interrupts(print)
    with (
        pytest.raises(RuntimeError, match="broken"),
        report_on_interrupt(open_storage(str(dataset)), interrupts, print),
        interrupts,
    ):
        raise RuntimeError("broken")


def publish() -> None:
    """Is interrupted after the commit is recorded."""
    try:
        query(RuntimeError("Query interrupted"))
    except RuntimeError as error:
        raise CommitPendingError.interrupted(1, "data", error) from error


def test_what_is_pending_after_an_interrupt_is_reported(dataset: Path) -> None:
    interrupts = Interrupts(print)
    with (
        pytest.raises(CommitPendingError),
        report_on_interrupt(open_storage(str(dataset)), interrupts, print),
        interrupts,
    ):
        publish()
