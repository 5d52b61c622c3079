"""What people do without a table format: read everything, join, and write everything again."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pyarrow.dataset as ds

from benchmarks.peers.protocol import link_tree
from benchmarks.peers.tables import KEY

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from benchmarks.peers.protocol import Files
    from benchmarks.peers.workloads import Strategy


class _Rewrite:
    """A table of plain Parquet, replaced by one new file without fsync."""

    def make(self, files: Files, place: Path) -> None:
        link_tree(files.directory, place / "table")

    def merge(self, place: Path, source: pa.Table, strategy: Strategy) -> None:
        (place / "new").mkdir()
        self.rewrite(place / "table", place / "new" / "all.parquet", source, strategy)
        (place / "table").rename(place / "old")
        (place / "new").rename(place / "table")
        shutil.rmtree(place / "old")

    def rewrite(self, table: Path, out: Path, source: pa.Table, strategy: Strategy) -> None:
        raise NotImplementedError

    def read(self, place: Path) -> pa.Table:
        return ds.dataset(place / "table", partitioning="hive").to_table()


class _Polars(_Rewrite):
    def rewrite(self, table: Path, out: Path, source: pa.Table, strategy: Strategy) -> None:
        import polars as pl

        old = pl.scan_parquet(f"{table}/**/*.parquet", hive_partitioning=True)
        new = pl.LazyFrame(pl.from_arrow(source))
        old = old.select(source.column_names)
        if strategy == "upsert":
            old = old.join(new, on=KEY, how="anti")
        else:
            new = new.join(old, on=KEY, how="anti")
        pl.concat([old, new]).sink_parquet(out, compression="snappy")


class _DuckDB(_Rewrite):
    def rewrite(self, table: Path, out: Path, source: pa.Table, strategy: Strategy) -> None:
        import duckdb

        old = f"read_parquet('{table}/**/*.parquet', hive_partitioning = true)"
        kept, added = f"FROM {old} ANTI JOIN source USING ({KEY})", "FROM source"
        if strategy == "insert":
            kept, added = f"FROM {old}", f"FROM source ANTI JOIN {old} USING ({KEY})"
        with duckdb.connect() as connection:
            connection.register("source", source)
            connection.execute("SET preserve_insertion_order = false")
            connection.execute(
                f"COPY (SELECT * {kept} UNION ALL BY NAME SELECT * {added}) "
                f"TO '{out}' (FORMAT parquet, COMPRESSION snappy)"
            )


class _Copy(_Rewrite):
    """No merge at all, only the bytes of the table once more."""

    def merge(self, place: Path, source: pa.Table, strategy: Strategy) -> None:
        subprocess.run(["cp", "-r", str(place / "table"), str(place / "copy")], check=True)


def polars() -> _Polars:
    """An anti join and a concatenation, streamed into one file."""
    return _Polars()


def duckdb() -> _DuckDB:
    """``COPY`` of an anti join and the source into one file."""
    return _DuckDB()


def cp() -> _Copy:
    """The floor of any whole rewrite."""
    return _Copy()
