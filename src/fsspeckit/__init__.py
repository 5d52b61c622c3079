"""Merge rows into plain Parquet datasets, rewriting only what changes, losing nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsspeckit.api import (
        Retention,
        Transaction,
        apply_changes,
        clean,
        compact,
        deduplicate,
        delete,
        evolve,
        execute,
        history,
        merge,
        plan_apply_changes,
        plan_compact,
        plan_deduplicate,
        plan_delete,
        plan_evolve,
        plan_merge,
        read_dataset,
        recover,
        repartition,
        restore,
        undo,
        upsert,
        verify,
        write_dataset,
    )
    from fsspeckit.datasets.spark import ApplyChangesSink, MergeSink

__version__ = "0.2.0"

__all__ = [
    "ApplyChangesSink",
    "MergeSink",
    "Retention",
    "Transaction",
    "apply_changes",
    "clean",
    "compact",
    "deduplicate",
    "delete",
    "evolve",
    "execute",
    "history",
    "merge",
    "plan_apply_changes",
    "plan_compact",
    "plan_deduplicate",
    "plan_delete",
    "plan_evolve",
    "plan_merge",
    "read_dataset",
    "recover",
    "repartition",
    "restore",
    "undo",
    "upsert",
    "verify",
    "write_dataset",
]

_OF_SPARK = ("ApplyChangesSink", "MergeSink")


def __getattr__(name: str) -> Any:
    # On first use: importing the package must load neither pyarrow nor an engine.
    if name in _OF_SPARK:
        from fsspeckit.datasets.registry import load_engine

        return getattr(load_engine("spark"), name)
    if name in __all__:
        from fsspeckit import api

        return getattr(api, name)
    raise AttributeError(f"module 'fsspeckit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
