"""The demo tells the truth: its story is held against the dataset that it leaves behind."""

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
ROWS = 12_345
PER_FILE = 124
ENGINES = [
    pytest.param("spark", marks=pytest.mark.spark),
    pytest.param("duckdb"),
    pytest.param("pyarrow"),
]


@dataclass(frozen=True)
class Told:
    """One run of the demo: what it printed, drew and left behind."""

    text: str
    picture: ElementTree.Element
    dataset: Path

    @property
    def history(self) -> list[HistoryEntry]:
        return fsspeckit.history(self.dataset)

    def numbers(self, pattern: str) -> list[tuple[int, ...]]:
        """The numbers in each place of the text that looks like this, ``#`` for a number."""
        found = re.finditer(pattern.replace("#", r"([\d,]+)"), self.text)
        return [tuple(int(text.replace(",", "")) for text in place.groups()) for place in found]

    def cells(self, batch: int) -> Counter[str]:
        """How many cells of each kind the row of a batch has."""
        return Counter(
            rect.get("class", "").removeprefix("cell ")
            for rect in self.picture.iter("{http://www.w3.org/2000/svg}rect")
            if rect.get("data-batch") == str(batch)
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
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    place = tmp_path_factory.mktemp("demo")
    done = run(place, "--engine", request.param, "--rows", str(ROWS), "--directory", "kept")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    picture = ElementTree.parse(place / "build" / "demo.svg").getroot()
    return Told(done.stdout, picture, place / "kept" / "orders")


pytestmark = pytest.mark.slow


def test_the_rows_are_those_of_the_dataset(told: Told) -> None:
    left = ds.dataset(told.dataset, partitioning="hive").to_table(columns=["order_id"])
    inserted = sum(number for (number,) in told.numbers("rows updated, # inserted"))
    *_, (found, of_the_killed) = told.numbers("# rows for any Parquet reader, # of this batch")
    assert told.numbers("# rows in # plain Parquet files") == [(ROWS, 100)]
    # Three batches tell what they inserted; of the killed one only a new day's rows are new.
    assert found == left.num_rows == ROWS + inserted + PER_FILE
    assert len(left.column("order_id").unique()) == left.num_rows
    assert of_the_killed > PER_FILE


def test_the_files_are_those_of_the_history(told: Told) -> None:
    before, done, drawn = 100, [], []
    for number, entry in enumerate(told.history[1:], 1):
        rewritten, new = len(entry.removed), len(entry.added) - len(entry.removed)
        done.append((rewritten, new, before - rewritten))
        cells = told.cells(number)
        untouched = cells.total() - cells["rewritten"] - cells["new"]
        drawn.append((cells["rewritten"], cells["new"], untouched))
        before += new
    assert len(done) == 4
    assert told.numbers("# files? rewritten, # new, # untouched;") == done == drawn
    proved = [(untouched, untouched) for _, _, untouched in done]
    assert told.numbers("# of # untouched files have the same name, bytes and mtime") == proved
    assert len(list(told.dataset.rglob("*.parquet"))) == before


def test_the_plan_names_each_kind_of_evidence(told: Told) -> None:
    for batch, kinds in enumerate(
        [{"statistics"}, {"statistics", "key-scan"}, {"partition", "bloom"}, {"statistics"}], 1
    ):
        assert kinds <= told.cells(batch).keys()
        for kind in kinds:
            shown = told.numbers(f"# files pruned   {kind.replace('-', ' ')}")
            assert (told.cells(batch)[kind],) in shown


def test_untouched_files_are_older_than_the_first_batch(told: Told) -> None:
    first, second, *later = told.history
    replaced = {name for entry in [second, *later] for name in entry.removed}
    untouched = set(first.added) - replaced
    begun = datetime.fromisoformat(second.time).timestamp() - second.seconds
    assert len(untouched) == 100 - len(replaced & set(first.added))
    assert all((told.dataset / name).stat().st_mtime < begun for name in untouched)


def test_a_killed_commit_is_seen_whole_or_not_at_all(told: Told) -> None:
    before, after = told.numbers("# rows for any Parquet reader, # of this batch")
    assert before[1] == 0
    assert after[0] == before[0] + PER_FILE
    assert "by SIGKILL; commit 5 is recorded, but not complete" in told.text
    assert [entry.recovered for entry in told.history] == [False] * 4 + [True]
    assert "completed by recovery" in told.text


def test_little_is_written(told: Told) -> None:
    shares = re.findall(r"^ +([123]) .* ([\d.]+)%", told.text, re.MULTILINE)
    assert [number for number, _ in shares] == ["1", "2", "3"]
    assert all(0 < float(share) < 10 for _, share in shares)


def test_the_story_fits_the_screen(told: Told) -> None:
    lines = told.text.splitlines()
    assert len(lines) <= 70
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("options", "says"),
    [(["--rows", "9"], "at least 10,000, got 9"), (["--directory", "."], "must not be there yet")],
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


def test_a_terminal_gets_a_bar_for_each_phase(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, str(SCRIPT), "--engine", "pyarrow", "--rows", str(ROWS)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, cwd=tmp_path, stdout=theirs, env=environment) as process:
        os.close(theirs)
        shown = _all_of(ours)
    assert process.returncode == 0
    for phase in ("stage", "plan", "match", "rewrite", "insert", "commit"):
        assert re.search(rf"{phase} +(\x1b\[[\d;]*m)?━{{10}}", shown)


def _all_of(terminal: int) -> str:
    """What is written to a terminal, until nobody has it open any more."""
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(terminal, 65_536)
        except OSError:  # how Linux tells the end
            part = b""
        if not part:
            os.close(terminal)
            return b"".join(parts).decode()
        parts.append(part)
