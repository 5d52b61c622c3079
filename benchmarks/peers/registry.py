"""Every system of the benchmark, by name."""

from __future__ import annotations

from benchmarks.peers.protocol import Entry

PEERS = ".venv-peers"
LOCAL = (
    Entry("fsspeckit-pyarrow", "fsspeckit, PyArrow", "ours", "ours:pyarrow", ("pyarrow",)),
    Entry("fsspeckit-duckdb", "fsspeckit, DuckDB", "ours", "ours:duckdb", ("duckdb",)),
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

SPARK: tuple[Entry, ...] = ()
ENTRIES = {entry.name: entry for entry in (*LOCAL, *SPARK)}
