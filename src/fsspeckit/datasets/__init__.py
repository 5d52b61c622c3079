"""The engines behind one contract."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsspeckit.datasets.duckdb import DuckDBDatasetIO, DuckDBParquetHandler
    from fsspeckit.datasets.interfaces import DatasetHandler
    from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
    from fsspeckit.datasets.spark import SparkDatasetIO

__all__ = [
    "DatasetHandler",
    "DuckDBDatasetIO",
    "DuckDBParquetHandler",
    "PyarrowDatasetIO",
    "SparkDatasetIO",
]

_HOMES = {
    "DatasetHandler": "interfaces",
    "DuckDBDatasetIO": "duckdb",
    "DuckDBParquetHandler": "duckdb",
    "PyarrowDatasetIO": "pyarrow",
    "SparkDatasetIO": "spark",
}


def __getattr__(name: str) -> Any:
    """Load an engine when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
