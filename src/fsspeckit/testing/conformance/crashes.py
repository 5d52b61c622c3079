"""Disks that fail at any call, and random sequences of writes, merges, crashes and recoveries."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

import errno
import os
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fsspeckit import errors
from fsspeckit.core.keys import family
from fsspeckit.storage import history, open_storage, recover
from fsspeckit.storage.fs import syscalls
from fsspeckit.testing.conformance.merging import three_files
from fsspeckit.testing.conformance.planning import KEPT
from fsspeckit.testing.conformance.stores import (
    OBJECT_STORES,
    STORES,
    TORTURE,
    Store,
    every_store,
    hive,
    open_store,
)
from fsspeckit.testing.conformance.target import Target, as_table, expect, line, lines, numbers
from fsspeckit.testing.duplicates_model import remaining_rows
from fsspeckit.testing.model import STRATEGIES, merge_rows
from fsspeckit.testing.strategies import datasets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fsspeckit.storage import Call
    from fsspeckit.testing.model_source import Row
    from fsspeckit.testing.strategies import GeneratedDataset

__all__ = ["CrashTests", "GeneratedTests"]

# A crash at every call takes a minute on an object store.
EVERY_KIND = pytest.mark.parametrize("kind", every_store() if TORTURE else STORES)
EVERY_DISK = pytest.mark.parametrize("kind", every_store() if TORTURE else STORES[:2])
ONE_DISK = pytest.mark.parametrize("kind", every_store() if TORTURE else STORES[:1])
_KINDS = (*STORES, *OBJECT_STORES) if TORTURE else STORES


def some(count: int, **options: Any) -> settings:
    """Settings for so many examples; the variable FSSPECKIT_EXAMPLES multiplies them."""
    factor = float(os.environ.get("FSSPECKIT_EXAMPLES", "1"))
    allowed = [
        HealthCheck.differing_executors,  # every engine runs the same tests
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ]
    examples = max(1, int(count * factor))
    return settings(max_examples=examples, deadline=None, suppress_health_check=allowed, **options)


class Failing:
    """A disk that fails at one call and at all that follow: nothing can be mended any more."""

    def __init__(self, at: float) -> None:
        self.count = 0
        self._at = at

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        self.count += 1
        if self.count > self._at:
            raise OSError(errno.EIO, "injected", call.paths[0])
        yield


def committed(failing: Failing, act: Callable[[], Any]) -> bool:
    """Act on a failing disk; the type of the error alone says what became of it."""
    with syscalls.observed(failing):
        try:
            act()
        except errors.CommitPendingError:
            return True
        except (OSError, errors.FsspeckitError):
            return False
    return True


def _upsert(target: Target, source: pa.Table) -> None:
    target.io.merge(source, target.store.path, "upsert", ["id"])


class CrashTests:
    """After a crash the dataset is in its old or its new state, and never between."""

    def _open(self, stack: ExitStack, connect: Callable[..., Any], kind: str) -> Target:
        store = stack.enter_context(open_store(self._supported(kind)))
        return Target(stack.enter_context(connect(**store.options)), store)

    def _supported(self, kind: str) -> str:
        if kind == "memory" and not getattr(self, "supports_memory_filesystem", True):
            pytest.skip("this engine cannot read a filesystem of this process")
        return kind

    @EVERY_KIND
    @pytest.mark.parametrize("strategy", ["upsert", "full_merge"])
    def test_a_merge_that_dies_at_any_call(
        self, connect: Callable[..., Any], kind: str, strategy: str
    ) -> None:
        source = numbers(2, 4, 8, v="new")
        old = [*numbers(*range(1, 8)).to_pylist()]
        new = merge_rows(old, source.to_pylist(), strategy, ["id"]).rows

        def act(target: Target) -> Any:
            return target.io.merge(source, target.store.path, strategy, ["id"])

        self._die_everywhere(connect, kind, act, lines(old), lines(new))

    @EVERY_KIND
    def test_an_overwrite_that_dies_at_any_call(
        self, connect: Callable[..., Any], kind: str
    ) -> None:
        def act(target: Target) -> Any:
            return target.io.write_dataset(numbers(8, 9), target.store.path, mode="overwrite")

        old, new = numbers(*range(1, 8)), numbers(8, 9)
        self._die_everywhere(connect, kind, act, lines(old), lines(new))

    @EVERY_KIND
    def test_a_compaction_that_dies_at_any_call(
        self, connect: Callable[..., Any], kind: str
    ) -> None:
        rows = lines(numbers(*range(1, 8)))
        self._die_everywhere(
            connect, kind, lambda target: target.io.compact(target.store.path), rows, rows
        )

    @EVERY_DISK
    @pytest.mark.parametrize("call", ["deduplicate", "repartition"])
    def test_a_change_of_all_rows_that_dies_at_any_call(
        self, connect: Callable[..., Any], kind: str, call: str
    ) -> None:
        def act(target: Target) -> Any:
            if call == "deduplicate":
                return target.io.deduplicate(target.store.path, "v", "id")
            return target.io.repartition(target.store.path, "v")

        old = lines(numbers(*range(1, 8)))
        self._die_everywhere(connect, kind, act, old, old[-1:] if call == "deduplicate" else old)

    @ONE_DISK
    @pytest.mark.parametrize("call", ["undo", "restore"])
    def test_a_way_back_that_dies_at_any_call(
        self, connect: Callable[..., Any], kind: str, call: str
    ) -> None:
        def prepare(target: Target) -> None:
            for number in (8, 9):
                target.io.write_dataset(numbers(number), target.store.path)

        def act(target: Target) -> Any:
            io, path = target.io, target.store.path
            return io.undo(path) if call == "undo" else io.restore(path, 0)

        old = lines(numbers(*range(1, 10)))
        new = old[:8] if call == "undo" else old[:7]
        self._die_everywhere(connect, kind, act, old, new, prepare)

    @ONE_DISK
    def test_an_overwrite_of_partitions_that_dies_at_any_call(
        self, connect: Callable[..., Any], kind: str
    ) -> None:
        def prepare(target: Target) -> None:
            target.io.repartition(target.store.path, "v")
            target.io.write_dataset(numbers(8, v="kept"), target.store.path)

        def act(target: Target) -> Any:
            source = numbers(9, v="old")
            return target.io.write_dataset(source, target.store.path, mode="overwrite_partitions")

        kept, rows = lines(numbers(8, v="kept")), numbers(*range(1, 8))
        old, new = lines(rows) + kept, lines(numbers(9, v="old")) + kept
        self._die_everywhere(connect, kind, act, old, new, prepare)

    @ONE_DISK
    def test_a_merge_with_new_columns_that_dies_at_any_call(
        self, connect: Callable[..., Any], kind: str
    ) -> None:
        source = numbers(2, 8, v="new")
        rows = numbers(*range(1, 8)).to_pylist()
        new = merge_rows(rows, source.to_pylist(), "upsert", ["id"]).rows
        source = source.append_column("n", pa.array([1, 2]))
        options: Any = {"schema_changes": "add", "target_file_bytes": 10**6}

        def act(target: Target) -> Any:
            return target.io.merge(source, target.store.path, "upsert", ["id"], **options)

        self._die_everywhere(connect, kind, act, lines(rows), lines(new))

    def _die_everywhere(
        self,
        connect: Callable[..., Any],
        kind: str,
        act: Callable[[Target], Any],
        old: tuple[str, ...],
        new: tuple[str, ...],
        prepare: Callable[[Target], object] = lambda _: None,
    ) -> None:
        outcomes = Counter[bool]()
        calls = self._die(connect, kind, act, 10**9, old, new, outcomes, prepare)
        step = max(1, int(calls / (16 * float(os.environ.get("FSSPECKIT_EXAMPLES", "1")))))
        for at in range(0, calls, step):
            self._die(connect, kind, act, at, old, new, outcomes, prepare)
        assert outcomes[True] > 1
        assert outcomes[False] > 1

    def _die(
        self,
        connect: Callable[..., Any],
        kind: str,
        act: Callable[[Target], Any],
        at: int,
        old: tuple[str, ...],
        new: tuple[str, ...],
        outcomes: Counter[bool],
        prepare: Callable[[Target], object],
    ) -> int:
        with ExitStack() as stack:
            target = self._open(stack, connect, kind)
            three_files(target)
            prepare(target)
            failing = Failing(at)
            done = committed(failing, lambda: act(target))
            outcomes[done] += 1
            expected = sorted(new if done else old)
            seen = as_table(target.io.read_dataset(target.store.path)).select(["id", "v"])
            assert sorted(lines(seen)) == expected, f"read before recovery, died at call {at}"
            recover(target.store.path, **target.store.opening)
            found = sorted(target.rows(numbers().schema).elements())
            assert found == expected, f"on disk after recovery, died at call {at}"
            return failing.count

    @EVERY_KIND
    def test_the_next_merge_recovers(self, connect: Callable[..., Any], kind: str) -> None:
        source = numbers(2, 8, v="new")
        for at in range(5, 60, 9):
            with ExitStack() as stack:
                target = self._open(stack, connect, kind)
                three_files(target)
                committed(Failing(at), partial(_upsert, target, source))
                _upsert(target, source)
                target.merge(source)
                assert sum(target.rows(source.schema).values()) == 8

    def test_filesystem_errors_keep_their_type_and_name_the_path(self, target: Target) -> None:
        @contextmanager
        def forbidden(call: Call) -> Iterator[None]:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), call.paths[0])
            yield

        three_files(target)
        before = target.store.tree()
        with syscalls.observed(forbidden), pytest.raises(PermissionError, match=r"/"):
            target.io.merge(numbers(1, v="new"), target.store.path, "upsert", ["id"])
        assert target.store.tree() == before


class GeneratedTests:
    """Generated data against the model."""

    @given(data=st.data())
    @some(60)
    def test_generated_merges_agree_with_the_model(
        self, connect: Callable[..., Any], data: st.DataObject
    ) -> None:
        nulls, twice, moving = (
            data.draw(st.booleans(), label=n) for n in ("nulls", "twice", "moving")
        )
        dataset = data.draw(
            datasets(null_source_keys=nulls, duplicate_source_keys=twice, moving_keys=moving)
        )
        strategy = data.draw(st.sampled_from(list(STRATEGIES)), label="strategy")
        policy = data.draw(st.sampled_from(["error", "first", "last"]), label="duplicate_keys")
        options: dict[str, Any] = {
            "null_keys": "match" if nulls else "error",
            "duplicate_keys": policy,
        }
        with ExitStack() as stack:
            store = stack.enter_context(open_store("exchange"))
            target = Target(stack.enter_context(connect(**store.options)), store)
            dataset.write(store.local)
            target.knows(dataset.schema)
            source = dataset.source
            if strategy not in ("insert", "delete"):
                source = _draw_rules(data, dataset, options)
            files = target.files(dataset.schema)
            self._merge(target, files, source, strategy, dataset.key_columns, options)

    def _merge(
        self,
        target: Target,
        files: dict[str, list[Row]],
        source: pa.Table,
        strategy: str,
        keys: tuple[str, ...],
        options: dict[str, Any],
    ) -> None:
        try:
            expected = expect(files, source.to_pylist(), strategy, keys, options)
        except ValueError as refused:
            kind = type(refused)
            target.refuses(
                ValueError if kind is errors.InvalidArgumentError else kind,
                source,
                strategy,
                keys,
                **options,
            )
            return
        plan = target.plan(source, strategy, keys, **options)
        kept = {name for name, decision in target.decisions(plan).items() if decision in KEPT}
        assert files.keys() - expected.preserved <= kept
        target.merge(source, strategy, keys, **options)

    def test_sequences_of_writes_merges_crashes_and_recoveries(
        self, connect: Callable[..., Any]
    ) -> None:
        memory = getattr(self, "supports_memory_filesystem", True)
        run_state_machine_as_test(
            cast("type[RuleBasedStateMachine]", partial(DatasetMachine, connect, memory=memory)),
            settings=some(25, stateful_step_count=10),
        )


def _draw_rules(
    data: st.DataObject, dataset: GeneratedDataset, options: dict[str, Any]
) -> pa.Table:
    """Draw what decides about matching rows; return the source with the marks of deletions."""
    stored = [f for f in dataset.schema if f.name not in dataset.partition_columns]
    ordered = [field.name for field in stored if family(field.type) is not None]
    changes = st.sampled_from(["refuse", "move"])
    options["partition_change"] = data.draw(changes, label="partition_change")
    options["only_newer"] = data.draw(st.sampled_from([None, *ordered]), label="only_newer")
    if not data.draw(st.booleans(), label="delete_when"):
        return dataset.source
    count = dataset.source.num_rows
    flags = data.draw(st.lists(st.booleans(), min_size=count, max_size=count), label="marks")
    options["delete_when"] = "marks a deletion"
    return dataset.source.append_column("marks a deletion", pa.array(flags, pa.bool_()))


_SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("p", pa.string())])
_PARTITION_VALUES = ("a", "b c", None)
_PARTITION = pa.schema([_SCHEMA.field("p")])
_MODES = ("append", "overwrite", "overwrite_partitions")
_ROWS = st.lists(
    st.fixed_dictionaries({"id": st.integers(0, 9), "v": st.integers(0, 2)}),
    max_size=6,
    unique_by=lambda row: row["id"],
)
_SOME_ROWS = _ROWS.filter(bool)
_TARGET_SIZES = st.sampled_from([2_000, 1_000_000])

_State = tuple[list["Row"], list[str] | None, bool]
"""Rows, partition columns, and whether there is an extra column."""

_FAIL_AT = st.none() | st.integers(0, 70)


def _table(rows: list[dict[str, int]]) -> pa.Table:
    """Rows with their partition: a function of the key, so that no key ever moves."""
    placed = [{**row, "p": _PARTITION_VALUES[row["id"] % 3]} for row in rows]
    return pa.Table.from_pylist(placed, _SCHEMA)


class DatasetMachine(RuleBasedStateMachine):
    """One dataset, and what it must hold."""

    def __init__(self, connect: Callable[..., Any], *, memory: bool) -> None:
        super().__init__()
        self._connect = connect
        self._memory = memory
        self._stack = ExitStack()
        self._rows: list[Row] | None = None
        self._crashed = False
        self._guests = 0
        self._has_extra = False
        """Whether there is a column ``extra``, which is NULL in every row."""

        self._states: dict[int, _State] = {}
        """By commit: what the dataset held after it."""

    @initialize(kind=st.sampled_from(_KINDS), partitioned=st.booleans())
    def open(self, kind: str, partitioned: bool) -> None:
        """Choose a storage and a layout."""
        usable = kind if self._memory or kind != "memory" else "plain"
        self._store: Store = self._stack.enter_context(open_store(usable))
        io = self._stack.enter_context(self._connect(**self._store.options))
        self._target = Target(io, self._store)
        self._target.knows(_SCHEMA)
        self._parts = ["p"] if partitioned else None

    @rule(rows=_SOME_ROWS, mode=st.sampled_from(_MODES), fail_at=_FAIL_AT)
    def write(self, rows: list[dict[str, int]], mode: str, fail_at: int | None) -> None:
        """Append or overwrite."""
        if mode == "overwrite_partitions" and not self._parts:
            return
        table = _table(rows)
        replaced = {"append": set(), "overwrite": set(_PARTITION_VALUES)}.get(
            mode, set(table["p"].to_pylist())
        )
        kept = [row for row in self._rows or [] if row["p"] not in replaced]

        def act() -> None:
            self._target.io.write_dataset(
                self._extended(table), self._store.path, mode=mode, partition_by=self._parts
            )

        self._act(act, [*kept, *table.to_pylist()], fail_at)

    @rule(rows=_ROWS, strategy=st.sampled_from(list(STRATEGIES)), fail_at=_FAIL_AT)
    def merge(self, rows: list[dict[str, int]], strategy: str, fail_at: int | None) -> None:
        """Merge; a healthy merge into a healthy dataset is compared file by file."""
        if self._rows is None and not rows:
            return
        table = _table(rows)
        options: dict[str, Any] = {"allow_empty": True, "partition_columns": self._parts}
        if self._rows is None and strategy in ("update", "delete"):
            self._target.refuses(ValueError, table, strategy, **options)
            return
        expected = merge_rows(
            self._rows, table.to_pylist(), strategy, ["id"], allow_empty=True
        ).rows
        if fail_at is None and not self._crashed and not self._has_extra:
            self._target.merge(table, strategy, **options)
            self._rows = list(expected)
            self._remember()
            return

        def act() -> None:
            source = self._extended(table)
            self._target.io.merge(source, self._store.path, strategy, ["id"], **options)

        self._act(act, list(expected), fail_at)

    @precondition(lambda self: self._rows is not None)
    @rule(sort_by=st.sampled_from([None, ["v", "id"]]), size=_TARGET_SIZES, fail_at=_FAIL_AT)
    def compact(self, sort_by: list[str] | None, size: int, fail_at: int | None) -> None:
        """Compact some or all files; no row changes."""

        def act() -> None:
            self._target.io.compact(self._store.path, size, sort_by=sort_by)

        self._act(act, list(self._rows or []), fail_at)

    @rule(keep=st.sampled_from(["first", "last"]), exact=st.booleans(), fail_at=_FAIL_AT)
    def deduplicate(self, keep: str, exact: bool, fail_at: int | None) -> None:
        """Delete duplicates: of equal rows all but one, or of each key all but the greatest."""
        if self._rows is None:
            return
        keys = None if exact else ["id"]
        options: dict[str, Any] = {} if exact else {"order_by": ["v"], "keep": keep}
        kept = remaining_rows(self._rows, keys, **options)

        def act() -> None:
            self._target.io.deduplicate(self._store.path, keys, **options)

        self._act(act, [self._rows[number] for number in kept], fail_at)

    @rule(partitioned=st.booleans(), fail_at=_FAIL_AT)
    def repartition(self, partitioned: bool, fail_at: int | None) -> None:
        """Change the layout; the rows stay."""
        if self._rows is None:
            return
        wanted = ["p"] if partitioned else []

        def act() -> None:
            self._target.io.repartition(
                self._store.path, wanted, schema=_PARTITION if self._parts else None
            )

        if self._acts(act, fail_at):
            self._parts = wanted
            self._remember()

    @precondition(lambda self: self._rows)
    @rule(reorders=st.booleans(), fail_at=_FAIL_AT)
    def evolve(self, reorders: bool, fail_at: int | None) -> None:
        """Change the columns: add or drop one, or put them into another order."""
        change: dict[str, Any] = {"add": {"extra": pa.int64()}}
        if reorders:
            change = {"order": ["v"]}
        elif self._has_extra:
            change = {"drop": "extra"}

        def act() -> None:
            self._target.io.evolve(self._store.path, **change)

        if self._acts(act, fail_at):
            self._has_extra ^= not reorders
            self._remember()

    @rule(fail_at=_FAIL_AT)
    def undo(self, fail_at: int | None) -> None:
        """Take back the last commit; files that other programs have added stay."""
        if self._rows is None:
            return
        self.recover()
        last = self._last_commit()
        state = self._states.get(last - 1)
        if last not in self._states or state is None:
            return

        def act() -> None:
            assert self._target.io.undo(self._store.path).undone == (last,)

        self._goes_back(act, state, fail_at)

    @rule(back=st.integers(0, 3), fail_at=_FAIL_AT)
    def restore(self, back: int, fail_at: int | None) -> None:
        """Bring back the state after an earlier commit."""
        if self._rows is None:
            return
        self.recover()
        number = self._last_commit() - back
        if number not in self._states:
            return
        self._goes_back(
            lambda: self._target.io.restore(self._store.path, number),
            self._states[number],
            fail_at,
        )

    def _goes_back(self, act: Callable[[], Any], state: _State, fail_at: int | None) -> None:
        try:
            done = self._acts(act, fail_at)
        except errors.NotRestorableError:
            storage = open_storage(self._store.path, **self._store.opening)
            assert not storage.capabilities.trash
            return
        if done:
            self._rows, self._parts, self._has_extra = state
            self._remember()

    @rule(fail_at=_FAIL_AT)
    def clean(self, fail_at: int | None) -> None:
        """Remove what nobody needs; earlier states stay as long as they are kept."""
        if self._rows is not None:
            self._acts(lambda: self._target.io.clean(self._store.path, dry_run=False), fail_at)

    @rule(rows=_SOME_ROWS)
    def another_program_adds_a_file(self, rows: list[dict[str, int]]) -> None:
        """Write a file without any of our code."""
        table = self._extended(_table(rows[:1]))
        self._guests += 1
        name = f"guest-{self._guests}.parquet"
        if self._parts:
            name = f"{hive('p', table['p'][0].as_py())}/{name}"
            self._store.write(name, table.drop_columns(["p"]))
        else:
            self._store.write(name, table)
        self._rows = [*(self._rows or []), *table.select(_SCHEMA.names).to_pylist()]
        self._states.clear()
        self._remember()

    @rule()
    def recover(self) -> None:
        """Complete what a crash left; of a dataset that nobody has made there may be nothing."""
        with suppress(*([FileNotFoundError] if self._rows is None else [])):
            recover(self._store.path, **self._store.opening)
        self._crashed = False

    def _act(self, act: Callable[[], None], expected: list[Row], fail_at: int | None) -> None:
        if self._acts(act, fail_at):
            self._rows = expected
            self._remember()

    def _acts(self, act: Callable[[], Any], fail_at: int | None) -> bool:
        """Act, on a disk that fails at a call if there is one; whether it was committed."""
        if fail_at is None:
            act()
            self._crashed = False
            return True
        self._crashed = True
        return committed(Failing(fail_at), act)

    def _extended(self, table: pa.Table) -> pa.Table:
        """Rows with all columns of the dataset."""
        if not self._has_extra:
            return table
        return table.append_column("extra", pa.nulls(table.num_rows, pa.int64()))

    def _last_commit(self) -> int:
        entries = history(self._store.path, **self._store.opening)
        return entries[-1].number if entries else 0

    def _remember(self) -> None:
        """Remember the state after the last commit."""
        if self._rows is not None:
            state = (list(self._rows), self._parts, self._has_extra)
            self._states[self._last_commit()] = state

    @invariant()
    def holds_its_rows(self) -> None:
        """Our readers always see the state; plain ones see it unless a crash was not mended."""
        if self._rows is None:
            return
        expected = Counter(map(line, self._rows))
        found = as_table(self._target.io.read_dataset(self._store.path))
        assert Counter(lines(found.select(_SCHEMA.names))) == expected
        if not self._crashed:
            assert self._target.rows(_SCHEMA) == expected

    def teardown(self) -> None:
        """Verify what is left, and leave nothing behind."""
        if self._rows is not None:
            report = self._target.io.verify(self._store.path, ["id"])
            # Other programs and appends may repeat keys; a crash leaves warnings.
            wrong = [finding for finding in report.errors if "keys of id occur" not in finding.what]
            assert wrong == [], report
        self._stack.close()
