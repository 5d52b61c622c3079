"""The command that changes columns: ``evolve``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from fsspeckit.cli import options as o  # noqa: TC001 - typer reads the annotations
from fsspeckit.cli.runner import Job, open_session

if TYPE_CHECKING:
    from fsspeckit.core.planning import MergePlan

__all__ = ["evolve"]


def evolve(  # noqa: PLR0913, PLR0917 - the options of the command
    target: o.Dataset,
    add: o.AddColumns = None,
    widen: o.WidenColumns = None,
    drop: o.DropColumns = None,
    rename: o.RenameColumns = None,
    order: o.FirstColumns = None,
    nullable: o.NullableColumns = None,
    required: o.RequiredColumns = None,
    engine: o.Engine = None,
    dry_run: o.DryRun = False,
    max_rewrite_fraction: o.MaxRewriteFraction = None,
    max_rewrite_bytes: o.MaxRewriteBytes = None,
    lock_timeout: o.LockTimeout = 30.0,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Change the columns of a dataset, in all files at once; the rows stay as they are.

    Without options, files that have different columns get the same. All files change at once, or
    none does.
    """
    session = open_session(as_json, quiet, storage_option, config)
    job = Job(session, (), target, engine, control_dir, lock_timeout, None, None, False)
    options: dict[str, Any] = {
        "add": dict(add or ()),
        "widen": dict(widen or ()),
        "drop": drop or None,
        "rename": dict(rename or ()),
        "order": order or None,
        "nullable": {**dict.fromkeys(nullable or (), True), **dict.fromkeys(required or (), False)},
    }
    if dry_run:
        return job.run(
            lambda opened: opened.io.plan_evolve(target, progress=opened.progress, **options),
            partial(_show_plan, job, (max_rewrite_fraction, max_rewrite_bytes)),
        )
    return job.run(
        lambda opened: opened.io.evolve(
            target,
            max_rewrite_fraction=max_rewrite_fraction,
            max_rewrite_bytes=max_rewrite_bytes,
            progress=opened.progress,
            **options,
        ),
        partial(session.show_done, session.output.evolved),
    )


def _show_plan(job: Job, limits: tuple[float | None, int | None], _: str, found: MergePlan) -> None:
    """Print a plan, and fail if it exceeds the limits of a rewrite."""
    from fsspeckit.datasets.pipeline import RewriteLimits

    job.session.output.plan(found)
    RewriteLimits(*limits).check(found)
