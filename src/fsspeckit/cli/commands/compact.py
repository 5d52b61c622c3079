"""The command `compact`: make large files of small ones."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from fsspeckit.cli import options as o  # noqa: TC001 - typer reads the annotations
from fsspeckit.cli.runner import Job, open_session

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["compact"]


def compact(  # noqa: PLR0913, PLR0917 - the options of the command
    dataset: o.Dataset,
    target_size: o.TargetSize = "128MiB",
    min_files: o.MinFiles = 2,
    partition: o.Partitions = None,
    sort_by: o.SortBy = None,
    bloom: o.Bloom = None,
    engine: o.Engine = None,
    dry_run: o.DryRun = False,
    lock_timeout: o.LockTimeout = 30.0,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Make large files of the small ones in each partition; no row changes.

    Others may write meanwhile: what they touch stays as it is and is listed. A second run has
    nothing left to do.
    """
    session = open_session(as_json, quiet, storage_option, config)
    job = Job(session, (), dataset, engine, control_dir, lock_timeout, None, None, False)
    options: dict[str, Any] = {
        "target_file_bytes": target_size,
        "min_files": min_files,
        "partitions": _partitions(partition),
        "sort_by": sort_by or None,
        "bloom_columns": bloom or None,
    }
    if dry_run:
        job.run(
            lambda opened: opened.io.plan_compact(dataset, **options, progress=opened.progress),
            session.output.compaction_planned,
        )
    else:
        job.run(
            lambda opened: opened.io.compact(dataset, **options, progress=opened.progress),
            partial(session.show_done, session.output.compacted),
        )


def _partitions(given: Sequence[str] | None) -> dict[str, list[str | None]] | None:
    """Return the values that are named for each column."""
    found: dict[str, list[str | None]] = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise typer.BadParameter(
                f"{text!r} is not a column and a value. Write for example year=2024.",
                param_hint="--partition",
            )
        found.setdefault(name, []).append(None if value == "NULL" else value)
    return found or None
