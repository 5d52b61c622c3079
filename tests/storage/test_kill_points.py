"""A writer dies at every call that changes the disk; what it leaves must be recoverable."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.storage.checks import (
    assert_files,
    assert_tidy,
    assert_untouched,
    read_consistently,
    read_plainly,
    remember,
)
from tests.storage.figures import count
from tests.storage.forkserver import DIED
from tests.storage.scenario import FLAT, PARTITIONED, SCENARIOS, fresh, run_commit

from fsspeckit.errors import CommitPendingError, FsspeckitError
from fsspeckit.storage import open_storage, recover_storage
from fsspeckit.storage.commit.log import list_records
from fsspeckit.storage.fs import syscalls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.storage.checks import Seen
    from tests.storage.conftest import ForkServer
    from tests.storage.scenario import Scenario

    from fsspeckit.storage import Call

TORTURE = bool(os.environ.get("TORTURE"))
MODES = {"exchange": "auto", "plain": "plain"}
EVERY = pytest.mark.parametrize("scenario", list(SCENARIOS.values()), ids=lambda item: item.name)
MAIN_SCENARIOS = [FLAT, PARTITIONED]
MAIN = pytest.mark.parametrize(
    "scenario",
    list(SCENARIOS.values()) if TORTURE else MAIN_SCENARIOS,
    ids=lambda item: item.name,
)
BOTH = pytest.mark.parametrize("mode", list(MODES))


def check_crash(scenario: Scenario, root: str, mode: str, seen: Seen, title: str) -> None:
    """What must hold before recovery, after it, and after a second one."""
    storage = open_storage(root, publish="plain" if mode == "plain" else "auto")
    committed = bool(list_records(storage).recorded)
    expected = scenario.new() if committed else scenario.old()
    if mode == "exchange":
        assert read_plainly(root) in (scenario.old(), scenario.new())
    assert read_consistently(storage) == expected
    recover_storage(storage)
    losses = int(read_plainly(root) != expected)
    count(title, tried=1, losses=losses, **{"new" if committed else "old": 1})
    assert not losses
    assert_files(scenario, root, new=committed)
    assert_untouched(seen, root)
    assert_tidy(root)
    assert not recover_storage(storage)


def total_calls(server: ForkServer, scenario: Scenario, root: str, mode: str) -> list[str]:
    """The calls of a commit that nobody disturbs."""
    answer = server.run("commit", root, scenario=scenario.name, publish=MODES[mode], fresh=True)
    assert answer["exit"] == 0
    assert read_plainly(root) == scenario.new()
    calls: list[str] = answer["calls"]
    assert ("exchange" in calls) == (mode == "exchange" and scenario.name != "creating")
    return calls


def deaths(calls: list[str], *, every: bool) -> Iterator[tuple[int, str]]:
    """Before and after each call, and in the middle of those that write."""
    for index, name in enumerate(calls):
        yield index, "before"
        if every:
            yield index, "after"
        if name == "write":
            yield index, "torn"
    if calls:
        yield len(calls) - 1, "after"


def crashes(
    server: ForkServer, scenario: Scenario, base: str, requests: Iterable[dict[str, Any]]
) -> Iterator[tuple[str, Seen]]:
    """Let a child die for each request; while one crash is looked at, the next one happens."""
    previous: tuple[str, Seen] | None = None
    for number, request in enumerate(requests):
        root = fresh(scenario, f"{base}/{number % 2}")
        seen = remember(scenario, root)
        if previous is not None:
            assert server.end()["exit"] == DIED
        server.begin(root=root, scenario=scenario.name, **request)
        if previous is not None:
            yield previous
        previous = root, seen
    if previous is not None:
        assert server.end()["exit"] == DIED
        yield previous


@BOTH
@EVERY
@pytest.mark.slow
def test_death_at_every_call(
    fork_server: ForkServer, quick_disk: str, scenario: Scenario, mode: str
) -> None:
    title = f"killed at every call, {scenario.name}, {mode}"
    calls = total_calls(fork_server, scenario, f"{quick_disk}/x/data", mode)
    requests = (
        {"action": "commit", "publish": MODES[mode], "kill": index, "when": when}
        for index, when in deaths(calls, every=TORTURE or scenario in MAIN_SCENARIOS)
    )
    for root, seen in crashes(fork_server, scenario, quick_disk, requests):
        check_crash(scenario, root, mode, seen, title)


@BOTH
@MAIN
@pytest.mark.slow
def test_death_of_recovery_at_every_call(
    fork_server: ForkServer, quick_disk: str, scenario: Scenario, mode: str
) -> None:
    root = f"{quick_disk}/x/data"
    title = f"recovery killed at every call, {scenario.name}, {mode}"
    calls = total_calls(fork_server, scenario, root, mode)
    common: dict[str, Any] = {"action": "recover", "publish": MODES[mode]}
    for index in range(0, len(calls), 1 if TORTURE else 23):
        fresh(scenario, os.path.dirname(root))
        crash = {"action": "commit", "kill": index, "when": "before"}
        request = {**common, "scenario": scenario.name, "after": crash}
        recovery = fork_server.run(root=root, **request)["calls"]
        requests = (
            {**common, "after": crash, "kill": point, "when": when}
            for point, when in deaths(recovery, every=False)
        )
        for died, seen in crashes(fork_server, scenario, quick_disk, requests):
            check_crash(scenario, died, mode, seen, title)


class Failing:
    """Fails one call, or that one and all that follow."""

    def __init__(self, at: int, when: str, *, forever: bool) -> None:
        self.count = 0
        self._at = at
        self._when = when
        self._forever = forever

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        index = self.count
        self.count += 1
        hit = index == self._at or (self._forever and index > self._at)
        if hit and (self._when == "before" or index > self._at):
            raise OSError(errno.EIO, "injected", call.paths[0])
        yield
        if hit:
            raise OSError(errno.EIO, "injected", call.paths[0])


@pytest.mark.parametrize("forever", [False, True] if TORTURE else [False])
@BOTH
@MAIN
@pytest.mark.slow
def test_error_at_every_call(quick_disk: str, scenario: Scenario, mode: str, forever: bool) -> None:
    root = f"{quick_disk}/{mode}/data"
    title = f"{'errors from' if forever else 'error at'} every call, {scenario.name}, {mode}"
    index = 0
    finished = False
    while not finished:
        for when in ("before", "after"):
            fresh(scenario, os.path.dirname(root))
            seen = remember(scenario, root)
            failing = Failing(index, when, forever=forever)
            outcome = _outcome(scenario, root, mode, failing)
            finished = failing.count <= index
            if outcome == "done":
                assert read_plainly(root) == scenario.new()
            elif outcome == "unchanged":
                assert read_plainly(root) == scenario.old()
                assert not list_records(open_storage(root)).recorded
            else:
                assert list_records(open_storage(root)).recorded == [1]
            check_crash(scenario, root, mode, seen, title)
            count(title, **{outcome: 1})
        index += 1


def _outcome(scenario: Scenario, root: str, mode: str, failing: Failing) -> str:
    """The three outcomes, told apart by type alone."""
    try:
        with syscalls.observed(failing):
            run_commit(scenario, root, publish=MODES[mode])
    except CommitPendingError:
        return "pending"
    except (OSError, FsspeckitError):
        return "unchanged"
    return "done"
