"""Where the time of a merge of one row goes: each column by pyarrow alone, the phases, the rest.

Prints a table, in milliseconds, the least of several runs; writes no page.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.protocol import link_tree
from benchmarks.peers.tables import KEY, write_files
from benchmarks.peers.workloads import named_workloads
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGER_BATCHES = {"write_batch_size": 16_384}
"""As the rewriter writes columns with a dictionary."""


def least(rounds: int, call: Callable[[], Any]) -> float:
    """Return the milliseconds of the fastest of some calls."""
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return 1000 * min(taken)


def encode(table: pa.Table, has_dictionary: bool) -> int:
    """Encode a column into memory, as the rewriter does; return its bytes."""
    sink = pa.BufferOutputStream()
    options = _LONGER_BATCHES if has_dictionary else {}
    pq.write_table(table, sink, use_dictionary=has_dictionary, store_schema=False, **options)
    return int(sink.getvalue().size)


def columns(path: Path, group: int, indexed: set[str], rounds: int) -> None:
    """Print what it takes to decode and to encode each column of a row group but the key."""
    metadata = pq.read_metadata(path)
    schema = metadata.schema.to_arrow_schema()
    texts = {field.name for field in schema if field.type == pa.string()}
    totals = [0.0, 0.0]
    print("column      decode  encode")
    for name in metadata.schema.names:
        if name == KEY:
            continue
        strings = [name] if name in indexed & texts else None

        def decode(name: str = name, strings: list[str] | None = strings) -> pa.Table:
            file = pq.ParquetFile(path, metadata=metadata, read_dictionary=strings)
            return file.read_row_groups([group], columns=[name], use_threads=False)

        table = decode()
        found = least(rounds, decode), least(rounds, partial(encode, table, name in indexed))
        totals = [total + each for total, each in zip(totals, found, strict=True)]
        print(f"{name:10s} {found[0]:7.1f} {found[1]:7.1f}")
    print(f"{'together':10s} {totals[0]:7.1f} {totals[1]:7.1f}")


def phases(dataset: Path, source: pa.Table, rounds: int, scratch: Path) -> None:
    """Print what each phase of the fastest merge took, and what a sync of the new file takes."""
    fastest: tuple[float, dict[str, float], str] | None = None
    for number in range(rounds):
        place = scratch / f"merge-{number}"
        link_tree(dataset, place)
        os.sync()
        start = time.perf_counter()
        result = PyarrowDatasetIO().merge(source, str(place), "upsert", [KEY])
        seconds = time.perf_counter() - start
        if fastest is None or seconds < fastest[0]:
            fastest = seconds, dict(result.metrics["seconds"]), result.rewritten_files[0]
    assert fastest is not None
    seconds, taken, new = fastest
    print("phase       ms")
    for name, each in {**taken, "together": seconds}.items():
        print(f"{name:10s} {1000 * each:6.1f}")
    data, syncs = Path(new).read_bytes(), []
    for number in range(rounds):
        with (scratch / f"sync-{number}").open("wb") as file:
            file.write(data)
            start = time.perf_counter()
            os.fsync(file.fileno())
            syncs.append(1000 * (time.perf_counter() - start))
    print(f"{'fsync':10s} {min(syncs):6.1f}   of the new file, which is in rewrite")


def main() -> None:
    """Make the dataset of the benchmark of peers, and print both tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.parts_of_a_rewrite", description=__doc__
    )
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=11)
    given = parser.parse_args()
    workload = next(one for one in named_workloads(given.rows) if one.name == "one-row")
    with tempfile.TemporaryDirectory() as directory:
        dataset = Path(directory) / "dataset"
        dataset.mkdir()
        paths = write_files(workload.layout, dataset)
        # The columns whose dictionary saves enough, by the rule of the rewriter (ADR 0030).
        indexed = {"part", "quantity", "shipped", "kind", "city"}
        columns(paths[0], 0, indexed, given.rounds)
        phases(dataset, workload.source(), given.rounds, Path(directory))


if __name__ == "__main__":
    main()
