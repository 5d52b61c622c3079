"""Help as text: panels of arguments, options and commands.

The help that comes with typer loads the parts of rich that draw Markdown, source code and
tracebacks, and takes longer for it than for everything else together.
"""

from __future__ import annotations

import inspect
import shutil
import sys
import textwrap
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

from fsspeckit.cli.errors import colours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Command", "facts", "help_of", "spelled", "usage"]

_LEAST, _MOST = 64, 100
"""Columns of a page: lines that are longer are hard to read."""

_COMMANDS = "Commands"
_NAME, _FRAME, _TITLE = "1;36", "2", "1"


@dataclass(frozen=True)
class _Row:
    """What a parameter or a command is called, and what it is for."""

    name: str
    text: str


class Command(TyperCommand):
    """A command whose help is drawn here."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of this command."""
        formatter.write(help_of(self, ctx))


def help_of(command: Any, context: Any) -> str:
    """The help of a command, as wide as the terminal allows."""
    width = max(_LEAST, min(_MOST, shutil.get_terminal_size().columns))
    panels = _panels(command, context)
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    told = [textwrap.fill(text, width - 2, initial_indent="  ") for text in paragraphs]
    told = [text.replace("\n", "\n  ") for text in told]
    head = f"{colours(sys.stdout)('Usage:', _TITLE)} {context.command_path} {usage(command)}"
    drawn = [_drawn(title, rows, _widest(title, panels), width) for title, rows in panels.items()]
    end = [textwrap.fill(command.epilog, width)] if command.epilog else []
    return "\n\n".join([head, *told, "\n".join(drawn), *end]) + "\n"


def _widest(title: str, panels: dict[str, list[_Row]]) -> int:
    """The longest name; texts of all panels begin below each other, those of commands apart."""
    beside = [rows for each, rows in panels.items() if (each == _COMMANDS) == (title == _COMMANDS)]
    return max(len(row.name) for rows in beside for row in rows)


def usage(command: Any) -> str:
    """What stands behind the name of a command."""
    if hasattr(command, "commands"):
        return "COMMAND [OPTIONS]"
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    words = [f"{param.metavar}..." if param.nargs == -1 else param.metavar for param in arguments]
    return " ".join([*words, "[OPTIONS]"])


def _panels(command: Any, context: Any) -> dict[str, list[_Row]]:
    """The rows of each panel, in the order of the parameters."""
    panels: dict[str, list[_Row]] = {}
    for name in getattr(command, "commands", {}):
        text = command.commands[name].help.partition("\n\n")[0]
        panels.setdefault(_COMMANDS, []).append(_Row(name, " ".join(text.split())))
    for param in command.get_params(context):
        is_option = param.param_type_name == "option"
        usual = "Options" if is_option else "Arguments"
        title = getattr(param, "rich_help_panel", None) or usual
        name = _aligned(param) if is_option else param.metavar
        text = " ".join([*param.help.split(), *facts(command, param)])
        panels.setdefault(title, []).append(_Row(name, text))
    return panels


def _aligned(option: Any) -> str:
    """The names of an option, long ones below long ones."""
    *short, long = sorted(option.opts, key=len)
    return (
        f"{', '.join(short)}, {spelled(option, long)}" if short else spelled(option, f"    {long}")
    )


def spelled(option: Any, name: str) -> str:
    """An option as it is written, with what follows its name."""
    return name if option.is_flag else f"{name} {option.metavar or 'CHOICE'}"


def facts(command: Any, param: Any, mark: str = "") -> list[str]:
    """What is to be known of a parameter beside its help: choices, and what happens without it.

    Args:
        command: The command that takes it.
        param: The argument or option.
        mark: What stands around values.
    """
    found = []
    if choices := _choices(command, param.name):
        found.append(f"One of {', '.join(f'{mark}{choice}{mark}' for choice in choices)}.")
    if param.required:
        found.append("Required.")
    elif param.show_default and param.default not in (None, False, []):
        found.append(f"Default: {mark}{getattr(param.default, 'value', param.default)}{mark}.")
    return found


def _choices(command: Any, name: str) -> list[str]:
    """The values of a parameter that takes one of a few."""
    for kind in _kinds(_annotations(command.callback).get(name)):
        if members := getattr(kind, "__members__", None):
            return [member.value for member in members.values()]
    return []


@cache
def _annotations(callback: Callable[..., Any]) -> dict[str, Any]:
    """The types of parameters, which a signature tells in every version of typer."""
    parameters = inspect.signature(callback, eval_str=True).parameters.values()
    return {parameter.name: parameter.annotation for parameter in parameters}


def _kinds(annotation: Any) -> Iterator[Any]:
    """A type, and those it is made of."""
    yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _kinds(inner)


def _drawn(title: str, rows: list[_Row], names: int, width: int) -> str:
    """A frame with a title, around names and what they are for."""
    style = colours(sys.stdout)
    known = (sys.stdout.encoding or "").lower().startswith("utf")
    line, side, corners = ("─", "│", "╭╮╰╯") if known else ("-", "|", "++++")
    side = style(side, _FRAME)
    rest = line * (width - len(title) - 5)
    top = f"{style(corners[0] + line, _FRAME)} {title} {style(rest + corners[1], _FRAME)}"
    inner = [text for row in rows for text in _lines(row, names, width - 4, style)]
    bottom = style(f"{corners[2]}{line * (width - 2)}{corners[3]}", _FRAME)
    return "\n".join([top, *(f"{side} {text} {side}" for text in inner), bottom])


def _lines(row: _Row, names: int, width: int, style: Callable[[str, str], str]) -> Iterator[str]:
    """A name and the lines of its text beside it; all have the same width."""
    beside = width - names - 2
    name = row.name
    for line in textwrap.wrap(row.text, beside, break_on_hyphens=False) or [""]:
        yield f"{style(name.ljust(names), _NAME)}  {line.ljust(beside)}"
        name = ""
