"""Two and three writers, switched at every call of the storage, on every kind of store.

Each writer adds its name to a list that is the only file of the dataset, so that a change that is
based on an old state loses a name, and a file that is not removed is a second one. Barriers force
the order of the calls: the first writer takes ``i`` calls, the second ``j``, and so on, then each
goes on to its end.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
import uuid
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from tests.storage.figures import count
from tests.storage.scenario import WEEK, read_contents
from tests.storage.turns import Turns, step_listings, stepped

from fsspeckit.errors import CommitPendingError, ConcurrentModificationError
from fsspeckit.storage import (
    Difference,
    FileChanges,
    Snapshot,
    Stage,
    StagedFile,
    Storage,
    TombstoneChange,
    Transaction,
    commit,
    list_files,
    open_storage,
    read_tombstones,
    recover_storage,
    staging,
    take_snapshot,
)
from fsspeckit.storage.commit import recovery
from fsspeckit.storage.fs import syscalls
from fsspeckit.testing.conformance.stores import (
    OBJECT_STORES,
    long_object_stores,
    object_store,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TORTURE = bool(os.environ.get("TORTURE"))
TO_THE_END = 600
WRITERS = ("ann", "bob", "cem")


@dataclass(frozen=True)
class Store:
    """A kind of store, and how many orders of calls are tried there."""

    name: str
    open: Callable[[str], Storage]
    """Opens a dataset of a name."""

    two: int
    """How many orders of two writers are tried."""

    three: int
    """How many orders of three writers are tried."""

    longer: int = 1_000_000
    """How many times as many are tried in the long form."""

    clear: Callable[[Storage], object] = lambda storage: None


def without_locks(storage: Storage) -> Storage:
    """A disk as it is where the kernel gives no locks: the exclusive create alone decides."""
    flags = replace(storage.capabilities, kernel_lock=False, exchange=False)
    return replace(storage, capabilities=flags)


def remove_from_memory(storage: Storage) -> None:
    """Listings in memory look at every file there is, those of earlier orders too."""
    storage.root.filesystem.rm(storage.root.path.rpartition("/")[0], recursive=True)


def remove_local(storage: Storage) -> None:
    shutil.rmtree(os.path.dirname(storage.root.path))


def untraced(*kinds: str) -> list[Any]:
    """Stores on which the same calls are made as on the others."""
    return [pytest.param(kind, marks=pytest.mark.untraced) for kind in kinds]


@pytest.fixture(
    params=[
        *("memory", "disk"),
        *untraced("disk without locks", "plain publish", *long_object_stores()),
    ]
)
def store(request: pytest.FixtureRequest, quick_disk: str) -> Store:
    kind: str = request.param
    if kind in OBJECT_STORES:
        server = object_store(kind)
        bucket, options = server.make_bucket(), server.options

        def open_bucket(name: str) -> Storage:
            return open_storage(server.at(bucket, f"{name}/data"), storage_options=options)

        return Store(kind, open_bucket, 13, 6, longer=24)
    if kind == "memory":
        base = f"memory://{uuid.uuid4().hex}"
        return Store(
            kind,
            lambda name: open_storage(f"{base}/{name}/data"),
            200,
            80,
            clear=remove_from_memory,
        )
    if kind == "disk without locks":
        return Store(
            kind,
            lambda name: without_locks(open_storage(f"{quick_disk}/{name}/data")),
            80,
            40,
            clear=remove_local,
        )
    mode: Any = "plain" if kind == "plain publish" else "auto"
    return Store(
        kind,
        lambda name: open_storage(f"{quick_disk}/{name}/data", publish=mode),
        60,
        30,
        clear=remove_local,
    )


def write_names(storage: Storage, file: StagedFile, names: list[str]) -> StagedFile:
    data = json.dumps(names).encode()
    storage.root.filesystem.pipe_file(file.path, data)
    return replace(file, size=len(data), parquet=False)


def read_names(storage: Storage, snapshot: Snapshot) -> list[str]:
    (relative,) = snapshot.by_path
    names: list[str] = json.loads(storage.root.filesystem.cat_file(storage.path(relative)))
    return names


def begin(storage: Storage) -> None:
    """Make the dataset: one file with an empty list."""
    storage.backend.make_directories(storage.root.path)
    storage.root.filesystem.pipe_file(storage.path("names.parquet"), b"[]")


def add_name(
    storage: Storage, name: str, outcomes: dict[str, str], transaction: Transaction | None = None
) -> None:
    """Take the whole way of a change, planned again as often as needed."""

    def change(stage: Stage, snapshot: Snapshot) -> FileChanges:
        names = read_names(storage, snapshot)
        return FileChanges(
            [write_names(storage, stage.new_file(), [*names, name])], list(snapshot.by_path)
        )

    while name not in outcomes:
        snapshot = take_snapshot(storage)
        with staging(storage) as stage:

            def replan(
                current: Snapshot, difference: Difference, stage: Stage = stage
            ) -> FileChanges:
                return change(stage, current)

            try:
                planned = change(stage, snapshot)
                outcome = commit(
                    storage,
                    snapshot,
                    stage,
                    planned,
                    replan=replan,
                    retries=50,
                    transaction=transaction,
                )
                outcomes[name] = "done" if outcome.skipped is None else "skipped"
            except FileNotFoundError:
                continue  # the file was replaced while it was read, as merges meet it
            except CommitPendingError:
                outcomes[name] = "pending"
            except ConcurrentModificationError:
                outcomes[name] = "refused"


def add_tombstone(storage: Storage, name: str, outcomes: dict[str, str]) -> None:
    """Add a name to the list that is in the tombstones; no file of the dataset changes."""

    def change() -> FileChanges:
        base, data = read_tombstones(storage, WEEK)
        names = [known for content in data for known in json.loads(content or b"[]")]
        content = json.dumps([*names, name]).encode()
        return FileChanges(tombstones=TombstoneChange(base, (), WEEK, content, 1, time.time()))

    def replan(current: Snapshot, difference: Difference) -> FileChanges:
        return change()

    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        try:
            commit(storage, snapshot, stage, change(), replan=replan, retries=50)
            outcomes[name] = "done"
        except CommitPendingError:
            outcomes[name] = "pending"
        except ConcurrentModificationError:
            outcomes[name] = "refused"


def tombstone_names(storage: Storage) -> list[str]:
    return [name for content in read_contents(storage) for name in json.loads(content)]


class Experiment:
    """Runs writers in an order of their calls, and checks what they leave."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store = store
        self._turns: Turns | None = None
        self._numbers = itertools.count()
        pause = time.sleep
        # Waiting for others is a matter of turns here, not of time.
        monkeypatch.setattr(time, "sleep", lambda seconds: pause(min(seconds, 0.0005)))
        step_listings(monkeypatch, lambda: self._turns)

    def run(
        self,
        writers: int,
        order: list[str],
        lock_timeout: float = 30.0,
        transaction: Transaction | None = None,
        buries: bool = False,
    ) -> int:
        """Run an order of writers of files, or of tombstones; gives the number of calls."""
        number = next(self._numbers)
        storage = self._store.open(f"x{number}")
        begin(storage)
        turns = self._turns = Turns(order)
        mine = stepped(storage, turns, lock_timeout, last_first=bool(number % 2))
        outcomes: dict[str, str] = {}
        local = storage.root.is_local
        act = add_tombstone if buries else partial(add_name, transaction=transaction)
        try:
            with syscalls.observed(turns) if local else nullcontext():
                turns.run(
                    **{
                        name: (lambda name=name: act(mine, name, outcomes))
                        for name in WRITERS[:writers]
                    }
                )
        finally:
            self._turns = None
        if turns.errors:
            raise turns.errors[0]
        self._check(storage, outcomes, tombstone_names(storage) if buries else None)
        if transaction is not None:
            assert [*outcomes.values()].count("skipped") == writers - 1, "applied once"
        self._store.clear(storage)
        return turns.calls

    def _check(self, storage: Storage, outcomes: dict[str, str], buried: list[str] | None) -> None:
        done = sorted(name for name in outcomes if outcomes[name] in ("done", "pending"))
        if "pending" in outcomes.values():
            recover_storage(storage)
        for _ in range(2):  # as they leave it, and after a recovery that has nothing to do
            listing = list_files(storage.root)
            assert len(listing.files) == 1, [file.path for file in listing.files]
            names = read_names(storage, take_snapshot(storage))
            assert sorted(names if buried is None else buried) == done
            assert not recover_storage(storage).completed


def order_of(*calls: int) -> list[str]:
    """Each writer takes so many calls, one after the other, then each goes on to its end."""
    names = WRITERS[: len(calls)]
    first = [name for name, number in zip(names, calls, strict=True) for _ in range(number)]
    return first + [name for name in names for _ in range(TO_THE_END)]


@pytest.fixture
def experiment(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Experiment]:
    yield Experiment(store, monkeypatch)
    if store.name == "memory":
        fsspec.filesystem("memory").store.clear()


def chosen(orders: Sequence[tuple[int, ...]], number: int, longer: int) -> Sequence[Any]:
    """A share of the orders that is the same in every run, and more of them in the long form."""
    most = number * (longer if TORTURE else 1)
    return orders if len(orders) <= most else Random(7).sample(orders, most)


@pytest.mark.slow
def test_two_writers_at_every_call(experiment: Experiment, store: Store) -> None:
    """One is interrupted after any of its calls, the other then after any of its own."""
    calls = experiment.run(1, [])
    # After these a writer has ended even if it had to plan again.
    orders = list(itertools.product(range(calls + 1), range(1, calls + 12)))
    for order in chosen(orders, store.two, store.longer):
        experiment.run(2, order_of(*order))
        count(f"two writers switched at every call, {store.name}", tried=1, losses=0)


@pytest.mark.slow
def test_three_writers_at_every_call(experiment: Experiment, store: Store) -> None:
    calls = experiment.run(1, [])
    steps = range(1, calls + 12)
    orders = list(itertools.product(steps, steps, steps))
    for order in chosen(orders, store.three, min(store.longer, 24)):
        experiment.run(3, order_of(*order))
        count(f"three writers switched at every call, {store.name}", tried=1, losses=0)


def bursts(random: Random, writers: int) -> list[str]:
    """Writers that are switched again and again, each after a few calls."""
    order: list[str] = []
    for _ in range(40):
        order += [random.choice(WRITERS[:writers])] * random.choice((1, 2, 3, 5, 8, 13))
    return order


@pytest.mark.slow
@pytest.mark.parametrize("writers", [2, 3])
def test_writers_that_are_switched_again_and_again(
    experiment: Experiment, store: Store, writers: int
) -> None:
    for seed in range(store.three * (min(store.longer, 24) if TORTURE else 1)):
        experiment.run(writers, bursts(Random(seed), writers))
        count(f"{writers} writers switched again and again, {store.name}", tried=1, losses=0)


@pytest.mark.slow
@pytest.mark.parametrize("writers", [2, 3])
def test_writers_of_one_transaction(experiment: Experiment, store: Store, writers: int) -> None:
    """Switched again and again, one of them commits and the others are skipped."""
    for seed in range(store.three * (min(store.longer, 24) if TORTURE else 1)):
        order = bursts(Random(seed), writers)
        experiment.run(writers, order, transaction=Transaction("feed", 1))
        count(f"{writers} writers of one transaction, {store.name}", tried=1, losses=0)


@pytest.mark.slow
@pytest.mark.parametrize("writers", [2, 3])
def test_writers_of_tombstones(experiment: Experiment, store: Store, writers: int) -> None:
    """None of them loses what another has added, though no file says that it was there."""
    calls = experiment.run(1, [], buries=True)
    steps = range(1, calls + 12)
    orders = list(itertools.product(*[steps] * writers))
    number = store.two if writers == 2 else store.three
    for order in chosen(orders, number // 2, min(store.longer, 24)):
        experiment.run(writers, order_of(*order), buries=True)
        count(f"{writers} writers of tombstones, {store.name}", tried=1, losses=0)


WITHOUT_LOCKS = ["memory", *untraced("disk without locks", *long_object_stores())]


@pytest.mark.slow
@pytest.mark.parametrize("store", WITHOUT_LOCKS, indirect=True)
@pytest.mark.parametrize("writers", [2, 3])
def test_writers_that_take_each_other_for_dead(
    experiment: Experiment, store: Store, writers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit is completed by another writer at once, while its owner goes on itself."""
    monkeypatch.setattr(recovery, "owner_state", lambda storage, name: "unknown")
    for seed in range(store.two * (min(store.longer, 24) if TORTURE else 1)):
        experiment.run(writers, bursts(Random(seed), writers), lock_timeout=0.0)
        count(f"{writers} writers take each other for dead, {store.name}", tried=1, losses=0)


@pytest.mark.slow
@pytest.mark.parametrize("store", WITHOUT_LOCKS, indirect=True)
def test_writers_of_tombstones_that_take_each_other_for_dead(
    experiment: Experiment, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one of them completes and sweeps is not what another still needs."""
    monkeypatch.setattr(recovery, "owner_state", lambda storage, name: "unknown")
    for seed in range(store.three * (min(store.longer, 24) if TORTURE else 1)):
        experiment.run(3, bursts(Random(seed), 3), lock_timeout=0.0, buries=True)
        count(f"writers of tombstones take each other for dead, {store.name}", tried=1, losses=0)
