"""The commands ``report`` and ``serve``: a dataset as a page for a browser."""

from __future__ import annotations

import errno
import sys
import tempfile
import webbrowser
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsspeckit.cli import options as o  # noqa: TC001 - typer reads the annotations
from fsspeckit.cli.errors import advice_in_cli_terms
from fsspeckit.cli.pages import PageFile
from fsspeckit.cli.runner import Job, open_session
from fsspeckit.errors import FsspeckitError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspeckit.datasets.verification import VerifyReport

__all__ = ["ServedReport", "WrittenReport", "report", "serve"]


@dataclass(frozen=True)
class WrittenReport:
    """A page that was written."""

    path: str
    """The dataset."""

    file: str
    """The page, absolute."""

    bytes: int
    files: int
    commits: int
    notes: tuple[str, ...]
    """What it leaves out."""


@dataclass(frozen=True)
class ServedReport:
    """A page that is served."""

    path: str
    """The dataset."""

    url: str
    port: int


def report(  # noqa: PLR0913, PLR0917 - the options of the command
    dataset: o.Dataset,
    output: o.ReportFile = None,
    key: o.MaybeKeys = None,
    verify: o.VerifyToo = False,
    overwrite: o.Overwrite = False,
    open_page: o.OpenPage = False,
    engine: o.Reader = None,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Write a page that shows files, key ranges, history and findings in a browser.

    It is one file that needs no network. Everything in it comes from paths, footers and commit
    records; only --verify reads rows. An earlier report of the same name is replaced.
    """
    from fsspeckit.report import fill_page, report_model

    session = open_session(as_json, quiet, storage_option, config)
    storage = session.storage(dataset, control_dir)
    storage.check_exists()
    page = (
        PageFile.for_dataset(storage, overwrite=overwrite)
        if output is None
        else PageFile.of(output, overwrite=overwrite, option="--output")
    )
    verified: list[VerifyReport] = []
    if verify:
        job = Job(session, (), dataset, engine, control_dir, 30.0, None, None, False)
        job.run(
            lambda opened: opened.io.verify(dataset, key or None, progress=opened.progress),
            lambda _, found: verified.append(found),
        )
    model = report_model(storage, key or None, verified=verified[0] if verified else None)
    _use_cli_terms(model)
    written = page.write(fill_page(model))
    session.output.report_written(
        WrittenReport(
            model["dataset"]["path"],
            str(page.path),
            written,
            len(model["files"]["name"]),
            len(model["commits"]) + model["commitsLeftOut"],
            tuple(model["notes"]),
        )
    )
    if open_page:
        webbrowser.open(page.path.as_uri())


def _use_cli_terms(model: dict[str, Any]) -> None:
    """Name options and commands in what is to be done, where the library names arguments."""
    for check in model["checks"]:
        for finding in check["findings"]:
            keys = model["dataset"]["keyColumns"]
            finding["advice"] = advice_in_cli_terms(finding["advice"], keys)


def serve(  # noqa: PLR0913, PLR0917 - the options of the command
    dataset: o.Dataset,
    key: o.MaybeKeys = None,
    port: o.Port = 0,
    open_page: o.OpenPage = False,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    verbose: o.Verbose = False,
) -> None:
    """Show the report in a browser while the dataset changes, until Ctrl-C.

    The page shows the phases and files of running merges and streams. It is served on 127.0.0.1
    only, to whoever has the URL that is printed, and nothing can be changed from it.
    """
    from fsspeckit.report import ReportServer

    session = open_session(as_json, False, storage_option, config)
    storage = session.storage(dataset, control_dir)
    try:
        server = ReportServer(storage, key or None, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise FsspeckitError(
            f"port {port} on 127.0.0.1 is in use.\nHint: leave --port out to take a free one."
        ) from error
    session.output.report_served(ServedReport(storage.root.display_path, server.url, server.port))
    sys.stdout.flush()
    with ExitStack() as stack:
        stack.callback(server.close)
        if open_page:
            webbrowser.open(stack.enter_context(_redirect_to(server.url)))
        try:
            server.run()
        except KeyboardInterrupt:
            sys.stderr.write("stopped\n")


@contextmanager
def _redirect_to(url: str) -> Iterator[str]:
    """Give the URL of a file that leads to another URL, and that only this user can read.

    The command that opens a browser is in the list of processes, which other users see.
    """
    with tempfile.TemporaryDirectory(prefix="fsspeckit-") as directory:
        page = Path(directory, "report.html")
        page.write_text(f'<meta http-equiv="refresh" content="0;url={url}">', encoding="utf-8")
        yield page.as_uri()
