"""The engines agree about generated merges: rows, counters, files, and what is refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.testing.conformance import open_store
from fsspeckit.testing.conformance.crashes import some
from fsspeckit.testing.conformance.stores import data_files
from fsspeckit.testing.model import STRATEGIES
from fsspeckit.testing.strategies import GeneratedDataset, datasets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from fsspeckit.datasets.interfaces import DatasetHandler
    from fsspeckit.testing.conformance import Store

pytestmark = [pytest.mark.slow, pytest.mark.untraced]

# Each dataset is merged into by several strategies: making it up takes longer than a merge.
STRATEGIES_EACH = 3
# Some of the generated merges are refused, which is compared, too, but is no merge.
IN_PROCESS, MERGED_IN_PROCESS = 120, 260
ON_SPARK, MERGED_ON_SPARK = 27, 60


@pytest.fixture(scope="module")
def in_process() -> Iterator[list[DatasetHandler]]:
    with PyarrowDatasetIO() as pyarrow, DuckDBDatasetIO() as duckdb:
        yield [pyarrow, duckdb]


def test_pyarrow_and_duckdb(in_process: list[DatasetHandler]) -> None:
    done: Counter[str] = Counter()

    @given(data=st.data())
    @some(IN_PROCESS)
    def compare(data: st.DataObject) -> None:
        done.update(check_agreement(in_process, data))

    compare()
    assert done["merged"] >= MERGED_IN_PROCESS, done


@pytest.fixture(scope="module")
def on_spark(spark: SparkSession) -> tuple[DatasetHandler, ...]:
    """The engine as it is, and two to which every source is large: read by tasks, or joined."""
    from tests.datasets.test_spark_engine import large_io

    from fsspeckit.datasets.spark import SparkDatasetIO

    return SparkDatasetIO(spark), large_io(spark, joined=False), large_io(spark)


@pytest.mark.spark
def test_all_three(in_process: list[DatasetHandler], on_spark: tuple[DatasetHandler, ...]) -> None:
    done: Counter[str] = Counter()

    @given(data=st.data())
    @some(ON_SPARK)
    def compare(data: st.DataObject) -> None:
        size = data.draw(st.sampled_from([0, 0, 0, 0, 1, 2]), label="large if 1, very if 2")
        done.update(check_agreement([*in_process, on_spark[size]], data))

    compare()
    assert done["merged"] >= MERGED_ON_SPARK, done


# The ones that rewrite first: Hypothesis changes an order little more often than much.
_STRATEGIES = ("upsert", "update", "full_merge", "deduplicate", "delete", "insert")
assert {*_STRATEGIES} == {*STRATEGIES}


def check_agreement(engines: Sequence[DatasetHandler], data: st.DataObject) -> list[str]:
    """Run generated merges on each engine, and compare all that can be seen from outside.

    Returns:
        ``merged`` or ``refused`` for each.
    """
    nulls, twice = (data.draw(st.booleans(), label=name) for name in ("nulls", "twice"))
    moving = data.draw(st.integers(0, 9), label="moving if 9") == 9
    dataset = data.draw(
        datasets(null_source_keys=nulls, duplicate_source_keys=twice, moving_keys=moving)
    )
    chosen = data.draw(st.permutations(_STRATEGIES), label="strategies")[:STRATEGIES_EACH]
    done = []
    for strategy in chosen:
        options = data.draw(options_for(strategy, nulls, twice), label="options")
        expected, *others = (outcome(io, dataset, strategy, options) for io in engines)
        done.append("refused" if "error" in expected else "merged")
        event(f"{strategy} {done[-1]}")
        for other in others:
            assert other == expected
    return done


@st.composite
def options_for(draw: st.DrawFn, strategy: str, nulls: bool, twice: bool) -> dict[str, Any]:
    """Options with which the merge is done; one in ten times any, so that some are refused."""
    anything = draw(st.integers(0, 9)) == 9
    whole = strategy in ("full_merge", "deduplicate")
    null_keys = ["match"] if nulls and not anything else ["error", "match"]
    duplicate_keys = ["first", "last"] if twice and not anything else ["first", "last", "error"]
    rewrite_mode = ["full"] if whole and not anything else ["incremental", "full"]
    return {
        "null_keys": draw(st.sampled_from(null_keys)),
        "duplicate_keys": draw(st.sampled_from(duplicate_keys)),
        "rewrite_mode": draw(st.sampled_from(rewrite_mode)),
    }


def outcome(
    io: DatasetHandler, dataset: GeneratedDataset, strategy: str, options: dict[str, Any]
) -> dict[str, Any]:
    """What a merge did, by names that all engines share; or what it refused."""
    with open_store("exchange") as store:
        dataset.write(store.local)
        before = store.tree()
        try:
            result = io.merge_parquet_dataset(
                dataset.source, store.local, dataset.key_columns, strategy, **options
            )
        except ValueError as error:
            return {
                "error": (type(error), str(error).replace(store.local, "")),
                "untouched": store.tree() == before,
            }
        return {
            "counts": (result.source_count, result.inserted, result.updated, result.deleted),
            "without effect": (result.late, result.not_found),
            "rows": (result.target_count_before, result.target_count_after),
            "preserved": {store.relative(path) for path in result.preserved_files},
            "rewritten": {
                old.removeprefix(store.local): content(store, new)
                for old, new in result.metrics["renamed"].items()
            },
            "inserted": Counter(content(store, path) for path in result.inserted_files),
            "files": len(data_files(store.tree())),
        }


def content(store: Store, path: str) -> str:
    """The directory, the columns and the rows of a file, in their order."""
    table = pq.ParquetFile(path).read()
    directory = store.relative(path).rpartition("/")[0]
    return repr((directory, str(table.schema), table.to_pylist()))
