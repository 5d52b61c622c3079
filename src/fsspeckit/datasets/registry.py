"""Engines by name: where each one is, and what to install for it. Nothing is loaded before use."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from fsspeckit.errors import EngineNotInstalledError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from fsspeckit.datasets.base import DatasetIO

__all__ = ["ENGINES", "EngineEntry", "engine_of", "load_engine", "open_engine"]


@dataclass(frozen=True)
class EngineEntry:
    """Where an engine is and what it needs."""

    module: str
    class_name: str
    library: str
    """The library that it needs, as it is imported."""

    install: str
    """The command that installs the library."""

    @property
    def is_installed(self) -> bool:
        """Whether both the engine and its library are there."""
        return find_spec(self.library) is not None and find_spec(self.module) is not None


ENGINES: dict[str, EngineEntry] = {
    "spark": EngineEntry(
        "fsspeckit.datasets.spark",
        "SparkDatasetIO",
        "pyspark",
        'pip install "pyspark[connect]>=4.1,<5"',
    ),
    "duckdb": EngineEntry(
        "fsspeckit.datasets.duckdb", "DuckDBDatasetIO", "duckdb", "pip install duckdb"
    ),
    "pyarrow": EngineEntry(
        "fsspeckit.datasets.pyarrow", "PyarrowDatasetIO", "pyarrow", "pip install pyarrow"
    ),
}


def open_engine(
    name: str,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> DatasetIO:
    """Open an engine by its name.

    Args:
        name: ``"spark"``, ``"duckdb"`` or ``"pyarrow"``.
        filesystem: An fsspec or pyarrow filesystem for paths.
        storage_options: What fsspec needs to open the filesystem of a URL.
        options: What else every engine takes, such as ``control_dir`` and ``lock_timeout``.

    Raises:
        InvalidArgumentError: If there is no such engine.
        EngineNotInstalledError: If its library is not installed.
    """
    entry = ENGINES.get(name)
    if entry is None:
        raise InvalidArgumentError.choice("engine", name, ENGINES)
    opened = getattr(load_engine(name), entry.class_name)
    return cast(
        "DatasetIO", opened(filesystem=filesystem, storage_options=storage_options, **options)
    )


def engine_of(data: Any) -> str:
    """Return the engine whose library data comes from; ``"pyarrow"`` for all other data.

    Examples:
        >>> import pyarrow as pa
        >>> engine_of(pa.table({"id": [1]})), engine_of("landing/orders.parquet")
        ('pyarrow', 'pyarrow')
    """
    # DuckDB has had its classes in modules named duckdb and _duckdb.
    libraries = {each.__module__.partition(".")[0].lstrip("_") for each in type(data).__mro__}
    return next((name for name, entry in ENGINES.items() if entry.library in libraries), "pyarrow")


def load_engine(name: str) -> ModuleType:
    """Import the package of an engine.

    Raises:
        EngineNotInstalledError: If its library is not installed.
    """
    entry = ENGINES[name]
    if not entry.is_installed:
        raise EngineNotInstalledError.missing(
            name,
            f'{entry.install}, or pass engine="pyarrow", which needs nothing else.',
        )
    return import_module(entry.module)
