"""The page of requirements is complete, and its proofs exist."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "requirements.md"
TESTS = REPOSITORY / "tests"
CONFORMANCE = REPOSITORY / "src" / "fsspeckit" / "testing" / "conformance"

ROW = re.compile(r"^\| (?P<id>R\d-\S+) \| (?P<text>.+?) \| (?P<proof>.+?) \|$", re.MULTILINE)
PROOF = re.compile(r"`(?P<name>(?:\w+::){0,2}test_\w+)`")

LINES = {
    1: {"task": 16, "A": 7},
    2: {"task": 30},
    3: {"Q": 3, "S": 11, "scenarios": 5},
    4: {"Q": 4, "S": 15, "scenarios": 7},
    5: {"Q": 10, "S": 32, "scenarios": 16, "A": 17, "B": 10, "E": 4, "L": 2, "T": 8},
}
"""How many lines of each kind the five documents have; a scenario has one clause or several."""


@dataclass(frozen=True)
class Row:
    """One requirement."""

    id: str
    text: str
    proof: str

    @property
    def document(self) -> int:
        """The number of the document it comes from."""
        return int(self.id[1])

    @property
    def line(self) -> str:
        """Its place in that document."""
        return self.id.partition("-")[2]

    @property
    def kind(self) -> str:
        """The letter of the kind of line, or ``task``."""
        return self.line[0] if self.line[0].isalpha() else "task"


def rows_of(page: str) -> list[Row]:
    """The rows of every table of the page."""
    return [Row(**match.groupdict()) for match in ROW.finditer(page)]


def faults(row: Row) -> list[str]:
    """What is wrong with the proof of a row."""
    if row.proof.startswith("open"):
        reasoned = re.fullmatch(r"open: \S.*", row.proof)
        return [] if reasoned else [f"{row.id} is open without a reason"]
    rest = re.sub(r"[,;\s]", "", PROOF.sub("", row.proof))
    found = [f"{row.id}: {rest!r} is neither a test nor 'open: reason'"] if rest else []
    for proof in PROOF.finditer(row.proof):
        tests = find_tests(proof["name"])
        if not tests:
            found.append(f"{row.id}: there is no test {proof[0]}")
        elif len(tests) > 1:
            found.append(f"{row.id}: {proof[0]} may be any of {', '.join(tests)}")
    return found


def find_tests(name: str) -> list[str]:
    """Return the tests, as ``file::Class::test``, that a name may refer to.

    A name is ``test``, ``Class::test`` or either one after the name of its file without ``.py``;
    the folder does not matter, so a file that moves keeps its rows.
    """
    return all_tests().get(name, [])


@cache
def all_tests() -> dict[str, list[str]]:
    """Every test below ``tests``, by each name that may refer to it."""
    named: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for test in sorted(defined_tests(path)):
            parts = [path.stem, *test.split("::")]
            for first in range(len(parts)):
                named.setdefault("::".join(parts[first:]), []).append("::".join(parts))
    return named


@cache
def defined_tests(path: Path) -> frozenset[str]:
    """The names of the tests in a file, those in classes and their bases as ``Class::test``."""
    if not path.is_file():
        return frozenset()
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{name}" for name in _with_inherited(node)}
        names |= _functions([node])
    return frozenset(names)


@cache
def shared_classes() -> dict[str, ast.ClassDef]:
    """The classes of the conformance suite, whose tests an engine's test file inherits."""
    paths = sorted(CONFORMANCE.glob("*.py"))
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    return {
        node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)
    }


def _with_inherited(node: ast.ClassDef) -> set[str]:
    names = _functions(node.body)
    for base in node.bases:
        shared = shared_classes().get(getattr(base, "id", ""))
        names |= _with_inherited(shared) if shared else set()
    return names


def _functions(body: list[ast.stmt]) -> set[str]:
    defined = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    return {name for name in defined if name.startswith("test")}


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return rows_of(PAGE.read_text(encoding="utf-8"))


def test_every_row_is_proven_or_open(rows: list[Row]) -> None:
    assert [fault for row in rows for fault in faults(row)] == []


def test_ids_are_unique(rows: list[Row]) -> None:
    assert [row_id for row_id, count in Counter(row.id for row in rows).items() if count > 1] == []


def test_every_line_of_the_documents_has_a_row(rows: list[Row]) -> None:
    counted: dict[int, Counter[str]] = {document: Counter() for document in LINES}
    for row in rows:
        counted[row.document][row.kind] += 1
    for document in counted:
        clauses = [row for row in rows if row.document == document and row.kind == "S"]
        if clauses:
            scenarios = {row.line.partition(".")[0] for row in clauses}
            counted[document]["scenarios"] = len(scenarios)
    assert counted == LINES


def test_every_table_row_was_understood(rows: list[Row]) -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    headings = [line for line in lines if line.startswith(("| Id", "|---"))]
    assert len(rows) == len(lines) - len(headings)


@pytest.mark.parametrize(
    ("proof", "right"),
    [
        ("open: needs the merge", True),
        ("open:", False),
        ("open", False),
        ("`test_ids_are_unique`", True),
        ("`test_requirements::test_ids_are_unique`", True),
        ("`TestPyarrow::test_filenames_are_unique`", True),
        ("`test_filenames_are_unique`", False),
        ("`test_requirements::Row`", False),
        ("`test_nothing_of_the_kind`", False),
        ("`test_nowhere::test_ids_are_unique`", False),
        ("`tests/docs/test_requirements.py::test_ids_are_unique`", False),
        ("somebody looked at it", False),
    ],
)
def test_the_check_of_proofs_sees(proof: str, right: bool) -> None:
    assert (faults(Row("R1-1.1", "text", proof)) == []) is right


def test_methods_are_found_with_their_class(tmp_path: Path) -> None:
    path = tmp_path / "test_x.py"
    path.write_text("class TestA:\n    def test_b(self): ...\n    def helper(self): ...\n")
    assert defined_tests(path) == {"TestA::test_b"}


def test_inherited_tests_are_found(tmp_path: Path) -> None:
    path = tmp_path / "test_x.py"
    path.write_text("class TestA(EngineTests): ...\n\n\nclass TestB(Other): ...\n")
    assert "TestA::test_append_writes_new_parquet_files_only" in defined_tests(path)
    assert not any(name.startswith("TestB") for name in defined_tests(path))
