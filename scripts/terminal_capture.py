"""Take the picture of the tool at work: commands on a real terminal, drawn as SVG.

The commands run on a pseudo-terminal, on a dataset with fixed names and values in a temporary
directory, and their output is drawn. Seconds and the random part of new names are replaced by fixed
ones, so that the picture changes only if the tool does.

Usage: ``python -m scripts.terminal_capture``
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "terminal.svg"
COLUMNS, LINES = 92, 60
COMMANDS = (
    "fsspeckit plan changes.csv orders --key id --engine pyarrow --quiet",
    "fsspeckit merge changes.csv orders --key id --engine pyarrow",
)
_RANDOM = "5f1d0c7a93b24e6f8a1c2d3e4f506172"
CHANGES = "id,day,amount\n250017,2024-03-02,12.50\n250018,2024-03-02,\n999999,2024-03-09,7.25\n"


def make_dataset(base: Path) -> None:
    """Six files of a shop's orders, by ascending number, and a CSV with three changes."""
    (base / "orders").mkdir()
    days = ["2024-03-01", "2024-03-02", "2024-03-03"]
    for number in range(6):
        ids = range(number * 100_000, (number + 1) * 100_000)
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "day": pa.array([days[i % 3] for i in ids]).cast(pa.date32()),
                "amount": pa.array([i % 997 / 4 for i in ids]).cast(pa.decimal128(9, 2)),
            }
        )
        pq.write_table(table, base / "orders" / f"part-{number}.parquet", row_group_size=25_000)
    (base / "changes.csv").write_text(CHANGES)


def run_on_terminal(command: str, place: Path) -> bytes:
    """Everything that a command writes to its terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "TERM": "xterm-256color"}
    for name in ("NO_COLOR", "COLUMNS", "LINES", "FSSPECKIT_CONFIG"):
        environment.pop(name, None)
    environment["XDG_CONFIG_HOME"] = str(place)
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=place, env=environment, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    written = io.BytesIO()
    while True:
        try:
            data = os.read(master, 65_536)
        except OSError:  # what Linux says at the end
            break
        written.write(data)
    os.close(master)
    if process.wait() != 0:
        raise RuntimeError(f"{command!r} failed: {written.getvalue().decode()}")
    return written.getvalue()


def steady(data: bytes, place: Path) -> bytes:
    """What a command wrote, without what differs from run to run."""
    text = data.decode().replace(f"{place}/", "").replace(str(place), ".")
    text = re.sub(r"[0-9a-f]{32}(?=\.parquet)", _RANDOM, text)
    text = re.sub(r"in \d+\.\d\d s", "in 0.05 s", text)
    text = re.sub(r"\d:\d\d:\d\d", "0:00:00", text)
    text = re.sub(r", [\d,]+/s", ", 80/s", text)
    return text.encode()


def screen_of(parts: list[bytes]) -> Text:
    """The screen after everything was written, with its colours."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    for part in parts:
        stream.feed(part)
    picture = Text()
    last = max(number for number, line in enumerate(screen.display) if line.strip())
    for number in range(last + 1):
        cells = [screen.buffer[number][column] for column in range(COLUMNS)]
        for (colour, bold), run in groupby(cells, key=lambda cell: (cell.fg, cell.bold)):
            style = Style(color=_colour(colour), bold=bold)
            picture.append("".join(cell.data for cell in run), style)
        picture.append("\n")
    return picture


def _colour(name: str) -> str | None:
    if name == "default":
        return None
    return f"#{name}" if re.fullmatch(r"[0-9a-f]{6}", name) else _NAMES.get(name, name)


_NAMES = {"brown": "yellow", "brightblack": "bright_black"}


def main() -> None:
    """Run the commands and draw the screen."""
    parts = []
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory).resolve()
        make_dataset(place)
        for command in COMMANDS:
            prompt = f"\x1b[1;32m$\x1b[0m {command}\r\n"
            output = steady(run_on_terminal(command, place), place)
            parts += [prompt.encode(), output, b"\r\n"]
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(screen_of(parts), end="", soft_wrap=True)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    drawn = console.export_svg(title="fsspeckit", unique_id="terminal")
    PICTURE.write_text(re.sub(r"[ \t]+$", "", drawn, flags=re.MULTILINE), encoding="utf-8")


if __name__ == "__main__":
    main()
