"""A plugin of dbt-duckdb: the rows of an external model are merged into a plain Parquet dataset.

The materialization ``external`` writes the rows of a model to a file, its ``location``, and calls
the plugin. That file is what one run adds: the plugin merges it into the dataset at ``path``, then
lets the view of the model read the dataset, so that ``ref()`` sees all rows and not only new ones.
A merge that is repeated changes nothing, so a model that failed after it may be retried.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dbt.adapters.duckdb.plugins import BasePlugin
from dbt.adapters.events.logging import AdapterLogger
from dbt.flags import get_flags
from dbt_common.exceptions import DbtRuntimeError

from fsspeckit.core.incremental import parse_hive_partition_path
from fsspeckit.datasets.registry import open_engine
from fsspeckit.errors import FsspeckitError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dbt.adapters.duckdb.utils import TargetConfig, TargetLocation

    from fsspeckit.core.schema_changes import SchemaChanges
    from fsspeckit.datasets.base import DatasetIO

__all__ = ["Plugin"]

logger = AdapterLogger("fsspeckit")

_MODES = ("upsert", "insert", "update", "full_merge", "overwrite")
_SCHEMA_CHANGES: dict[str, SchemaChanges] = {
    "ignore": "refuse",
    "fail": "refuse",
    "append_new_columns": "add",
}
_WRITE_OPTIONS = ("compression", "max_rows_per_file", "row_group_size", "bloom_columns")
"""Those of ``merge_options`` that are about files, which are for every mode."""


@dataclass(frozen=True)
class ModelConfig:
    """What the config of a model says about its dataset."""

    path: str
    """The dataset: a directory or a URL."""

    mode: str
    """``upsert``, ``insert``, ``update``, ``full_merge`` or ``overwrite``."""

    unique_key: list[str]
    partition_by: list[str] | None
    schema_changes: SchemaChanges
    is_full_refresh: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    """What else a merge takes, by name."""

    @classmethod
    def of(cls, config: Any) -> Self:
        """Check the config of a model.

        Raises:
            InvalidArgumentError: If something is missing or wrong.
        """
        path = config.get("path")
        if not (isinstance(path, str) and path):
            raise InvalidArgumentError(
                f"path must be the directory or URL of a dataset, got {path!r}.\n"
                'Hint: config(materialized="external", plugin="fsspeckit", path="lake/orders", '
                'unique_key="id").'
            )
        mode = config.get("mode") or "upsert"
        if mode not in _MODES:
            raise InvalidArgumentError.choice("mode", mode, _MODES)
        key = _as_list(config.get("unique_key"))
        if not key and mode != "overwrite":
            raise InvalidArgumentError(
                f"mode {mode!r} needs a unique_key.\n"
                'Hint: name the key columns, or replace all rows by mode="overwrite".'
            )
        change = config.get("on_schema_change") or "fail"
        if change not in _SCHEMA_CHANGES:
            raise InvalidArgumentError.choice("on_schema_change", change, _SCHEMA_CHANGES)
        options = config.get("merge_options") or {}
        for name in options if mode == "overwrite" else ():
            if name not in _WRITE_OPTIONS:
                raise InvalidArgumentError.choice(
                    "merge_options of the mode 'overwrite'", name, _WRITE_OPTIONS
                )
        return cls(
            path,
            mode,
            key,
            _as_list(config.get("partition_by")) or None,
            _SCHEMA_CHANGES[change],
            _is_full_refresh(config),
            options,
        )

    @property
    def write_options(self) -> dict[str, Any]:
        """What the writing of files takes."""
        return {name: self.options[name] for name in _WRITE_OPTIONS if name in self.options}


class Plugin(BasePlugin):
    """Stores models; ``engine`` and ``storage_options`` are in its config in the profile."""

    def initialize(self, plugin_config: dict[str, Any]) -> None:
        """Read the config of the profile."""
        self._engine = plugin_config.get("engine", "duckdb")
        self._storage_options = plugin_config.get("storage_options")
        self._connection: Any = None

    def configure_connection(self, conn: Any) -> None:
        """Keep the connection: the views of the models are in its database."""
        self._connection = conn

    def store(self, target_config: TargetConfig) -> None:
        """Merge the rows of this run, and let the view of the model read the dataset."""
        landed, relation = target_config.location, target_config.relation
        with _shown_by_dbt():
            config = ModelConfig.of(target_config.config)
            _check_location(landed)
            with open_engine(self._engine, None, self._storage_options) as io:
                try:
                    logger.info(f"{relation}: {self._write(io, landed.path, config)}")
                except BaseException:
                    # Until now the view reads the rows of this run, and no others.
                    with suppress(Exception):
                        self._read_from_dataset(io, relation, config.path, landed.path)
                    raise
                has_files = self._read_from_dataset(io, relation, config.path, landed.path)
        if has_files:  # else the view stays on the file of this run, which has no rows, either
            os.remove(landed.path)

    def _write(self, io: DatasetIO, landed: str, config: ModelConfig) -> Any:
        data: Any = pq.read_schema(landed).empty_table() if _has_no_rows(landed) else landed
        if config.mode == "overwrite":
            return _overwrite(io, data, config)
        if not config.is_full_refresh:
            return _merge(io, data, config.path, config, config.mode)
        # What a first run would store: one row of each key, and none that it deletes.
        directory = os.path.dirname(landed) or os.curdir
        with TemporaryDirectory(prefix=".fsspeckit-", dir=directory) as temporary:
            path = os.path.join(temporary, "fresh")
            with open_engine(self._engine) as local:
                _merge(local, data, path, replace(config, partition_by=None), "upsert")
                if not _has_files(local, path):
                    marks = config.options.get("delete_when")
                    schema = pq.read_schema(landed)
                    kept = [column for column in schema if column.name != marks]
                    return _overwrite(io, pa.schema(kept).empty_table(), config)
            return _overwrite(io, path, config)

    def _read_from_dataset(self, io: DatasetIO, relation: Any, path: str, landed: str) -> bool:
        """Let a view read the dataset, unless there is none; return whether there is one."""
        if not _has_files(io, path):
            return False
        files = _quoted(f"{_without_wildcards(path.rstrip('/'))}/**/*.parquet")
        try:
            with self._connection.cursor() as cursor:
                options = _hive_options(cursor, files, landed)
                query = f"SELECT * FROM read_parquet({files}{options})"
                cursor.execute(f"CREATE OR REPLACE VIEW {relation} AS {query}")
        except duckdb.Error as error:
            raise DbtRuntimeError(
                f"the rows are merged into {path!r}, but DuckDB cannot read it: {error}\n"
                "Hint: give the profile a secret or an entry in filesystems for this URL."
            ) from error
        return True


@contextmanager
def _shown_by_dbt() -> Iterator[None]:
    """Raise the errors of a merge as those that dbt shows without a traceback."""
    try:
        yield
    except (FsspeckitError, ValueError, TypeError, OSError) as error:
        raise DbtRuntimeError(str(error)) from error


def _merge(io: DatasetIO, data: Any, path: str, config: ModelConfig, mode: Any) -> Any:
    return io.merge(
        data,
        path,
        mode,
        config.unique_key,
        partition_by=config.partition_by,
        schema_changes=config.schema_changes,
        **config.options,
    )


def _overwrite(io: DatasetIO, data: Any, config: ModelConfig) -> Any:
    return io.write_dataset(
        data,
        config.path,
        mode="overwrite",
        partition_by=config.partition_by,
        **config.write_options,
    )


def _hive_options(cursor: Any, files: str, landed: str) -> str:
    """Return options that give partition columns the types of the model.

    DuckDB would guess them: the text ``2026-03-02`` is a date, and ``7`` a number. It would also
    take a ``k=v`` above the dataset for one of its columns.
    """
    (file,) = cursor.execute(f"SELECT file FROM glob({files}) LIMIT 1").fetchone()
    columns = parse_hive_partition_path(file)
    described = cursor.execute(f"DESCRIBE SELECT * FROM read_parquet({_quoted(landed)})").fetchall()
    types = {name: kind for name, kind, *_ in described if name in columns}
    if not types:
        return ", hive_partitioning = false"
    pairs = ", ".join(f"{_quoted(name)}: {_quoted(kind)}" for name, kind in types.items())
    return f", hive_partitioning = true, hive_types = {{{pairs}}}"


def _quoted(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def _without_wildcards(path: str) -> str:
    """Return a pattern of DuckDB that only this path matches."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


def _check_location(location: TargetLocation) -> None:
    if location.format != "parquet":
        raise InvalidArgumentError.choice("format", location.format, ["parquet"])
    if not os.path.isfile(location.path):
        raise InvalidArgumentError(
            f"location must be one file on a local disk, got {location.path!r}: it has the rows of "
            "one run until they are merged.\n"
            "Hint: leave out location and options; path is where the dataset is."
        )


def _has_files(io: DatasetIO, path: str) -> bool:
    try:
        io.read_dataset(path, filters=pc.scalar(False))
    except FileNotFoundError:
        return False
    return True


def _is_full_refresh(config: Any) -> bool:
    own = config.get("full_refresh")
    return bool(get_flags().FULL_REFRESH if own is None else own)


def _has_no_rows(landed: str) -> bool:
    """Whether a run had no rows: dbt-duckdb then writes one with NULL in every column."""
    rows = pq.read_metadata(landed).num_rows
    if rows > 1:
        return False
    return all(column.null_count == rows for column in pq.read_table(landed).columns)


def _as_list(names: Any) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())
