"""A reader in a process of its own that reads datasets again and again, until a file appears.

Started as ``python -m tests.storage.reader <engine> <stop file> <root>:<below>…``. Every commit
gives all rows with ids below a limit the same new version. So a read is right if it has exactly
the expected ids, one version of those rows, and the first version of all others. A read may fail,
but only because a file is gone.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

Rows = list[tuple[int, str]]


def read_pyarrow(root: str) -> Rows:
    import pyarrow.dataset as pads

    table = pads.dataset(root, format="parquet", partitioning="hive").to_table(["id", "version"])
    return list(zip(table["id"].to_pylist(), table["version"].to_pylist(), strict=True))


def read_duckdb(root: str) -> Rows:
    import duckdb

    with duckdb.connect() as connection:
        return connection.execute(
            f"SELECT id, version FROM read_parquet('{root}/**/*.parquet')"
        ).fetchall()


def read_polars(root: str) -> Rows:
    import polars

    frame = polars.scan_parquet(f"{root}/**/*.parquet", hive_partitioning=False)
    return frame.select("id", "version").collect().rows()


def read_ours(root: str) -> Rows:
    import fsspeckit

    table = fsspeckit.read_dataset(root, columns=["id", "version"], engine="pyarrow")
    return list(zip(table["id"].to_pylist(), table["version"].to_pylist(), strict=True))


READERS: dict[str, Callable[[str], Rows]] = {
    "pyarrow": read_pyarrow,
    "duckdb": read_duckdb,
    "polars": read_polars,
    "read_dataset": read_ours,
}


@dataclass(frozen=True)
class Expected:
    """What every read of a dataset must see."""

    root: str
    ids: list[int]
    below: int
    """Rows with smaller ids change."""


def judge(rows: Rows, expected: Expected) -> str:
    """Whether a read saw one state, and all of it."""
    found = sorted(row for row, _ in rows)
    if len(found) > len(set(found)):
        return "doubled"
    missing = set(expected.ids) - set(found)
    if any(row >= expected.below for row in missing) or set(found) - set(expected.ids):
        return "missing"
    changing = {version for row, version in rows if row < expected.below}
    staying = {version for row, version in rows if row >= expected.below}
    if len(changing) > 1 or staying - {"old"}:
        return "torn"
    return "replaced_left_out" if missing else "right"


def read_once(read: Callable[[str], Rows], expected: Expected) -> str:
    try:
        return judge(read(expected.root), expected)
    except Exception as error:  # each engine has its own error for a file that is gone
        text = str(error).lower()
        if "no match for fieldref" in text or "no files found" in text:
            return "no_file_listed"  # names that are gone when it looks at them are left out
        gone = "no such file" in text or "cannot open file" in text or "not found" in text
        return "file_not_found" if gone else f"error: {error}"


def main() -> None:
    engine, stop, *datasets = sys.argv[1:]
    os.nice(10)  # the readers must not starve the writer
    read = READERS[engine]
    expected = []
    for dataset in datasets:
        root, _, below = dataset.rpartition(":")
        expected.append(Expected(root, sorted(row for row, _ in read(root)), int(below)))
    verdicts: dict[str, Counter[str]] = {each.root: Counter() for each in expected}
    sys.stdout.write("reading\n")
    sys.stdout.flush()
    while not os.path.exists(stop):
        for each in expected:
            verdicts[each.root][read_once(read, each)] += 1
    sys.stdout.write(json.dumps(verdicts) + "\n")


if __name__ == "__main__":
    main()
