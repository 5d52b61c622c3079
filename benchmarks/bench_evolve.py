"""What a change of columns costs, against a plain copy of the files, pyarrow and DuckDB."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench_splice import example
from benchmarks.harness import Report, measure, median
from fsspeckit.core.rewrite import evolve_file
from fsspeckit.core.schema_changes import SchemaRequest
from fsspeckit.core.threads import ThreadPool
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.storage import open_root

if TYPE_CHECKING:
    from collections.abc import Callable

_FILES = 16
_FILE_ROWS = 250_000
_ADDED = {"note": pa.string()}
_WIDER = {"i0": pa.float64()}
_AT_MOST = 2.0
_ONLY_FILES = "files with a new column, without fsync and commit"


def main() -> None:
    """Run every case and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rows = max(1, int(_FILE_ROWS * arguments.scale))
    report = Report(
        "evolve",
        "Schema changes",
        f"A dataset of {_FILES} files with {rows:,} rows and 16 columns each gets other columns "
        "from a warm cache. `evolve` is the whole call: plan, files, fsync of each, one commit. "
        "To write the new files is a part of it that can be compared with cp, which does not wait "
        "for the disk. pyarrow and DuckDB read and write all files, without fsync and commit.",
    )
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch), rows)
        size = sum(file.stat().st_size for file in bench.source.iterdir())
        report.note(f"The files have {size / 1e6:.0f} MB.")
        seconds = measure(bench.cases, arguments.rounds, bench.prepare)
        report.table("All files", seconds)
        found = {name: median(values) for name, values in seconds.items()}
        report.claim("files with a new column / cp", found[_ONLY_FILES] / found["cp"], _AT_MOST)
        for name in ("evolve: add a column", "evolve: rename and drop columns"):
            held = found[name] / found["cp, and fsync"]
            report.claim(f"{name} / cp, and fsync", held, _AT_MOST)
        report.claim(
            "evolve: widen a column / pyarrow",
            found["evolve: widen a column"] / found["pyarrow: add a column"],
            1 / 2,
        )
    report.write()


class Bench:
    """The dataset, and every way to change it."""

    def __init__(self, scratch: Path, rows: int) -> None:
        self.source = scratch / "source"
        self.path = scratch / "data"
        self.new = scratch / "new"
        self.source.mkdir()
        table = example(rows)
        at = table.schema.get_field_index("i0")
        table = table.set_column(at, "i0", table.column("i0").cast(pa.int32()))
        for number in range(_FILES):
            name = self.source / f"{number:02}.parquet"
            pq.write_table(table, name, row_group_size=rows // 2 + 1)
        self.io = PyarrowDatasetIO()

    @property
    def cases(self) -> dict[str, Callable[[], object]]:
        """What is measured."""
        return {
            "evolve: add a column": lambda: self.io.evolve(str(self.path), add=_ADDED),
            "evolve: widen a column": lambda: self.io.evolve(str(self.path), widen=_WIDER),
            "evolve: rename and drop columns": lambda: self.io.evolve(
                str(self.path), rename={"s0": "text"}, drop="b"
            ),
            _ONLY_FILES: self.only_files,
            "cp": self.copy,
            "cp, and fsync": self.copy_safely,
            "pyarrow: add a column": self.pyarrow,
            "DuckDB COPY: add a column": self.duckdb,
        }

    def prepare(self) -> None:
        """Put the dataset back; what it left behind is not measured."""
        for directory in (self.path, self.new, self.path.parent / ".data.fsspeckit"):
            shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(self.source, self.path)
        self.new.mkdir()
        os.sync()

    def only_files(self) -> None:
        """Write the new files, on as many threads as an engine does."""
        root, files = open_root(str(self.path)), sorted(self.path.iterdir())
        evolution = SchemaRequest.of(add=_ADDED).plan([pq.read_schema(files[0])])

        def write(old: Path) -> None:
            evolve_file(root, str(old), evolution, str(self.new / old.name))

        with ThreadPool(os.cpu_count() or 1, "bench") as pool:
            for _ in pool.map(write, files):
                pass

    def copy(self) -> None:
        """Copy the files."""
        files = [str(file) for file in sorted(self.path.iterdir())]
        subprocess.run(["cp", *files, str(self.new)], check=True)

    def copy_safely(self) -> None:
        """Copy the files, and wait for the disk as a commit does."""
        self.copy()
        for file in self.new.iterdir():
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

    def pyarrow(self) -> None:
        """Decode and encode every file, row group by row group."""
        for old in sorted(self.path.iterdir()):
            with pq.ParquetFile(old) as file:
                schema = file.schema_arrow.append(pa.field("note", pa.string()))
                with pq.ParquetWriter(self.new / old.name, schema) as writer:
                    for number in range(file.num_row_groups):
                        table = file.read_row_group(number)
                        nulls = pa.nulls(table.num_rows, pa.string())
                        writer.write_table(table.append_column("note", nulls))

    def duckdb(self) -> None:
        """Let DuckDB read and write every file, on all threads."""
        with duckdb.connect() as connection:
            for old in sorted(self.path.iterdir()):
                connection.execute(
                    f"COPY (SELECT *, NULL::VARCHAR AS note FROM '{old}') "
                    f"TO '{self.new / old.name}' (FORMAT parquet)"
                )


if __name__ == "__main__":
    main()
