"""The growth of the cost of a merge, at a size at which it takes no time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from benchmarks.bench_growth import DIMENSIONS, LARGE, Table, exponent, main
from benchmarks.harness import LIMIT_MISSED

from benchmarks import bench_growth

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("power", "expected"), [(1, 1.0), (2, 2.0), (0, 0.0)])
def test_exponents(power: int, expected: float) -> None:
    seconds = [3.0 * size**power for size in (1, 4, 16)]
    assert [exponent(seconds, start) for start in (0, 1)] == pytest.approx([expected] * 2)


@pytest.mark.parametrize(
    "table",
    [
        Table(files=2, rows=10),
        Table(files=3, rows=10, one_file=True, partitioned=True),
        Table(rows=40, row_groups=4, changed=4, batches=2),
        Table(rows=10, changed=5, batches=5, new=True),
    ],
)
def test_a_shape_is_merged_and_its_counts_are_checked(table: Table, tmp_path: Path) -> None:
    table.write(tmp_path / "original")
    seconds, cpu = bench_growth._merge(tmp_path / "original", table)
    assert min(seconds, cpu) > 0


@pytest.mark.parametrize(("limit", "code"), [(-100.0, LIMIT_MISSED), (100.0, 0)])
def test_growth_that_is_too_fast_fails(
    limit: float, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    dimensions = {"rows": lambda n: Table(rows=10 * n)}
    assert main(["--no-page", "--rounds", "1"], dimensions, limit) == code
    assert ("**missed**" in capsys.readouterr().out.split("Exponents are")[0]) is bool(code)


def test_every_dimension_grows_by_its_factor() -> None:
    for name, table_of in DIMENSIONS.items():
        small, large = table_of(1), table_of(16)
        assert any(
            getattr(large, what) == 16 * getattr(small, what)
            for what in ("rows", "columns", "files", "row_groups", "batches")
        ), name
    assert max(table.files for table in LARGE.values()) == 100_000
