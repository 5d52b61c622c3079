"""The command ``recover``."""

from __future__ import annotations

import typer

from fsspeckit.cli import options as o  # noqa: TC001 - typer reads the annotations
from fsspeckit.cli.errors import PENDING
from fsspeckit.cli.runner import open_session

__all__ = ["recover"]


def recover(
    dataset: o.Dataset,
    abandon: o.Abandon = False,
    lock_timeout: o.LockTimeout = 30.0,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    verbose: o.Verbose = False,
) -> None:
    """Complete what an interrupted writer committed, and remove what it did not.

    Every writer does this by itself before it begins; doing it twice does no harm.
    """
    from fsspeckit.storage.commit.recovery import recover_storage

    session = open_session(as_json, storage_option=storage_option, config=config)
    storage = session.storage(dataset, control_dir, lock_timeout)
    storage.check_exists()
    try:
        report = recover_storage(storage, abandon=abandon)
    except KeyboardInterrupt:
        session.say("interrupted: the next 'fsspeckit recover', or merge, goes on from here")
        raise typer.Exit(PENDING) from None
    session.output.recovery(report)
