"""Code and documentation keep to the words of docs/glossary.md.

A word that the glossary replaces is refused, in prose and as a part of a name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).parents[2]
GLOSSARY = REPOSITORY / "docs" / "glossary.md"
SOURCE = REPOSITORY / "src" / "fsspeckit"
MADE_FROM_HELP = (
    REPOSITORY / "docs" / "reference" / "cli.md",
    REPOSITORY / "docs" / "reference" / "cli-json.md",
    REPOSITORY / "scripts" / "cli_reference.py",
)
"""The pages about the command line say what its source says, and are checked with it."""


class Replaced(NamedTuple):
    """A word that is not used any more."""

    said: str
    instead: str
    pattern: str
    """Of the word, in any case of letters, not inside of a longer word."""


_COMPARED = "longer|more|less|fewer|later|earlier|faster|slower|safer|better|worse|larger|smaller"

REPLACED = (
    Replaced("told, tells", "reported, returned, printed, says", r"told(?! apart)|tells"),
    Replaced("written anew", "rewritten, encoded again", r"anew"),
    Replaced(
        "is no double",
        "is not a valid double",
        rf"(?<!there )(?:is|are|was|were) no (?!{_COMPARED})[a-z]+",
    ),
    Replaced("a misfit", "a value that does not fit, a conversion error", r"misfit(?:s|ting)?"),
    Replaced(
        "places (in a dictionary)",
        "positions, dictionary indices",
        r"(?<!decimal )places|place in (?:a|the|its) dictionary",
    ),
    Replaced("sieve, sift", "prefilter", r"sieves?|sift(?:s|ed|ing)?"),
    Replaced("anatomy, dissect", "layout, parse", r"anatomy|dissect(?:s|ed|ing)?"),
    Replaced("a look at it", "reading it, a check", r"(?:a|no|two|another) looks?"),
    Replaced("such that", "so that, whose", r"such that"),
    Replaced("handed over, lent", "passed, tracked", r"hand(?:s|ed)? over|lent|loans?"),
    Replaced("patience", "retries, a retry policy", r"patience|patient(?:ly)?"),
    Replaced("witnesses", "representative keys", r"witness(?:es)?"),
    Replaced(
        "MANY_ROWS, FEW_KEYS",
        "MIN_…_ROWS, MAX_…_KEYS",
        r"(?-i:(?:FEW|MANY|LITTLE|MORE|MOST)_[A-Z]+)",
    ),
    Replaced(
        "held = …, shown = …",
        "a noun for a value: existing, text",
        r"(?<![\w.])(?:told|shown|spelled|held|taken|sifted)(?= :?= )",
    ),
)

ALLOWED = (
    "unless it is told not to",  # Spark, about INT96
    "told not to insert",  # a peer, about its options
    "PATIENCE_SECONDS",  # until the constant has another name
)
"""Phrases in which such a word is ordinary English."""

GENERATED = re.compile(r"<!-- modules: .*?<!-- end of modules -->", re.DOTALL)
"""What repeats docstrings; the docstrings are checked."""


def uses_in(text: str) -> list[str]:
    """Return every use of a replaced word, with its line and what to write instead."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        kept = line
        for phrase in ALLOWED:
            kept = kept.replace(phrase, "")
        for word in REPLACED:
            pattern = rf"(?<![a-z])(?:{word.pattern})(?![a-z])"
            found += [
                f"{number}: {match[0]!r} in {line.strip()!r}: write {word.instead}"
                for match in re.finditer(pattern, kept, re.IGNORECASE)
            ]
    return found


def documentation() -> list[Path]:
    """What people write beside the code."""
    pages = [*(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "docs").rglob("*.py")]
    own = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "Makefile"]
    scripts = [*(REPOSITORY / "examples").rglob("*.py"), *(REPOSITORY / "scripts").iterdir()]
    paths = {*pages, *own, *(path for path in scripts if path.is_file())}
    return sorted(paths - {GLOSSARY, *MADE_FROM_HELP})


def uses_in_files(paths: list[Path]) -> list[str]:
    """Every use of a replaced word in some files."""
    texts = {path: GENERATED.sub("", path.read_text(encoding="utf-8")) for path in paths}
    assert texts
    return [
        f"{path.relative_to(REPOSITORY)}:{use}" for path in texts for use in uses_in(texts[path])
    ]


def names_of_tests(path: Path) -> str:
    """The names of the tests of a file as text, one each line."""
    names = re.findall(r"^ *(?:def|class) ([Tt]est\w+)", path.read_text(encoding="utf-8"), re.M)
    return "\n".join(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.replace("_", " ")) for name in names)


def test_documentation() -> None:
    assert uses_in_files(documentation()) == []


def test_what_tests_share() -> None:
    assert uses_in_files(sorted((SOURCE / "testing").rglob("*.py"))) == []


# Not strict: code and names of tests take the words of the glossary package by package.
def test_source() -> None:
    modules = [path for path in SOURCE.rglob("*.py") if "testing" not in path.parts]
    assert uses_in_files([*sorted(modules), *MADE_FROM_HELP]) == []


def test_names_of_tests() -> None:
    paths = [*(REPOSITORY / "tests").rglob("*.py"), *(SOURCE / "testing").rglob("*.py")]
    found = [
        f"{path.relative_to(REPOSITORY)}: {use}"
        for path in sorted(paths)
        for use in uses_in(names_of_tests(path))
    ]
    assert found == []


def test_the_glossary_lists_the_words() -> None:
    table = GLOSSARY.read_text(encoding="utf-8").partition("| Not | But |\n|---|---|\n")[2]
    assert table.splitlines() == [f"| {word.said} | {word.instead} |" for word in REPLACED]


def test_the_glossary_is_linked() -> None:
    assert "docs/glossary.md" in (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert "docs/glossary.md" in (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("word", REPLACED, ids=lambda word: word.said)
def test_a_replaced_word_is_seen(word: Replaced) -> None:
    said = word.said.partition(", ")[0]
    assert uses_in(f"what {said} means" if "…" not in said else "held = 1")


@pytest.mark.parametrize(
    "text",
    [
        "There is no double.",
        "It is no longer there.",
        "Two errors are told apart by type.",
        "A number with two decimal places.",
        "It looks at every page and is silent.",
        "It is placed there, and how many_rows it has.",
        "is_taken = name in names",
    ],
)
def test_ordinary_english_is_not_refused(text: str) -> None:
    assert uses_in(text) == []
