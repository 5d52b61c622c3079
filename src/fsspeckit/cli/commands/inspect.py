"""The commands that look at a dataset: ``inspect``, ``doctor`` and ``history``; and ``engines``."""

from __future__ import annotations

import typer

from fsspeckit.cli import options as o  # noqa: TC001 - typer reads the annotations
from fsspeckit.cli.errors import FAILED
from fsspeckit.cli.runner import open_session

__all__ = ["doctor", "engines", "history", "inspect"]


def inspect(
    dataset: o.Dataset,
    key: o.MaybeKeys = None,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    verbose: o.Verbose = False,
) -> None:
    """Show files, row groups, sizes, columns, partitions, and how ranges of keys overlap.

    Everything is read from paths and footers; no data page is touched.
    """
    from fsspeckit.datasets.inspection.report import inspect_dataset

    session = open_session(as_json, storage_option=storage_option, config=config)
    session.storage(dataset, control_dir)
    found = inspect_dataset(
        dataset,
        storage_options=session.settings.storage_options(dataset),
        key_columns=key or None,
        control_dir=control_dir,
    )
    session.output.inspection(found)


def doctor(
    dataset: o.Dataset,
    key: o.Keys,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    verbose: o.Verbose = False,
) -> None:
    """Tell how well merges on a key would prune, what is in their way, and what to change.

    Where every merge would be refused, that is told first, and the exit code is 1.
    """
    from fsspeckit.datasets.inspection.diagnosis import diagnose_dataset

    session = open_session(as_json, storage_option=storage_option, config=config)
    session.storage(dataset, control_dir)
    found = diagnose_dataset(
        dataset,
        key,
        storage_options=session.settings.storage_options(dataset),
        control_dir=control_dir,
    )
    session.output.diagnosis(found)
    if found.verdict == "refused":
        raise typer.Exit(FAILED)


def history(
    dataset: o.Dataset,
    limit: o.Limit = None,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    verbose: o.Verbose = False,
) -> None:
    """List the commits of a dataset, the oldest first."""
    from fsspeckit.storage.history import history_of

    session = open_session(as_json, storage_option=storage_option, config=config)
    storage = session.storage(dataset, control_dir)
    storage.check_exists()
    entries = history_of(storage)
    session.output.history(storage.root.shown, entries[-limit:] if limit else entries)


def engines(
    config: o.Config = None,
    as_json: o.Json = False,
    verbose: o.Verbose = False,
) -> None:
    """Show which engines are installed, and what to install for the others."""
    from fsspeckit.cli.commands.engines import find_engines

    session = open_session(as_json, config=config)
    session.output.engines(find_engines(session.settings.engine))
