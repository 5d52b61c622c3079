"""Random commits, crashes, recoveries and foreign changes, against a model of the directory."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.storage.checks import assert_tidy
from tests.storage.figures import count

from fsspeckit.errors import (
    CommitPendingError,
    ConcurrentModificationError,
    LostFileError,
    NotRestorableError,
)
from fsspeckit.storage import (
    FileChanges,
    Retention,
    StagedFile,
    clean_storage,
    commit,
    history_of,
    open_storage,
    pending_numbers,
    recover_storage,
    restore_storage,
    stable_files,
    staging,
    take_snapshot,
)
from fsspeckit.storage.commit.folding import fold_records
from fsspeckit.storage.commit.log import read_record
from fsspeckit.storage.fs import syscalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fsspeckit.storage import Call, Snapshot, Stage, Storage

TORTURE = bool(os.environ.get("TORTURE"))
PARTITIONS = ("", "p=0", "p=1", "q=1/r=2")
MODES = st.sampled_from(["auto", "plain", "without locks"])
STEPS = st.integers(0, 90)


class Death(BaseException):
    """The process is dead: nothing that it would still do happens."""


class Dying:
    """Dies at a call, and fails every later one, so that no cleaning up can happen."""

    def __init__(self, at: int, action: Callable[[], None] | None = None) -> None:
        self._at = at
        self.calls = 0
        self._action = action

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        index = self.calls
        self.calls += 1
        if index == self._at and self._action is not None:
            self._action()
        elif index >= self._at and self._action is None:
            raise Death
        yield


class RefusingRemovals:
    """A disk that does not let files go, from the n-th of them on."""

    def __init__(self, at: int) -> None:
        self.paths: set[str] = set()
        self._at = at
        self._let_go: set[str] = set()

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        path = call.paths[0]
        if call.name in ("unlink", "rename", "rename_new") and path in self.paths:
            if len(self._let_go | {path}) > self._at:
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
            self._let_go.add(path)
        yield


class Directory(RuleBasedStateMachine):
    """A dataset, and what it should hold."""

    def __init__(self) -> None:
        super().__init__()
        memory = "/dev/shm"
        self.base = tempfile.mkdtemp(dir=memory if os.path.isdir(memory) else None)
        self.elsewhere = tempfile.mkdtemp()
        self.root = os.path.realpath(self.base) + "/data"
        self.files: dict[str, bytes] = {}
        self.names = 0
        self.linked = False
        self.kept_from = 0
        """Of which states a clean has left the files."""
        self.states: list[Counter[bytes]] = [Counter()]
        """What the dataset held after each commit."""
        self.foreign: list[tuple[int, bytes | None, bytes | None]] = []
        """What other programs did: after which commit, what went, what came."""
        self.replaced_after = -1
        """After which commit another program has last changed or deleted a file."""

    @initialize(linked=st.sampled_from([None, "p=1", "q=1"]))
    def begin(self, linked: str | None) -> None:
        """A partition may be a link to another disk."""
        if linked is not None:
            self.linked = True
            os.mkdir(self.root)
            os.symlink(self.elsewhere, os.path.join(self.root, linked))

    def teardown(self) -> None:
        recover_storage(self.storage())
        fold_records(self.storage())
        assert self.visible() == self.files
        assert_tidy(self.root)
        shutil.rmtree(self.base)
        shutil.rmtree(self.elsewhere)
        count("state machine", tried=1, losses=0)

    def storage(self, mode: Any = "auto") -> Storage:
        if mode != "without locks":
            return open_storage(self.root, publish=mode)
        storage = open_storage(self.root, publish="plain", lock_timeout=0.0)
        flags = replace(storage.capabilities, kernel_lock=False)
        return replace(storage, capabilities=flags)

    def committed(self, number: int) -> None:
        """Remember what the dataset holds after a commit, unless it is not a new one."""
        self.states += [Counter(self.files.values())] * (number + 1 - len(self.states))

    def as_of(self, number: int) -> Counter[bytes]:
        """What a state holds now: with all that other programs have done since."""
        found = Counter(self.states[number])
        for after, gone, came in self.foreign:
            if after >= number:
                found.subtract([] if gone is None else [gone])
                found.update([] if came is None else [came])
        return found

    def by_others(self, name: str, came: bytes | None) -> None:
        """Remember that another program has changed a file."""
        number = pending_numbers(self.storage())[0]
        if os.path.exists(os.path.join(self.root, name)) or came is None:
            self.replaced_after = number
        self.foreign.append((number, self.files.pop(name, None), came))
        if came is not None:
            self.files[name] = came

    def visible(self) -> dict[str, bytes]:
        """What any program finds."""
        found = {}
        for directory, _, names in os.walk(self.root, followlinks=True):
            for name in names:
                path = os.path.join(directory, name)
                if name.endswith(".parquet"):
                    with open(path, "rb") as file:
                        found[os.path.relpath(path, self.root)] = file.read()
        return found

    def by_age(self, names: Iterable[str]) -> list[str]:
        """Sort names by their contents, which are numbered; the names are others in each run."""
        seen = self.visible()
        return sorted(names, key=lambda name: (int(seen.get(name, b"content 0")[8:]), name))

    def content(self) -> bytes:
        self.names += 1
        return b"content %d" % self.names

    def change(
        self, stage: Stage, snapshot: Snapshot, draw: Any
    ) -> tuple[FileChanges, dict[str, bytes]]:
        """Stage a random change; gives it, and the state that it leads to."""
        names = self.by_age(snapshot.by_path)
        removes = draw.draw(st.sets(st.sampled_from(names)) if names else st.just(set()))
        state = {name: data for name, data in self.files.items() if name not in removes}
        adds = []
        for partition in draw.draw(st.lists(st.sampled_from(PARTITIONS), max_size=3)):
            file = stage.new_file(partition)
            adds.append(self.staged(file, state))
        ordered = self.by_age(removes)
        for name in ordered[:1] if draw.draw(st.booleans()) else ():
            adds.append(self.staged(stage.new_copy(name), state))
        return FileChanges(adds, ordered), state

    def staged(self, file: StagedFile, state: dict[str, bytes]) -> StagedFile:
        data = self.content()
        with open(file.path, "wb") as target:
            target.write(data)
        state[file.final] = data
        return StagedFile(file.path, file.final, size=len(data), parquet=False)

    @rule(mode=MODES, draw=st.data())
    def commits(self, mode: str, draw: Any) -> None:
        storage = self.storage(mode)
        snapshot = take_snapshot(storage)
        assert {name: self.files[name] for name in snapshot.by_path} == self.files
        with staging(storage) as stage:
            change, state = self.change(stage, snapshot, draw)
            outcome = commit(storage, snapshot, stage, change)
        self.files = state
        assert self.visible() == state
        self.committed(outcome.number)
        count("state machine", commits=1)

    @rule(mode=MODES, at=STEPS, draw=st.data())
    def dies_while_committing(self, mode: str, at: int, draw: Any) -> None:
        storage = self.storage(mode)
        snapshot = take_snapshot(storage)
        state = self.files
        stage = None
        try:
            with syscalls.observed(Dying(at)), staging(storage) as stage:
                change, state = self.change(stage, snapshot, draw)
                commit(storage, snapshot, stage, change)
        except Death:
            pass
        if stage is not None:
            stage.release()  # as the system does for a dead process
        number = pending_numbers(storage)[0]
        if number > snapshot.number:
            self.files = state
            self.committed(number)
        count("state machine", crashes=1)

    @rule(mode=MODES, at=st.integers(0, 4), abandons=st.booleans(), draw=st.data())
    def cannot_remove_a_file(self, mode: str, at: int, abandons: bool, draw: Any) -> None:
        """The commit stays pending, and can be completed later, or be given up."""
        storage = self.storage(mode)
        snapshot = take_snapshot(storage)
        refusing = RefusingRemovals(at)
        try:
            with syscalls.observed(refusing), staging(storage) as stage:
                change, state = self.change(stage, snapshot, draw)
                refusing.paths = {storage.path(path) for path in change.removes}
                commit(storage, snapshot, stage, change)
            self.files = state
        except CommitPendingError:
            before, self.files = self.files, state
            # What went for good cannot come back: the only way is forward then.
            with suppress(LostFileError), syscalls.observed(refusing):
                if abandons:
                    recover_storage(storage, abandon=True)
                    self.files = before
        self.committed(pending_numbers(storage)[0])
        count("state machine", commits=1)

    @rule(mode=MODES, at=STEPS, draw=st.data())
    def meets_a_foreign_writer(self, mode: str, at: int, draw: Any) -> None:
        storage = self.storage(mode)
        snapshot = take_snapshot(storage)
        name, data = f"foreign-{self.names}.parquet", self.content()
        theirs: dict[str, bytes] = {}

        def append() -> None:
            self.put(name, data)
            theirs[name] = data
            self.foreign.append((pending_numbers(self.storage())[0], None, data))

        try:
            with syscalls.observed(Dying(at, append)), staging(storage) as stage:
                change, state = self.change(stage, snapshot, draw)
                commit(storage, snapshot, stage, change)
            self.files = {**state, **theirs}
        except ConcurrentModificationError:
            self.files = {**self.files, **theirs}
        else:
            # The state that the commit made; the other program's file may have come before it.
            self.states += [Counter(state.values())] * (
                pending_numbers(storage)[0] + 1 - len(self.states)
            )
            if theirs and self.foreign[-1][0] < pending_numbers(storage)[0]:
                self.states[-1] = self.states[-1] + Counter(theirs.values())
        assert self.visible() == self.files

    @rule(at=STEPS)
    def dies_while_recovering(self, at: int) -> None:
        try:
            with syscalls.observed(Dying(at)):
                recover_storage(self.storage())
        except Death:
            pass

    @rule()
    def recovers(self) -> None:
        recover_storage(self.storage())
        assert self.visible() == self.files
        assert_tidy(self.root, folded=False)

    def put(self, name: str, data: bytes) -> None:
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        hidden = os.path.join(os.path.dirname(path), ".theirs")
        with open(hidden, "wb") as file:
            file.write(data)
        os.replace(hidden, path)

    @rule(partition=st.sampled_from(PARTITIONS))
    def foreign_append(self, partition: str) -> None:
        name = os.path.join(partition, f"foreign-{self.names}.parquet")
        self.by_others(name, self.content())
        self.put(name, self.files[name])

    def unpublished(self) -> set[str]:
        """Files that a commit adds which is not complete: deleting those is another story."""
        storage = self.storage()
        records = (read_record(storage, number) for number in pending_numbers(storage)[1])
        return {add.final for record in records for add in record.adds}

    @precondition(lambda self: self.visible().keys() - self.unpublished())
    @rule(draw=st.data())
    def foreign_delete(self, draw: Any) -> None:
        name = draw.draw(st.sampled_from(self.by_age(self.visible().keys() - self.unpublished())))
        self.by_others(name, None)
        os.unlink(os.path.join(self.root, name))

    @precondition(lambda self: self.visible().keys() - self.unpublished())
    @rule(draw=st.data())
    def foreign_replace(self, draw: Any) -> None:
        name = draw.draw(st.sampled_from(self.by_age(self.visible().keys() - self.unpublished())))
        self.by_others(name, self.content())
        self.put(name, self.files[name])

    @precondition(lambda self: len(self.states) > 1)
    @rule(mode=MODES, at=st.none() | STEPS, back=st.integers(0, 4))
    def restores(self, mode: str, at: int | None, back: int) -> None:
        """Bring back an earlier state, or die on the way; whatever others have added stays."""
        storage = self.storage(mode)
        recover_storage(storage)
        last = pending_numbers(storage)[0]
        number = max(0, last - back)
        expected = self.as_of(number)
        died = refused = False
        try:
            with syscalls.observed(Dying(10_000 if at is None else at)):
                restore_storage(storage, number)
        except NotRestorableError:
            refused = True
        except Death:
            died = True
        if refused:
            assert self.may_be_refused(number, last)
            assert self.visible() == self.files
            count("state machine", refused=1)
            return
        recovered = pending_numbers(storage)[0]
        recover_storage(storage)
        found = self.visible()
        if recovered == last and died:
            assert found == self.files
            return
        assert Counter(found.values()) == +expected
        assert min(expected.values(), default=0) >= 0
        self.files = found
        self.committed(recovered)
        count("state machine", restored=1)

    def may_be_refused(self, number: int, last: int) -> bool:
        """Whether there is a reason why a state cannot come back."""
        is_old = last - number > Retention().commits or number < self.kept_from
        return self.linked or is_old or self.replaced_after >= number

    @rule(mode=MODES, at=st.none() | STEPS, keeps=st.integers(0, 3))
    def cleans(self, mode: str, at: int | None, keeps: int) -> None:
        storage = replace(self.storage(mode), retention=Retention(keeps or 3))
        planned = clean_storage(storage)
        with suppress(Death), syscalls.observed(Dying(10_000 if at is None else at)):
            report = clean_storage(storage, dry_run=False)
            assert {item.name for item in planned.items} <= {item.name for item in report.items}
        if keeps:
            self.kept_from = max(self.kept_from, pending_numbers(storage)[0] - keeps)

    @invariant()
    def the_history_has_every_commit(self) -> None:
        last = pending_numbers(self.storage())[0]
        assert [entry.number for entry in history_of(self.storage())] == [*range(1, last + 1)]

    @invariant()
    def our_readers_see_the_model(self) -> None:
        seen = {}
        for pinned in stable_files(self.storage()).files:
            with open(pinned.file.path, "rb") as file:
                seen[pinned.relative] = file.read()
        assert seen == self.files


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_random_histories() -> None:
    run_state_machine_as_test(
        Directory,
        settings=settings(
            max_examples=1500 if TORTURE else 60, stateful_step_count=25, deadline=None
        ),
    )
