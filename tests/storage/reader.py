"""A reader in a process of its own that reads datasets again and again, until a file appears.

Started as ``python -m tests.storage.reader <engine> <stop file> <root>…``. Every commit gives all
rows of a dataset the same new version, so a read is right if it has exactly the expected ids, and
one version. A read may fail, but only because a file is gone.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
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


READERS: dict[str, Callable[[str], Rows]] = {
    "pyarrow": read_pyarrow,
    "duckdb": read_duckdb,
    "polars": read_polars,
}


def judge(rows: Rows, ids: list[int]) -> str:
    """Whether a read saw one state, and all of it."""
    found = sorted(row for row, _ in rows)
    if found != ids:
        return "doubled" if len(found) > len(set(found)) else "missing"
    return "right" if len({version for _, version in rows}) == 1 else "torn"


def read_once(read: Callable[[str], Rows], root: str, ids: list[int]) -> str:
    try:
        return judge(read(root), ids)
    except Exception as error:  # each engine has its own error for a file that is gone
        text = str(error).lower()
        if "no match for fieldref" in text:
            return "no_file_listed"  # pyarrow leaves out names that are gone when it looks at them
        gone = "no such file" in text or "cannot open file" in text or "not found" in text
        return "file_not_found" if gone else f"error: {error}"


def main() -> None:
    engine, stop, *roots = sys.argv[1:]
    os.nice(10)  # three readers must not starve the writer
    read = READERS[engine]
    expected = [sorted(row for row, _ in read(root)) for root in roots]
    verdicts: Counter[str] = Counter()
    sys.stdout.write("reading\n")
    sys.stdout.flush()
    while not os.path.exists(stop):
        for root, ids in zip(roots, expected, strict=True):
            verdicts[read_once(read, root, ids)] += 1
    sys.stdout.write(json.dumps(verdicts) + "\n")


if __name__ == "__main__":
    main()
