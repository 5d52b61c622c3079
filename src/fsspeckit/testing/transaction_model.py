"""The truth about transactions, over the model of a merge: which batches are applied.

A dataset is its rows, and the last version of each application that was merged into it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fsspeckit import errors
from fsspeckit.testing.model import ModelResult, merge_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.storage import Transaction
    from fsspeckit.testing.model_source import Row


@dataclass
class ModelDataset:
    """Rows, and what applications have committed: version, run, and what the merge did."""

    rows: list[Row] = field(default_factory=list)
    committed: dict[str, tuple[int, str | None, ModelResult]] = field(default_factory=dict)

    def merge(
        self, source: Sequence[Row], strategy: str, keys: Sequence[str], transaction: Transaction
    ) -> tuple[int, int, int]:
        """Merge once; return rows inserted, updated, deleted by the commit of this version."""
        application, version, run = transaction.application, transaction.version, transaction.run
        if application in self.committed:
            last, last_run, done = self.committed[application]
            starts_again = version <= 1 and last >= version + 10 if run is None else run != last_run
            if version <= last and starts_again:
                raise errors.TransactionResetError.found(application, version, run, (last, 0, None))
            if version <= last:
                return (done.inserted, done.updated, done.deleted) if version == last else (0, 0, 0)
        result = merge_rows(self.rows, source, strategy, keys)
        self.rows, self.committed[application] = result.rows, (version, run, result)
        return result.inserted, result.updated, result.deleted
