"""Every system of the benchmark, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.peers.environments import PEERS, PEERS_HUDI, PEERS_SPARK
from benchmarks.peers.protocol import Entry

if TYPE_CHECKING:
    from benchmarks.peers.protocol import Kind

LOCAL = (
    Entry("fsspeckit-pyarrow", "fsspeckit, PyArrow", "ours", "ours:pyarrow", ("pyarrow",)),
    Entry("fsspeckit-duckdb", "fsspeckit, DuckDB", "ours", "ours:duckdb", ("duckdb",)),
    Entry(
        "fsspeckit-no-fsync",
        "fsspeckit, PyArrow, no fsync",
        "ours, no fsync",
        "ours:no_fsync",
        ("pyarrow",),
    ),
    Entry(
        "fsspeckit-key-index",
        "fsspeckit, PyArrow, key index",
        "ours, key index",
        "ours:key_index",
        ("pyarrow",),
    ),
    Entry("delta-rs", "delta-rs", "copy-on-write", "delta_rs:default", ("deltalake",), PEERS),
    Entry(
        "delta-rs-pruned",
        "delta-rs, streamed_exec=False",
        "copy-on-write",
        "delta_rs:pruned",
        ("deltalake",),
        PEERS,
    ),
    Entry("pyiceberg", "PyIceberg", "copy-on-write", "iceberg:table", ("pyiceberg",), PEERS),
    Entry("lance", "Lance", "merge-on-read", "lance_format:dataset", ("pylance",), PEERS),
    Entry(
        "ducklake",
        "DuckLake",
        "merge-on-read",
        "ducklake:lake",
        ("duckdb-extension-ducklake", "duckdb"),
        PEERS,
    ),
    Entry("polars", "Polars, whole rewrite", "whole rewrite", "rewrites:polars", ("polars",)),
    Entry(
        "duckdb-copy", "DuckDB COPY, whole rewrite", "whole rewrite", "rewrites:duckdb", ("duckdb",)
    ),
    Entry("cp", "`cp` of the table", "floor", "rewrites:cp", ()),
)

_SPARK_PACKAGES = ("pyspark", "pyarrow")


def _on_spark(name: str, title: str, kind: Kind, environment: str = PEERS_SPARK) -> Entry:
    target = f"on_spark:{name.removeprefix('spark-')}"
    return Entry(name, title, kind, target, _SPARK_PACKAGES, environment, jvm=True)


SPARK = (
    _on_spark("spark-fsspeckit", "fsspeckit", "ours"),
    _on_spark("spark-delta", "Delta Lake", "copy-on-write"),
    _on_spark("spark-iceberg", "Iceberg", "copy-on-write"),
    _on_spark("spark-hudi", "Hudi, on Spark 3.5", "copy-on-write", PEERS_HUDI),
    _on_spark("spark-overwrite", "Spark, join and overwrite", "whole rewrite"),
)
ENTRIES = {entry.name: entry for entry in (*LOCAL, *SPARK)}
