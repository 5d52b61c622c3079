"""The commands ``inspect``, ``doctor``, ``verify``, ``history``, ``recover`` and ``engines``."""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import typer

from fsspeckit.cli import options as o  # noqa: TC001 - typer reads the annotations
from fsspeckit.cli.errors import FAILED, PENDING
from fsspeckit.cli.runner import Job, open_session
from fsspeckit.datasets.registry import ENGINES
from fsspeckit.errors import FsspeckitError

if TYPE_CHECKING:
    from fsspeckit.cli.runner import Session
    from fsspeckit.datasets.verification import VerifyReport
    from fsspeckit.storage import Storage

__all__ = [
    "FoundEngine",
    "doctor",
    "engines",
    "find_engines",
    "history",
    "inspect",
    "recover",
    "verify",
]


def inspect(
    dataset: o.Dataset,
    key: o.MaybeKeys = None,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    verbose: o.Verbose = False,
) -> None:
    """Show files, row groups, sizes, columns, partitions, and how key ranges overlap.

    Everything comes from paths and footers; no data page is read.
    """
    from fsspeckit.datasets.inspection import inspect_dataset

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
    """Show how well merges on a key would prune files, and what to change.

    What would make every merge fail is printed first, and the exit code is 1.
    """
    from fsspeckit.datasets.inspection import diagnose_dataset

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


def verify(  # noqa: PLR0913, PLR0917 - the options of the command
    dataset: o.Dataset,
    key: o.UniqueKeys = None,
    no_checksums: o.NoChecksums = False,
    engine: o.Reader = None,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Read every value, and show what makes readers fail, or lose or repeat rows.

    Nothing is changed. The exit code is 1 if there is an error, and 0 if there are only warnings.
    """
    session = open_session(as_json, quiet, storage_option, config)
    job = Job(session, (), dataset, engine, control_dir, 30.0, None, None, False)
    found: list[VerifyReport] = []

    def show(path: str, report: VerifyReport) -> None:
        found.append(report)
        session.output.verified(report)

    job.run(
        lambda opened: opened.io.verify(
            dataset, key or None, not no_checksums, progress=opened.progress
        ),
        show,
    )
    if not all(report.ok for report in found):
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
    """List the commits of a dataset, oldest first."""
    from fsspeckit.storage import history_of

    session = open_session(as_json, storage_option=storage_option, config=config)
    storage = session.storage(dataset, control_dir)
    storage.check_exists()
    session.output.history(storage.root.display_path, history_of(storage, limit))


def engines(
    config: o.Config = None,
    as_json: o.Json = False,
    verbose: o.Verbose = False,
) -> None:
    """Show which engines are installed, and what to install for the others."""
    session = open_session(as_json, config=config)
    session.output.engines(find_engines(session.settings.engine))


def recover(  # noqa: PLR0913, PLR0917 - the options of the command
    dataset: o.Dataset,
    abandon: o.Abandon = False,
    watch: o.Watch = False,
    every: o.WatchInterval = 10.0,
    lock_timeout: o.LockTimeout = 30.0,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    verbose: o.Verbose = False,
) -> None:
    """Complete what an interrupted writer committed, and remove what it did not commit.

    Every writer does this before it begins; doing it twice does no harm. Until then other readers
    may see rows twice where files are published one by one, as on an object store: --watch, beside
    the writers, makes that short. It prints a line whenever it found something to do.
    """
    from fsspeckit.storage import recover_storage

    session = open_session(as_json, storage_option=storage_option, config=config)
    storage = session.storage(dataset, control_dir, lock_timeout)
    storage.check_exists()
    try:
        report = recover_storage(storage, abandon=abandon)
        if watch:
            session.output.recovery(report, one_line=True)
            _watch(session, storage, abandon, every)
            return
    except KeyboardInterrupt:
        session.say("interrupted: the next 'fsspeckit recover' or merge continues from here")
        raise typer.Exit(PENDING) from None
    session.output.recovery(report)


def _watch(session: Session, storage: Storage, abandon: bool, seconds: float) -> None:
    """Recover again and again until Ctrl-C; what goes wrong is printed, and tried again."""
    from fsspeckit.storage import pending_numbers, recover_storage

    said = ""
    while True:
        try:
            sys.stdout.flush()
            time.sleep(seconds)
            if report := recover_storage(storage, abandon=abandon, with_uploads=False):
                session.output.recovery(report, one_line=True)
            said = ""
        except (OSError, FsspeckitError) as error:
            if str(error) != said:
                session.say(f"tried again in {seconds:g} s: {error}")
            said = str(error)
        except KeyboardInterrupt:
            if pending_numbers(storage)[1]:
                raise
            return


@dataclass(frozen=True)
class FoundEngine:
    """Whether an engine is installed, and what it needs."""

    name: str
    is_default: bool
    installed: bool
    library: str
    version: str | None
    missing: str | None
    """What is missing; None if it can be used."""

    install: str | None
    """The command that installs what is missing."""


def find_engines(default: str) -> list[FoundEngine]:
    """Return all engines without loading them."""
    found = []
    for name, entry in ENGINES.items():
        missing, install = None, None
        if not entry.is_installed:
            missing, install = entry.library, entry.install
        elif name == "spark" and not _has_java():
            missing, install = "Java 17", "install a JRE, for example openjdk-17-jre-headless"
        found.append(
            FoundEngine(
                name,
                name == default,
                missing is None,
                entry.library,
                _version(entry.library),
                missing,
                install,
            )
        )
    return found


def _has_java() -> bool:
    """Whether there is a Java at all; Spark checks its version when it starts."""
    home = os.environ.get("JAVA_HOME")
    return bool(shutil.which(os.path.join(home, "bin", "java") if home else "java"))


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None
