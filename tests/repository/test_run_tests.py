"""The runner of all tests, on parts that end as told."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from scripts import run_tests

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = [part.name for part in run_tests.PARTS]


@pytest.fixture
def ends_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[int]], None]:
    def prepare(codes: list[int]) -> None:
        def start(
            part: run_tests.Part, _: list[str], output: int | None
        ) -> subprocess.Popen[bytes]:
            code = codes[NAMES.index(part.name)]
            program = f"import sys; print('part {part.name}.'); sys.exit({code})"
            return subprocess.Popen([sys.executable, "-c", program], stdout=output, stderr=output)

        monkeypatch.setattr(run_tests, "start", start)

    return prepare


@pytest.mark.parametrize("failing", [None, *range(len(NAMES))])
def test_a_part_that_fails_is_named(
    ends_with: Callable[[list[int]], None],
    capfdbinary: pytest.CaptureFixture[bytes],
    failing: int | None,
) -> None:
    ends_with([1 if number == failing else 0 for number in range(len(NAMES))])
    assert run_tests.run([]) == ([] if failing is None else [NAMES[failing]])
    shown = capfdbinary.readouterr().out.decode().split("part ")[1:]
    assert sorted(text.partition(".")[0] for text in shown) == sorted(NAMES)


def test_a_part_without_tests_has_not_failed(ends_with: Callable[[list[int]], None]) -> None:
    ends_with([run_tests.NOTHING_COLLECTED] * len(NAMES))
    assert run_tests.run([]) == []


def _takes(part: run_tests.Part, path: str, spark: bool) -> bool:
    ignored = [option.partition("=")[2] for option in part.options if option.startswith("--ignore")]
    is_left = not any(path == one or path.startswith(f"{one}/") for one in ignored)
    return is_left and bool(eval(part.marks, {}, {"spark": spark}))


@pytest.mark.parametrize("spark", [True, False])
def test_every_test_is_in_one_part(spark: bool) -> None:
    tests = [
        path.relative_to(run_tests.ROOT) for path in (run_tests.ROOT / "tests").rglob("test_*.py")
    ]
    for test in tests:
        taking = [part.name for part in run_tests.PARTS if _takes(part, test.as_posix(), spark)]
        assert len(taking) == 1, test
