"""`write_parquet_dataset` and `merge_parquet_dataset`: the merge under its older names."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fsspeckit.testing.conformance.merging import three_files
from fsspeckit.testing.conformance.stores import data_files
from fsspeckit.testing.conformance.target import lines, numbers

if TYPE_CHECKING:
    from fsspeckit.testing.conformance.target import Target

__all__ = ["RewriteModeTests"]


class RewriteModeTests:
    """What ``rewrite_mode`` does; the rows are those of `merge`."""

    def test_incremental_upsert_rewrites_only_affected_files(self, target: Target) -> None:
        three_files(target)
        before = target.store.tree()
        result = self._write(target, numbers(4, 8, v="new"), "upsert", "incremental")
        after = target.store.tree()
        stayed = {target.store.relative(path) for path in result.preserved_files}
        assert stayed == {"a.parquet", "c.parquet"}
        assert {name: after[name] for name in stayed} == {name: before[name] for name in stayed}
        assert (len(result.rewritten_files), len(result.inserted_files)) == (1, 1)
        self._holds(target, numbers(1, 2, 3, 5, 6, 7), numbers(4, 8, v="new"))

    def test_incremental_update_never_writes_inserts(self, target: Target) -> None:
        three_files(target)
        result = self._write(target, numbers(4, 8, v="new"), "update", "incremental")
        assert (result.inserted, result.inserted_files) == (0, [])
        self._holds(target, numbers(1, 2, 3, 5, 6, 7), numbers(4, v="new"))

    def test_unknown_file_membership_treated_as_affected(self, target: Target) -> None:
        target.write("a.parquet", numbers(1, 2), write_statistics=False)
        result = self._write(target, numbers(2, v="new"), "update", "incremental")
        assert (result.updated, len(result.rewritten_files)) == (1, 1)

    @pytest.mark.parametrize("strategy", ["full_merge", "deduplicate"])
    def test_reject_incremental(self, target: Target, strategy: str) -> None:
        """Checked before anything else: there are not even keys."""
        three_files(target)
        before = target.store.tree()
        with pytest.raises(ValueError, match=strategy):
            target.io.write_parquet_dataset(
                numbers(1), target.store.path, strategy=strategy, rewrite_mode="incremental"
            )
        assert target.store.tree() == before

    def test_rewrite_mode_incremental_delegates_to_merge(self, target: Target) -> None:
        three_files(target)
        result = target.io.merge_parquet_dataset(
            numbers(4, 8, v="new"), target.store.path, ["id"], rewrite_mode="incremental"
        )
        assert (result.strategy, result.updated, result.inserted) == ("upsert", 1, 1)

    def test_rewrite_mode_full_rewrites_every_file_with_the_same_rows(self, target: Target) -> None:
        three_files(target)
        before = data_files(target.store.tree())
        result = self._write(target, numbers(4, 8, v="new"), "upsert", "full")
        assert not set(before) & set(target.store.tree())
        assert result.preserved_files == []
        self._holds(target, numbers(1, 2, 3, 5, 6, 7), numbers(4, 8, v="new"))

    def test_without_a_strategy_it_writes(self, target: Target) -> None:
        three_files(target)
        result = target.io.write_parquet_dataset(numbers(8), target.store.path)
        assert (result.mode, result.total_rows) == ("append", 1)

    def _write(self, target: Target, source: pa.Table, strategy: str, mode: str) -> Any:
        return target.io.write_parquet_dataset(
            source, target.store.path, strategy=strategy, key_columns=["id"], rewrite_mode=mode
        )

    def _holds(self, target: Target, *tables: pa.Table) -> None:
        found = sorted(target.rows(numbers().schema).elements())
        assert found == sorted(lines(pa.concat_tables(tables)))
