"""What results look like: as text, on a terminal, and in a notebook."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import re
import time
from decimal import Decimal
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

import fsspeckit
from fsspeckit.core.merge import MergeFileMetadata, MergeResult
from fsspeckit.core.planning.plan import FilePlan, MergePlan
from fsspeckit.core.planning.pruning import Evidence
from fsspeckit.datasets.inspection import diagnose_dataset, inspect_dataset
from fsspeckit.display import Card, Displayed, FileGroup, Lane, Listing, Mark, lanes_by_partition
from fsspeckit.display.card import MAX_LINES, plain, shortened, size
from fsspeckit.display.render import COLOURS, STYLES, picture
from fsspeckit.storage.commit.recovery import RecoveredCommit, RecoveryReport
from fsspeckit.storage.history import History, HistoryEntry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fsspeckit.core.planning.plan import Decision
    from fsspeckit.core.planning.pruning import EvidenceKind

ODD = "<script>&\"'[red]ä"
"""A text that HTML and rich would take for something else."""


def file(name: str, decision: Decision, kind: EvidenceKind, detail: str = "") -> FilePlan:
    return FilePlan(f"data/{name}", 10, 1000, decision, Evidence(kind, ("id",), detail), (), 1)


def plan(*files: FilePlan, **options: Any) -> MergePlan:
    return MergePlan("data", "upsert", ("id",), (), 3, files, **options)


def large_plan(count: int = 10_000) -> MergePlan:
    pruned = [file(f"{n}.parquet", "pruned", "statistics") for n in range(count - 1)]
    return plan(*pruned, file("hit.parquet", "affected", "key scan"))


def entry(number: int = 7, **options: Any) -> HistoryEntry:
    values: dict[str, Any] = {
        "number": number,
        "time": "2026-01-02T03:04:05.678+00:00",
        "engine": "pyarrow",
        "strategy": "upsert",
        "key_columns": ("id",),
        "counts": {"inserted": 2, "updated": 1, "deleted": 0},
        "added": ("a.parquet", "b.parquet"),
        "removed": ("c.parquet",),
        "seconds": 0.25,
        "published": "exchange",
        "complete": True,
        "recovered": False,
    }
    return HistoryEntry(**(values | options))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One of each, of a real merge."""
    path = f"{tmp_path_factory.mktemp('results')}/data"
    old = pa.table({"id": range(100), "v": ["old"] * 100})
    new = pa.table({"id": [5, 15, 500], "v": ["new", "old", "new"]})
    written = fsspeckit.write_dataset(old, path, max_rows_per_file=10, engine="pyarrow")
    made = fsspeckit.plan_merge(new, path, "upsert", ["id"], engine="pyarrow")
    merged = fsspeckit.execute(made)
    found = fsspeckit.history(path)
    return {
        "write": written,
        "plan": made,
        "merge": merged,
        "history": found,
        "entry": found[-1],
        "recovery": fsspeckit.recover(path),
    }


NAMES = ["write", "plan", "merge", "history", "entry", "recovery"]


def on_terminal(result: Any, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(result)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


class Checked(HTMLParser):
    """Tags that are closed, and nothing that is loaded from anywhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        assert not {"src", "href", "onload", "onclick"} & {name for name, _ in attrs}

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def pictures(text: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text)]


def squares(svg: ElementTree.Element) -> dict[str, int]:
    """How many shapes there are of each colour."""
    space = "{http://www.w3.org/2000/svg}"
    return {
        group.attrib["fill"]: len(group.findall(f"{space}rect")) for group in svg.iter(f"{space}g")
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_result_has_the_three_looks(results: dict[str, Any], name: str) -> None:
    result = results[name]
    assert isinstance(result, Displayed)
    assert str(result).splitlines()[0] in on_terminal(result) or name == "history"
    tags = Checked(result._repr_html_()).tags
    assert tags <= {
        *("div", "strong", "em", "span", "details", "summary"),
        *("svg", "title", "g", "rect", "line", "text"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("write", r"append of 100 rows\n10 files: 10 written"),
        (
            "merge",
            r"upsert of 3 rows: 1 inserted, 2 updated, 0 deleted; 101 rows now\n"
            r"11 files: 1 rewritten, 1 inserted, 8 preserved: pruned by statistics, "
            r"1 preserved: no value changed\n"
            r"commit 2, published by \w+",
        ),
        (
            "entry",
            r"commit 2 at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: upsert by id with pyarrow: "
            r"1 inserted, 2 updated; 2 files added, 1 removed \(complete, \d+\.\d s\)",
        ),
        ("recovery", r".*/data: nothing to recover"),
    ],
)
def test_text_is_short(results: dict[str, Any], name: str, text: str) -> None:
    assert re.fullmatch(text, str(results[name]))


def test_a_picture_has_a_square_for_each_file(results: dict[str, Any]) -> None:
    (merged,) = pictures(results["merge"]._repr_html_())
    assert squares(merged) == {
        COLOURS["changed"]: 1,
        COLOURS["added"]: 1,
        COLOURS["statistics"]: 8,
        COLOURS["kept"]: 1,
    }
    (planned,) = pictures(results["plan"]._repr_html_())
    assert squares(planned) == {COLOURS["changed"]: 2, COLOURS["statistics"]: 8}


def rects(svg: ElementTree.Element) -> list[tuple[float, float, float]]:
    """Line, left end and width of each shape."""
    found = (one.attrib for one in svg.iter("{http://www.w3.org/2000/svg}rect"))
    return sorted((float(a["y"]), float(a["x"]), float(a["width"])) for a in found)


def texts(svg: ElementTree.Element) -> list[str]:
    found = svg.iter("{http://www.w3.org/2000/svg}text")
    return ["".join(one.itertext()) for one in found]


def test_a_file_is_as_wide_as_its_bytes_and_in_the_order_of_names() -> None:
    marks = [Mark("b", "added", 300), Mark("a", "changed", 100), Mark("c", "kept", 0)]
    svg = ElementTree.fromstring(picture(lanes_by_partition(marks)))
    first, second, third = rects(svg)
    assert [round(x) for _, x, _ in (first, second, third)] == [0, 120, 480]
    assert [round(width) for _, _, width in (first, second)] == [119, 359]
    assert third[2] > 1  # visible, although it is empty
    assert texts(svg)[-2:] == ["0", "400 B"]


def test_without_bytes_the_axis_counts_files() -> None:
    svg = ElementTree.fromstring(picture([Lane((Mark("", "kept", None, 3),))]))
    assert [width for _, _, width in rects(svg)] == [pytest.approx(159)] * 3
    assert texts(svg) == ["0", "3 files"]


def test_each_partition_has_a_line_of_one_scale() -> None:
    marks = [Mark(f"day={n % 2}/{n}", "added", 10 * (1 + n % 2)) for n in range(4)]
    lanes = lanes_by_partition(marks)
    assert [(lane.name, lane.note) for lane in lanes] == [
        ("day=0", "2 files, 20 B"),
        ("day=1", "2 files, 40 B"),
    ]
    svg = ElementTree.fromstring(picture(lanes))
    ends = {y: x + width for y, x, width in rects(svg)}
    assert [round(end) for end in ends.values()] == [150 + 239, 150 + 479]


def test_many_partitions_are_one_line() -> None:
    (lane,) = lanes_by_partition(Mark(f"day={n}/a", "added", 10) for n in range(MAX_LINES + 1))
    assert len(lane.marks) == MAX_LINES + 1


def test_the_same_picture_of_plan_result_and_history(results: dict[str, Any]) -> None:
    lines = {}
    for name in ("plan", "merge", "history"):
        (svg,) = pictures(results[name]._repr_html_())
        lines[name] = len({y for y, _, _ in rects(svg)})
        assert texts(svg)[-1].endswith(" kB")
        assert {line.attrib["stroke"] for line in svg.iter() if "stroke" in line.attrib} == {
            "currentColor"
        }
    assert lines == {"plan": 1, "merge": 1, "history": 2}
    (history,) = pictures(results["history"]._repr_html_())
    assert "+2 -1" in " ".join(texts(history))


def test_a_viewer_chooses_html_or_text(results: dict[str, Any]) -> None:
    for name in NAMES:
        bundle = results[name]._repr_mimebundle_(include=None, exclude=None)
        assert bundle == {
            "text/html": results[name]._repr_html_(),
            "text/plain": str(results[name]),
        }


def test_nothing_of_a_picture_needs_a_style_sheet_or_a_background(results: dict[str, Any]) -> None:
    """So it is readable on dark pages, too: text has the colour of the page's own text."""
    for name in NAMES:
        html = results[name]._repr_html_()
        assert not re.search(r"<style|<script|http(?!://www.w3.org/2000/svg)|black|white", html)
        for svg in pictures(html):
            coloured = {one.attrib["fill"] for one in svg.iter() if "fill" in one.attrib}
            assert coloured <= {"currentColor", *COLOURS.values()}


def test_a_long_name_is_cut_and_whole_in_its_title() -> None:
    name = f"customer={ODD * 20}"
    svg = ElementTree.fromstring(picture([Lane((Mark(name, "kept", 1),), name)]))
    (text, *_) = svg.iter("{http://www.w3.org/2000/svg}text")
    assert text[0].text == name
    assert len(text[0].tail or "") < 30


def test_ten_thousand_files_are_one_bar_and_a_few_lines() -> None:
    made = large_plan()
    started = time.perf_counter()
    html, text, screen = made._repr_html_(), str(made), on_terminal(made)
    assert time.perf_counter() - started < 2
    (svg,) = pictures(html)
    assert squares(svg) == {COLOURS["changed"]: 1, COLOURS["statistics"]: 1}
    assert all(float(rect.attrib["width"]) >= 2.9 for rect in svg.iter() if "width" in rect.attrib)
    assert len(html) < 10_000
    assert len(text.splitlines()) == len(screen.splitlines()) - 2 == MAX_LINES + 3
    assert "and 9,980 pruned by statistics (99,800 rows, 9,980,000 bytes)" in text
    assert text.splitlines()[2].split()[:2] == ["affected", "hit.parquet"]
    assert "… and 9,980 more" in screen
    assert len(made.explain().splitlines()) == 10_002


def test_a_plan_is_summed_up_by_reason() -> None:
    made = plan(
        file("a", "pruned", "statistics"),
        file("b", "pruned", "partition"),
        file("c", "affected", "key scan"),
        file("d", "pruned", "statistics"),
        file("e", "affected", "unreadable"),
        file("f", "affected", "statistics"),
        file("g", "guarded", "none"),
        file("h", "pruned", "none"),
    )
    assert [(reason.files, reason.label, reason.tone) for reason in made.summary()] == [
        (1, "affected", "changed"),
        (1, "affected: rows are deleted", "changed"),
        (1, "affected: unreadable", "changed"),
        (1, "guarded", "open"),
        (2, "pruned by statistics", "statistics"),
        (1, "pruned", "kept"),
        (1, "pruned by partition", "partition"),
    ]
    assert str(made.summary()[4]) == "2 pruned by statistics (20 rows, 2,000 bytes)"


def test_partitions_taken_on_trust_are_noted() -> None:
    made = plan(trusted_partitions=True)
    note = "other partitions were not checked: trust_partitions=True"
    assert all(note in look for look in (str(made), on_terminal(made), made._repr_html_()))


@pytest.mark.parametrize(
    "result",
    [
        plan(file(ODD, "affected", "statistics", ODD)),
        MergeResult(ODD, 1, 2, 3, 1, 0, 0, [MergeFileMetadata(ODD, 1, "inserted")], [], [ODD], []),
        entry(engine=ODD, added=(ODD,), notes=(ODD,)),
        History([entry(strategy=ODD)]),
        RecoveryReport(ODD, (RecoveredCommit(1, "plain", (ODD,), (), (ODD,)),), (ODD,), (ODD,)),
    ],
    ids=lambda result: type(result).__name__,
)
def test_texts_are_taken_literally(result: Any) -> None:
    assert "script" not in Checked(result._repr_html_()).tags
    assert "&lt;script&gt;&amp;" in result._repr_html_()
    assert ODD in on_terminal(result)


def test_a_result_without_metrics_can_be_shown() -> None:
    result = MergeResult("insert", 1, 2, 3, 1, 0, 0, [], [], [], ["a"])
    assert str(result).splitlines()[1:] == ["1 file: 1 preserved"]


def test_removed_files_and_merges_that_wrote_nothing(tmp_path: Path) -> None:
    path = f"{tmp_path}/data"
    rows = pa.table({"id": [1, 2]})
    fsspeckit.write_dataset(rows, path, max_rows_per_file=1, engine="pyarrow")
    again = fsspeckit.merge(rows, path, "upsert", ["id"], engine="pyarrow")
    assert str(again).endswith("\nnothing had to be written")
    fewer = fsspeckit.merge(rows.slice(1), path, "full_merge", ["id"], engine="pyarrow")
    assert "1 removed" in str(fewer)


@pytest.mark.parametrize(
    ("options", "state"),
    [
        ({}, "complete"),
        ({"recovered": True}, "recovered"),
        ({"complete": False}, "pending"),
        ({"abandoned": True}, "abandoned"),
    ],
)
def test_the_state_of_a_commit(options: dict[str, Any], state: str) -> None:
    assert entry(**options).state == state
    assert f"({state}, 0.2 s)" in str(entry(**options))


def test_a_commit_without_keys_and_rows() -> None:
    clear = entry(strategy="clear", key_columns=(), counts={}, added=())
    assert "clear with pyarrow; 0 files added, 1 removed" in str(clear)


def test_a_long_history_shows_its_end() -> None:
    long = History([entry(number) for number in range(1, 51)])
    lines = str(long).splitlines()
    assert lines[0] == "30 commits before"
    assert lines[-1].startswith("commit 50 ")
    screen = on_terminal(long).splitlines()
    assert screen[0].strip() == "50 commits"
    assert screen[2].split()[0] == "50"
    assert str(History()) == "no commits"
    (svg,) = pictures(long._repr_html_())
    assert len({y for y, _, _ in rects(svg)}) == MAX_LINES
    assert texts(svg)[0].endswith("50 upsert")
    assert texts(svg)[-1] == "… and 30 more"
    assert long == list(long)


def test_a_recovery_shows_what_it_did() -> None:
    done = RecoveredCommit(3, "plain", ("a", "b"), ("c",), ("foreign file kept",))
    report = RecoveryReport("data", (done,), ("stage-1",), ("stage-2",))
    screen = on_terminal(report)
    for text in ("data: recovered", "completed commit 3", "stage-1", "stage-2", "foreign file"):
        assert text in screen
    (svg,) = pictures(report._repr_html_())
    assert squares(svg) == {COLOURS["added"]: 2, COLOURS["removed"]: 1}


def test_every_meaning_has_a_colour() -> None:
    assert COLOURS.keys() == STYLES.keys()
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_a_card_without_files() -> None:
    card = Card("title", (FileGroup("written", "added", 0),), Listing(("a",), ()))
    assert card.text() == "title\n0 files: 0 written"

    class Empty(Displayed):
        def _card(self) -> Card:
            return card

    assert pictures(Empty()._repr_html_()) == []
    with pytest.raises(NotImplementedError):
        str(Displayed())


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, ""),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (2_340_000_000, "2.3 GB"),
        (5 * 10**15, "5,000.0 TB"),
    ],
)
def test_sizes(count: int | None, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([], []),
        (["a.parquet"], ["a.parquet"]),
        (["/d/s/a", "/d/s/b"], ["a", "b"]),
        (["/d/s/a", "/d/t/b"], ["s/a", "t/b"]),
        (["/d/sa/a", "/d/sb/b"], ["sa/a", "sb/b"]),
        (["s3://b/d/x=1/y=2/a"], ["x=1/y=2/a"]),
        (["/d/x=1/a", "/d/x=1/b"], ["x=1/a", "x=1/b"]),
        (["/a", "/b"], ["a", "b"]),
    ],
    ids=str,
)
def test_paths_without_what_they_share(paths: list[str], expected: list[str]) -> None:
    assert list(map(shortened(paths), paths)) == expected


def test_files_can_be_distinguished_on_a_narrow_terminal(tmp_path: Path) -> None:
    place = tmp_path / "a-directory-with-a-rather-long-name"
    written = fsspeckit.write_dataset(
        pa.table({"id": [1, 2]}), str(place), max_rows_per_file=1, engine="pyarrow"
    )
    console = Console(file=io.StringIO(), width=60, color_system=None)
    console.print(written)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for file in written.files:
        assert file.path.rpartition("/")[2][:20] in shown


@pytest.mark.parametrize("what", NAMES)
def test_a_result_becomes_a_dictionary_that_json_can_write(
    results: dict[str, Any], what: str
) -> None:
    fields = results[what].to_dict()
    assert json.loads(json.dumps(fields, allow_nan=False)) == fields


def test_what_inspection_finds_becomes_a_dictionary(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    rows = pa.table({"id": [1, 2], "day": pa.array([0, 1], pa.date32()), "f": [float("nan"), 1.0]})
    fsspeckit.write_dataset(rows, path, partition_by="day", engine="pyarrow")
    inspected = inspect_dataset(path, key_columns=["id"]).to_dict()
    diagnosed = diagnose_dataset(path, ["id"]).to_dict()
    assert (inspected["rows"], diagnosed["verdict"]) == (2, "good")
    for fields in (inspected, diagnosed):
        assert json.loads(json.dumps(fields, allow_nan=False)) == fields


def test_what_repartitioning_did_becomes_a_dictionary(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    rows = pa.table({"id": [1, 2], "day": pa.array([0, None], pa.date32())})
    fsspeckit.write_dataset(rows, path, engine="pyarrow")
    result = fsspeckit.repartition(path, "day", engine="pyarrow")
    fields = result.to_dict()
    assert json.loads(json.dumps(fields, allow_nan=False)) == fields
    assert [one["partition_values"]["day"] for one in fields["files"]] == ["1970-01-01", None]
    assert str(result).startswith("repartition of 2 rows from no partitions to day")


def test_the_dictionary_of_a_history_has_its_commits() -> None:
    fields = History([entry(7), entry(8, complete=False)]).to_dict()
    assert [(one["number"], one["complete"]) for one in fields["commits"]] == [
        (7, True),
        (8, False),
    ]
    assert fields["commits"][0] == entry(7).to_dict()
    assert entry(7).to_dict()["key_columns"] == ["id"]


def test_the_dictionary_of_a_recovery_has_what_it_completed() -> None:
    commit = RecoveredCommit(3, "plain", ("a.parquet",), ("b.parquet",))
    assert RecoveryReport("data", (commit,), ("old",)).to_dict() == {
        "path": "data",
        "completed": [
            {
                "number": 3,
                "published": "plain",
                "added": ["a.parquet"],
                "removed": ["b.parquet"],
                "notes": [],
                "abandoned": False,
            }
        ],
        "discarded": ["old"],
        "in_use": [],
    }


def test_what_json_does_not_have_becomes_text() -> None:
    values = {
        "day": dt.date(2026, 1, 2),
        "nan": math.nan,
        "inf": -math.inf,
        "digits": Decimal("1.50"),
        "bytes": b"x",
        7: (np.int64(8), np.float32(0.5), True),
    }
    assert plain(values) == {
        "day": "2026-01-02",
        "nan": "nan",
        "inf": "-inf",
        "digits": "1.50",
        "bytes": "b'x'",
        "7": [8, 0.5, True],
    }
