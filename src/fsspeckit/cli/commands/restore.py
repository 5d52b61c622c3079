"""The commands ``undo``, ``restore`` and ``clean``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fsspeckit.cli import options as o  # noqa: TC001 - typer reads the annotations
from fsspeckit.cli.runner import open_session
from fsspeckit.display import show_progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from fsspeckit.cli.runner import Session
    from fsspeckit.storage import RestoreResult, Storage

__all__ = ["clean", "restore", "undo"]


def undo(  # noqa: PLR0913, PLR0917 - the options of the command
    dataset: o.Dataset,
    dry_run: o.RestoreDryRun = False,
    keep_commits: o.KeepCommits = 3,
    keep_age: o.KeepAge = "1d",
    keep_bytes: o.KeepBytes = None,
    lock_timeout: o.LockTimeout = 30.0,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Take back the last commit that changed files, by a new commit.

    A second undo takes back the first. Refused if files are gone from the trash, or if others have
    changed files of that commit since. As a commit, it applies its retention: keep as much as the
    writers of the dataset do.
    """
    from fsspeckit.storage import undo_storage

    session = open_session(as_json, quiet, storage_option, config)
    storage = session.storage(dataset, control_dir, lock_timeout)
    storage = _keeping(storage, keep_commits, keep_age, keep_bytes)
    _run(session, storage, partial(undo_storage, storage, dry_run=dry_run))


def restore(  # noqa: PLR0913, PLR0917 - the options of the command
    dataset: o.Dataset,
    commit: o.Commit,
    dry_run: o.RestoreDryRun = False,
    keep_commits: o.KeepCommits = 3,
    keep_age: o.KeepAge = "1d",
    keep_bytes: o.KeepBytes = None,
    lock_timeout: o.LockTimeout = 30.0,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Bring back the state of a dataset after a commit, by a new commit.

    Refused if files are gone from the trash, or if others have changed files of later commits. As a
    commit, it applies its retention: keep as much as the writers of the dataset do.
    """
    from fsspeckit.storage import restore_storage

    session = open_session(as_json, quiet, storage_option, config)
    storage = session.storage(dataset, control_dir, lock_timeout)
    storage = _keeping(storage, keep_commits, keep_age, keep_bytes)
    _run(session, storage, partial(restore_storage, storage, commit, dry_run=dry_run))


def _keeping(storage: Storage, commits: int, age: timedelta, max_bytes: int | None) -> Storage:
    """Return a storage whose commits keep so much in the trash."""
    from dataclasses import replace

    from fsspeckit.storage import Retention

    return replace(storage, retention=Retention(commits, age.total_seconds(), max_bytes))


def _run(session: Session, storage: Storage, work: Callable[..., RestoreResult]) -> None:
    from fsspeckit.cli.errors import Interrupts, report_on_interrupt

    storage.check_exists()
    interrupts = Interrupts(session.say)
    with (
        report_on_interrupt(storage, interrupts, session.say),
        interrupts,
        show_progress(not session.quiet) as progress,
    ):
        result = work(progress=interrupts.watch(progress))
    session.show_done(session.output.restored, result)


def clean(  # noqa: PLR0913, PLR0917 - the options of the command
    dataset: o.Dataset,
    dry_run: o.CleanDryRun = True,
    keep_commits: o.KeepCommits = 3,
    keep_age: o.KeepAge = "1d",
    keep_bytes: o.KeepBytes = None,
    lock_timeout: o.LockTimeout = 30.0,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Remove expired trash and what dead writers have left; by default only print it.

    No data file is touched, nor what a running writer owns. Interrupted commits are completed
    first, and records of old commits are folded into one file.
    """
    from fsspeckit.storage import clean_storage

    session = open_session(as_json, quiet, storage_option, config)
    storage = session.storage(dataset, control_dir, lock_timeout)
    storage.check_exists()
    storage = _keeping(storage, keep_commits, keep_age, keep_bytes)
    with show_progress(not quiet) as progress:
        report = clean_storage(storage, dry_run=dry_run, progress=progress)
    session.show_done(session.output.cleaned, report)
