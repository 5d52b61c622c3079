"""Every Python block of the documentation runs, and prints what the page says it prints.

The blocks of a page share one namespace and one temporary working directory. Two comments, on the
line above a block, mean something here:

- ``<!-- output -->``: the block holds what the Python block before it prints.
- ``<!-- not run: reason -->``: the Python block is shown only, and why.
"""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[2]
PAGES = {
    path.relative_to(REPOSITORY).as_posix(): path
    for path in [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
}

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*$")
COMMENT = re.compile(r"^ *<!-- *(?P<text>.*?) *-->$")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    text: str
    line: int
    """The line of the page on which the text begins."""

    note: str = ""
    """What the comment above it says."""

    @property
    def runs(self) -> bool:
        """Whether it is Python that is meant to run."""
        return self.language == "python" and not self.note.startswith("not run")


def blocks_of(page: str) -> list[Block]:
    """The fenced blocks of a Markdown page, in order."""
    lines = page.splitlines()
    found: list[Block] = []
    number = 0
    while number < len(lines):
        if fence := FENCE.match(lines[number]):
            end = lines.index(f"{fence['indent']}```", number + 1)
            body = [line.removeprefix(fence["indent"]) for line in lines[number + 1 : end]]
            text = "".join(f"{line}\n" for line in body)
            found.append(Block(fence["language"], text, number + 2, _note(lines, number)))
            number = end
        number += 1
    return found


def _note(lines: list[str], fence: int) -> str:
    above = next((line for line in reversed(lines[:fence]) if line.strip()), "")
    comment = COMMENT.match(above)
    return comment["text"] if comment else ""


def run_page(name: str, page: str) -> list[str]:
    """Run the blocks of a page and tell each difference between said and printed output."""
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    printed: str | None = None
    differences = []
    for block in blocks_of(page):
        if block.runs:
            printed = _run(name, block, namespace)
        elif block.note == "output":
            if printed != block.text:
                said = block.text
                differences.append(f"{name}:{block.line} says\n{said}\nbut it is\n{printed}")
            printed = None  # a second output block belongs to nothing
    return differences


def _run(name: str, block: Block, namespace: dict[str, Any]) -> str:
    # Empty lines in front make the line numbers of a traceback those of the page.
    source = "\n" * (block.line - 1) + block.text
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(source, name, "exec", dont_inherit=True), namespace)
    return "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())


def pages_that_run() -> Iterator[Any]:
    """The pages with Python that runs; those that use Spark need Java, and take longer."""
    for name, path in PAGES.items():
        texts = [block.text for block in blocks_of(path.read_text(encoding="utf-8")) if block.runs]
        uses_spark = any("pyspark" in text for text in texts)
        if texts:
            yield pytest.param(name, marks=[pytest.mark.spark, pytest.mark.slow][: 2 * uses_spark])


@pytest.mark.parametrize("name", list(pages_that_run()))
def test_blocks_run(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("spark")  # which a page gets, or creates
    monkeypatch.chdir(tmp_path)
    assert run_page(name, PAGES[name].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", PAGES)
def test_a_block_that_does_not_run_says_why(name: str) -> None:
    for block in blocks_of(PAGES[name].read_text(encoding="utf-8")):
        if block.language == "python" and not block.runs:
            assert re.fullmatch(r"not run: \S.*", block.note), f"{name}:{block.line}"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_the_make_commands_exist(name: str) -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z0-9-]+)\b", _code(name)))
    assert named
    assert named <= targets


def _code(name: str) -> str:
    """What a page shows as code: its fenced blocks, and what stands in backticks."""
    page = (REPOSITORY / name).read_text(encoding="utf-8")
    inline = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", page)
    return "\n".join([*inline, *(block.text for block in blocks_of(page))])


PAGE = """
```python
x = 1
```

Text.

```python
print(x + 1)
```

<!-- output -->
```text
{said}
```

<!-- not run: needs a cluster -->
```python
raise SystemExit
```
"""


@pytest.mark.parametrize(("said", "differences"), [("2", 0), ("3", 1)])
def test_output_is_compared(said: str, differences: int) -> None:
    assert len(run_page("page.md", PAGE.format(said=said))) == differences


def test_output_without_a_block_before_it_is_reported() -> None:
    assert len(run_page("page.md", "<!-- output -->\n```text\n2\n```\n")) == 1


def test_line_numbers_are_those_of_the_page() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run_page("page.md", "# Title\n\n```python\nok = 1\n1 / 0\n```\n")
    assert caught.traceback[-1].lineno + 1 == 5


def test_indented_blocks_are_found() -> None:
    (block,) = blocks_of("- item\n\n  ```python\n  if True:\n      x = 1\n  ```\n")
    assert block.text == "if True:\n    x = 1\n"
