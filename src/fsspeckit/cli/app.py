"""The typer application: its commands, and how it reports errors."""

from __future__ import annotations

import io
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fsspeckit.cli.commands.compact import compact
from fsspeckit.cli.commands.evolve import evolve
from fsspeckit.cli.commands.init import init
from fsspeckit.cli.commands.inspect import doctor, engines, history, inspect, recover, verify
from fsspeckit.cli.commands.merge import apply, delete, merge, plan, write
from fsspeckit.cli.commands.report import report, serve
from fsspeckit.cli.commands.restore import clean, restore, undo
from fsspeckit.cli.commands.rows import deduplicate, repartition
from fsspeckit.cli.errors import FAILED, is_caused_by_interrupt
from fsspeckit.cli.errors import report as report_error

__all__ = ["COMMANDS", "app"]


_INTERRUPTED = 130
"""What typer returns for Ctrl-C outside of a command."""


class Commands(TyperGroup):
    """The commands; an error becomes a message, a hint and an exit code."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run a command and end the process, unless the caller wants the exit code."""
        standalone = options.get("standalone_mode", True)
        given = options.get("args") or (arguments[0] if arguments else None)
        words = sys.argv[1:] if given is None else list(given)
        _never_fail_to_print()
        # fsspec takes every variable whose name begins with FSSPEC for one of its settings.
        warnings.filterwarnings("ignore", "Ignoring environment variable FSSPECKIT", UserWarning)
        try:
            code = super().main(*arguments, **{**options, "standalone_mode": False})
        except Exception as error:  # no traceback without --verbose
            code = report_error(error, verbose="--verbose" in words or "-v" in words)
        if code == _INTERRUPTED:  # while the words were parsed
            raise KeyboardInterrupt
        if standalone:
            sys.exit(code or 0)
        return code

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the application; flags that are not given are False."""
        params = super().get_params(ctx)
        for param in params:
            # For a default of None typer loads pydantic to find out that the option is a bool.
            if getattr(param, "is_flag", False) and param.default is None:
                param.default = False
        return params

    def invoke(self, ctx: Any) -> Any:
        """Run a command; those that change a dataset handle Ctrl-C themselves."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, Exception) as error:
            if not is_caused_by_interrupt(error):
                raise
            sys.stderr.write("interrupted: nothing was changed\n")
            raise typer.Exit(FAILED) from None


def _never_fail_to_print() -> None:
    """Escape characters in file names that the terminal cannot print."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


app = typer.Typer(
    name="fsspeckit",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: rich would take longer to load than everything else
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Merge rows into plain Parquet datasets, rewriting only what changes, losing nothing.",
    epilog="Exit codes: 0 done, 1 failed with nothing changed, 2 wrong usage, 3 committed but not "
    "completed (recover).",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from fsspeckit import __version__

        sys.stdout.write(f"fsspeckit {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


COMMANDS = (
    *(merge, plan, apply, delete, write, compact, evolve, deduplicate, repartition),
    *(inspect, doctor, verify, history, report, serve, undo, restore, recover, clean),
    *(engines, init),
)
"""The commands, in the order of the help."""

for _command in COMMANDS:
    # Without a short help the list of commands cuts the first sentence to fit one line.
    app.command(short_help=(_command.__doc__ or "").partition("\n")[0])(_command)
