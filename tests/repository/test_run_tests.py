"""The runner of all tests, on parts that end as told."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from scripts import run_tests

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def ends_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    def prepare(*codes: int) -> None:
        left = list(reversed(codes))  # the part that is shown last starts first

        def start(_: str, __: list[str], output: int | None) -> subprocess.Popen[bytes]:
            code = left.pop(0)
            program = f"import sys; print('part', {code}); sys.exit({code})"
            return subprocess.Popen([sys.executable, "-c", program], stdout=output, stderr=output)

        monkeypatch.setattr(run_tests, "start", start)

    return prepare


@pytest.mark.parametrize(
    ("codes", "failed"),
    [((0, 0), []), ((1, 0), ["without spark"]), ((0, 2), ["spark"]), ((5, 0), [])],
)
def test_a_part_that_fails_is_named(
    ends_with: Callable[..., None],
    capfdbinary: pytest.CaptureFixture[bytes],
    codes: tuple[int, int],
    failed: list[str],
) -> None:
    ends_with(*codes)
    assert run_tests.run([]) == failed
    shown = capfdbinary.readouterr().out.split(b"part ")[1:]
    assert [int(part) for part in shown] == list(codes)


@pytest.mark.parametrize("spark", [True, False])
def test_no_test_is_in_both_parts_or_in_none(spark: bool) -> None:
    assert sum(eval(part, {}, {"spark": spark}) for part in run_tests.PARTS.values()) == 1
