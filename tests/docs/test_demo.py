"""The demo is true: its story is compared with the dataset that it leaves behind."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pyarrow.dataset as ds
import pytest

import fsspeckit

if TYPE_CHECKING:
    from fsspeckit.storage.history import HistoryEntry

SCRIPT = Path(__file__).parents[2] / "examples" / "demo.py"
SVG = "{http://www.w3.org/2000/svg}"
ROWS = 12_345
FILES = 80
BATCHES = 8
KILLED = 3
ENGINES = [
    pytest.param("spark", marks=pytest.mark.spark),
    pytest.param("duckdb"),
    pytest.param("pyarrow"),
]


@dataclass(frozen=True)
class Story:
    """One run of the demo: what it printed, drew and left behind."""

    text: str
    picture: ElementTree.Element
    directory: Path

    @property
    def dataset(self) -> Path:
        return self.directory / "orders"

    @property
    def history(self) -> list[HistoryEntry]:
        return fsspeckit.history(self.dataset)

    def numbers(self, pattern: str) -> list[tuple[int, ...]]:
        """The numbers in each part of the text that looks like this, ``#`` for a number."""
        found = re.finditer(pattern.replace("#", r"([\d,]+)"), self.text)
        return [tuple(int(text.replace(",", "")) for text in part.groups()) for part in found]

    def cells(self, row: int) -> Counter[str]:
        """How many cells of each kind a row of the picture has."""
        return Counter(
            rect.get("class", "").removeprefix("cell ")
            for rect in self.picture.iter(f"{SVG}rect")
            if rect.get("data-row") == str(row)
        )


def run(
    directory: Path, *options: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *options],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        env=env,
    )


@pytest.fixture(scope="module", params=ENGINES)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Story:
    directory = tmp_path_factory.mktemp("demo")
    done = run(directory, "--engine", request.param, "--rows", str(ROWS), "--directory", "kept")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    picture = ElementTree.parse(directory / "build" / "demo.svg").getroot()
    return Story(done.stdout, picture, directory / "kept")


pytestmark = pytest.mark.slow


def test_the_rows_are_those_of_the_dataset(story: Story) -> None:
    left = ds.dataset(story.dataset, partitioning="hive").to_table(columns=["order_id"])
    assert story.numbers("# rows in # plain Parquet files") == [(ROWS, FILES)]
    ((found,),) = story.numbers("orders +# rows, each value as in the model")
    counts = story.numbers("# inserted, # updated, # deleted, # late, # quarantined")
    inserted, deleted = sum(c[0] for c in counts), sum(c[2] for c in counts)
    assert found == left.num_rows == ROWS + inserted - deleted
    assert len(left.column("order_id").unique()) == left.num_rows


def test_the_counts_are_those_of_the_history(story: Story) -> None:
    names = ("inserted", "updated", "deleted", "late")
    committed = [tuple(e.counts.get(name, 0) for name in names) for e in story.history[1:]]
    printed = story.numbers("# inserted, # updated, # deleted, # late, # quarantined")
    assert [counts[:-1] for counts in printed] == committed
    assert all(sum(column) for column in zip(*printed, strict=True))
    ((bad,),) = story.numbers("# bad rows, each as often as it landed")
    assert bad == sum(counts[-1] for counts in printed)
    assert bad == ds.dataset(story.directory / "orders-quarantine").count_rows()


def test_each_batch_is_committed_once(story: Story) -> None:
    transactions = [entry.transaction for entry in story.history[1:]]
    assert [one.version for one in transactions if one] == list(range(BATCHES))
    assert len({one.application for one in transactions if one}) == 1
    # The killed batch is reported twice: when it is committed, and when it is repeated.
    reported = [number for (number,) in story.numbers(r"\n +batch # ")]
    assert reported == sorted([*range(BATCHES), KILLED])
    assert story.numbers("batch # +committed already, so it is skipped") == [(KILLED,)]


def test_the_driver_was_killed_before_it_noted_the_batch(story: Story) -> None:
    told = story.numbers("by SIGKILL: batch # is committed, but .* noted batch # as its last one")
    assert told == [(KILLED, KILLED - 1)]
    assert story.numbers("exactly those of the first # files") == [((KILLED + 1) * 3,)]
    assert [entry.recovered for entry in story.history] == [False] * (BATCHES + 1)


def test_the_picture_is_that_of_the_history(story: Story) -> None:
    before, done, drawn = FILES, [], []
    for number, entry in enumerate(story.history[1:]):
        removed, added = len(entry.removed), len(entry.added)
        done.append((removed, added, before - removed))
        cells = story.cells(number + (number > KILLED))  # after the row of the repeated batch
        gone = cells["rewritten"] + cells["removed"]
        drawn.append((gone, cells["rewritten"] + cells["new"], cells["untouched"]))
        before += added - removed
    assert drawn == done
    assert story.cells(KILLED + 1) == {}
    assert len(list(story.picture.iter(f"{SVG}path"))) == 1
    assert len(list(story.dataset.rglob("*.parquet"))) == before


def test_untouched_files_are_older_than_the_first_batch(story: Story) -> None:
    first, second, *later = story.history
    replaced = {name for entry in [second, *later] for name in entry.removed}
    untouched = set(first.added) - replaced
    begun = datetime.fromisoformat(second.time).timestamp() - second.seconds
    assert all((story.dataset / name).stat().st_mtime < begun for name in untouched)
    proved = story.numbers("# of # untouched files have the same name, bytes and mtime as before")
    assert proved == [(len(untouched), len(untouched))]
    assert len(untouched) > FILES / 2


def test_little_is_written(story: Story) -> None:
    shares = re.findall(r"^ +(\d) .* ([\d.]+)%$", story.text, re.MULTILINE)
    assert [int(number) for number, _ in shares] == list(range(BATCHES))
    assert all(0 < float(share) < 50 for _, share in shares)


def test_the_story_fits_the_screen(story: Story) -> None:
    lines = story.text.splitlines()
    assert len(lines) <= 70
    assert max(map(len, lines)) <= 110


def test_nothing_is_left_in_preparation(story: Story) -> None:
    control = story.directory / ".orders.fsspeckit"
    assert [path for path in (control / "incoming").rglob("*") if path.is_file()] == []
    assert list(control.glob("staging*")) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [(["--rows", "9"], "at least 8,000, got 9"), (["--directory", "."], "must not be there yet")],
)
def test_wrong_options_are_refused(tmp_path: Path, options: list[str], says: str) -> None:
    done = run(tmp_path, *options)
    assert done.returncode == 2
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_java_it_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, env={"PATH": str(tmp_path), "TMPDIR": str(tmp_path)})
    assert done.returncode == 1
    assert "no Java was found" in done.stderr
    assert "'duckdb' and 'pyarrow' need no Java" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_gets_a_bar_of_batches(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, str(SCRIPT), "--engine", "pyarrow", "--rows", str(ROWS)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, cwd=tmp_path, stdout=theirs, env=environment) as process:
        os.close(theirs)
        output = _all_of(ours)
    assert process.returncode == 0
    assert re.search(r"the driver starts, and applies batches +(\x1b\[[\d;]*m)?━{10}", output)


def _all_of(terminal: int) -> str:
    """What is written to a terminal, until nobody has it open any more."""
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(terminal, 65_536)
        except OSError:  # how Linux reports the end
            part = b""
        if not part:
            os.close(terminal)
            return b"".join(parts).decode()
        parts.append(part)
