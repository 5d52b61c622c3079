"""Options of the data source: texts by name, checked before any task writes a row.

Names are compared without case and underscores, because Spark passes them in lower case:
``keyColumns``, ``key_columns`` and ``KEYCOLUMNS`` are one option.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

from fsspeckit.core.expectations import Expectation, parse_expectations
from fsspeckit.datasets.batches import BatchTarget
from fsspeckit.datasets.registry import open_engine
from fsspeckit.datasets.spark.session import absolute_path, check_shared
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage import Transaction, open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fsspeckit.datasets.base import DatasetIO
    from fsspeckit.datasets.batches import BatchCall
    from fsspeckit.storage import Storage

__all__ = ["OPTIONS", "PREFIXES", "DataSourceOptions", "Option", "Use"]

Use = Literal[
    "every write",
    "append, overwrite",
    "overwrite",
    "append, merge, change feed",
    "merge",
    "merge, change feed",
    "change feed",
]
"""Which writes an option is for."""

_WRITES: dict[Use, tuple[str, ...]] = {
    "every write": ("append", "overwrite", "overwrite_partitions", "merge", "apply_changes"),
    "append, overwrite": ("append", "overwrite", "overwrite_partitions"),
    "overwrite": ("overwrite", "overwrite_partitions"),
    "append, merge, change feed": ("append", "merge", "apply_changes"),
    "merge": ("merge",),
    "merge, change feed": ("merge", "apply_changes"),
    "change feed": ("apply_changes",),
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(weeks?|days?|hours?|minutes?|seconds?|[wdhms])", re.I)
_UNITS = {name[0]: name for name in ("weeks", "days", "hours", "minutes", "seconds")}
_TRUTHS = {"true": True, "false": False}
_LEVELS = ("debug", "info", "warning", "error")


def _wrong(name: str, text: str, expected: str, hint: str = "") -> InvalidArgumentError:
    return InvalidArgumentError(
        f"option {name!r} must be {expected}, got {text!r}.{hint and f'{chr(10)}Hint: {hint}'}",
        argument=name,
    )


def _as_text(name: str, text: str) -> str:
    if not text.strip():
        raise _wrong(name, text, "a text that is not empty")
    return text


def _as_path(name: str, text: str) -> str:
    """Return a path that means the same in tasks, whose working directory is another."""
    return absolute_path(_as_text(name, text))


def _as_whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _wrong(name, text, "a whole number") from None


def _as_number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _wrong(name, text, "a number") from None


def _as_truth(name: str, text: str) -> bool:
    if (truth := _TRUTHS.get(text.strip().lower())) is None:
        raise _wrong(name, text, "true or false")
    return truth


def _as_names(name: str, text: str) -> tuple[str, ...]:
    """Return names that are separated by commas, or are a JSON array."""
    if text.strip().startswith("["):
        given = _as_json(name, text)
        if not all(isinstance(each, str) for each in given):
            raise _wrong(name, text, "a JSON array of names", 'write ["id", "day"].')
        return tuple(given)
    names = tuple(each.strip() for each in text.split(","))
    if not all(names):
        hint = 'write "id,day"; names with commas or spaces are a JSON array: ["a, b"].'
        raise _wrong(name, text, "names of columns, separated by commas", hint)
    return names


def _as_duration(name: str, text: str) -> timedelta:
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise _wrong(name, text, "a duration", 'write "7 days", "12 hours" or "30m".')
    try:
        return timedelta(**{_UNITS[found[2][0].lower()]: float(found[1])})
    except OverflowError:
        raise _wrong(name, text, f"a duration of at most {timedelta.max.days:,} days") from None


def _as_json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise _wrong(name, text, f"JSON ({error})") from None


def _as_object(name: str, text: str) -> dict[str, Any]:
    given = _as_json(name, text)
    if not isinstance(given, dict):
        raise _wrong(name, text, "a JSON object", 'write {"name": "value"}.')
    return given


def _as_secret_object(name: str, text: str) -> dict[str, Any]:
    """Return a JSON object; a message about it does not repeat the text, which has credentials."""
    try:
        return _as_object(name, text)
    except InvalidArgumentError:
        raise _wrong(
            name, "...", "a JSON object", 'write {"key": "...", "secret": "..."}.'
        ) from None


def _as_overwrite(name: str, text: str) -> str:
    """Return Spark's own word for what an overwrite replaces."""
    if (mode := text.strip().lower()) not in ("static", "dynamic"):
        raise _wrong(name, text, "static or dynamic")
    return mode


def _as_level(name: str, text: str) -> str:
    if (level := text.strip().lower()) not in _LEVELS:
        raise _wrong(name, text, f"one of {', '.join(_LEVELS)}")
    return level


@dataclass(frozen=True)
class Option:
    """An option, as the guide lists it."""

    parse: Callable[[str, str], Any]
    meaning: str
    use: Use = "every write"


_OF_SOURCE: dict[str, tuple[Callable[[str, str], Any], str]] = {
    "path": (_as_path, "The dataset; also the argument of `save` and `start`."),
    "engine": (_as_text, "What merges in one process: `pyarrow`, the default, or `duckdb`."),
    "remote": (_as_text, "`sc://host:port`: merge with Spark, on this Connect server."),
    "app": (_as_text, "The name of the feed in transactions, instead of the id of the query."),
    "version": (_as_whole, "The number of this batch write of `app`, which is applied once."),
    "expect": (_as_object, "Expectations as JSON: names and conditions."),
    "on_violation": (_as_text, "`warn`, the default, `drop`, `fail` or `quarantine`."),
    "quarantine": (_as_path, "The dataset of rows that violate an expectation."),
    "storage_options": (_as_secret_object, "What fsspec needs to open the path, as JSON."),
    "control_dir": (_as_path, "The control directory, if not beside the dataset."),
    "publish": (_as_text, "`auto`, the default, or `plain`: files appear one by one."),
    "lock_timeout": (_as_number, "How many seconds to wait for another writer."),
    "log_level": (_as_level, "`info`, the default, prints a line for each commit."),
}
_OF_CALLS: dict[Use, dict[str, tuple[Callable[[str, str], Any], str]]] = {
    "merge": {
        "key_columns": (_as_names, "The key columns. With them rows are merged."),
        "strategy": (_as_text, "`upsert`, the default, or another strategy of `merge`."),
        "delete_when": (_as_text, "A boolean column, not stored; true deletes the key."),
        "only_newer": (_as_text, "A column that must be greater than in the target."),
        "order_by": (_as_names, "Of rows with one key the greatest is kept."),
        "null_keys": (_as_text, "`error`, the default, or `match`."),
        "duplicate_keys": (_as_text, "`error`, the default; `first` and `last` need `order_by`."),
        "trust_partitions": (_as_truth, "Whether keys never change their partition."),
        "allow_empty": (_as_truth, "Whether `full_merge` may delete every row."),
    },
    "change feed": {
        "keys": (_as_names, "The key columns; another name for `key_columns`."),
        "sequence_by": (_as_text, "The column that orders changes. With it rows are changes."),
        "apply_as_deletes": (_as_text, "The condition of changes that delete their key."),
        "column_list": (_as_names, "The columns that are stored."),
        "except_column_list": (_as_names, "The columns that are not stored."),
        "stored_as_scd_type": (_as_text, "`1`, the default, or `2` to keep every version."),
        "tombstone_retention": (_as_duration, "How long deleted keys are kept: `7 days`."),
    },
    "merge, change feed": {
        "partition_change": (_as_text, "`refuse`, the default, or `move` the row."),
        "key_index": (_as_truth, "Whether to keep an index of the keys."),
        "target_file_bytes": (_as_whole, "Rewritten files below this size get new rows."),
        "auto_compact": (_as_truth, "Whether many small files of a partition become one."),
    },
    "overwrite": {
        "partition_overwrite_mode": (
            _as_overwrite,
            "`static`, the default, or `dynamic` to replace only the partitions of the rows.",
        ),
    },
    "append, merge, change feed": {
        "schema_changes": (_as_text, "`refuse`, the default, `add` columns, or `widen` types too."),
        "max_rewrite_fraction": (_as_number, "The share of the bytes that may be rewritten."),
        "max_rewrite_bytes": (_as_whole, "How many bytes may be rewritten."),
    },
    "append, overwrite": {
        "basename_template": (_as_text, "What the names of new files are made of."),
    },
    "every write": {
        "partition_by": (_as_names, "The partition columns of a new dataset."),
        "compression": (_as_text, "The codec of new files: `snappy`, `zstd`, `none`."),
        "max_rows_per_file": (_as_whole, "How many rows a new file may have."),
        "row_group_size": (_as_whole, "How many rows a row group of a new file may have."),
        "bloom_columns": (_as_names, "The columns that get bloom filters in new files."),
    },
}
_COLUMNS = (
    *("key_columns", "delete_when", "only_newer", "order_by", "keys", "sequence_by"),
    *("column_list", "except_column_list", "partition_by"),
)
"""Options that name columns which the rows must have."""

OPTIONS: dict[str, Option] = {
    **{name: Option(*entry) for name, entry in _OF_SOURCE.items()},
    **{
        name: Option(*entry, use)
        for use, entries in _OF_CALLS.items()
        for name, entry in entries.items()
    },
}
"""Every option by its name."""

PREFIXES = {
    "storage.": "One storage option, as `storage.key`: a text, `true`, `false` or a JSON object.",
    "expect.": "One expectation, as `expect.valid amount`. Its name is in lower case.",
}
"""Names that begin like this, with what follows."""

_OF_SPARK = frozenset({"checkpointlocation", "queryname"})
"""What Spark passes on, although it is not for the sink."""

_NAMES = {name.replace("_", ""): name for name in OPTIONS} | {"partitioncolumns": "partition_by"}
_UNSUPPORTED = {
    "trackhistorycolumnlist": "a change of any column begins a new version",
    "trackhistoryexceptcolumnlist": "a change of any column begins a new version",
}


@dataclass(frozen=True)
class DataSourceOptions:
    """What a user decides about a write, checked as far as it can be without the rows."""

    path: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Those of the merge or write."""

    engine: str = "pyarrow"
    remote: str | None = field(default=None, repr=False)
    app: str | None = None
    version: int | None = None
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    control_dir: str | None = None
    publish: Any = "auto"
    lock_timeout: float = 30.0
    expectations: tuple[Expectation, ...] = ()
    quarantine: str | None = None
    log_level: str = "info"

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> DataSourceOptions:
        """Return the options that Spark passes.

        Raises:
            InvalidArgumentError: If a name is unknown or a value is wrong.
        """
        texts, storage, expect = _by_name(given)
        values = {name: OPTIONS[name].parse(name, text) for name, text in texts.items()}
        if "path" not in values:
            raise InvalidArgumentError(
                "option 'path' is missing: where is the dataset?\n"
                'Hint: .option("path", "s3://lake/orders"), or .save("s3://lake/orders"). Tables '
                "of a catalog do not pass their options; create a temporary view instead.",
                argument="path",
            )
        of_source = {name: value for name, value in values.items() if name in _OF_SOURCE}
        on_violation = of_source.pop("on_violation", "warn")
        expected = {**of_source.pop("expect", {}), **expect}
        if not expected and "on_violation" in values:
            raise InvalidArgumentError(
                "option 'on_violation' has no use without an expectation.\n"
                'Hint: .option("expect.valid amount", "amount >= 0").',
                argument="on_violation",
            )
        return cls(
            arguments={name: value for name, value in values.items() if name not in _OF_SOURCE},
            storage_options={**of_source.pop("storage_options", {}), **storage},
            expectations=parse_expectations(expected, on_violation),
            **of_source,
        )

    def __post_init__(self) -> None:
        self._check_engine()
        if (self.version is not None) and self.app is None:
            raise InvalidArgumentError(
                f"option 'version' is {self.version}, and nobody counts: 'app' is missing.\n"
                'Hint: .option("app", "orders-feed"), a name that no other feed into the dataset '
                "has.",
                argument="app",
            )
        if self.app is not None:
            Transaction(self.app, self.version or 0)
        check_shared(self.storage().root)
        # The mode is not known yet; this option is of one mode only.
        self.target(overwrite="partition_overwrite_mode" in self.arguments)

    def _check_engine(self) -> None:
        if self.remote is not None:
            if self.engine not in ("pyarrow", "spark"):
                raise InvalidArgumentError(
                    f"option 'remote' merges with Spark, and option 'engine' is {self.engine!r}.\n"
                    "Hint: leave out one of them.",
                    argument="engine",
                )
            if not self.remote.startswith("sc://"):
                raise _wrong(
                    "remote", self.remote.partition("://")[0], "the URL of a Connect server, sc://"
                )
        elif self.engine == "spark":
            raise InvalidArgumentError(
                "option 'engine' is 'spark', and a data source has no session to merge with.\n"
                'Hint: .option("remote", "sc://localhost:15002"), a Connect server; or leave it '
                "out, to merge in one process.",
                argument="engine",
            )
        elif self.engine not in ("pyarrow", "duckdb"):
            raise InvalidArgumentError.choice("engine", self.engine, ("pyarrow", "duckdb"))

    def storage(self) -> Storage:
        """Return the dataset."""
        return open_storage(
            self.path,
            None,
            self.storage_options,
            control_dir=self.control_dir,
            publish=self.publish,
            lock_timeout=self.lock_timeout,
        )

    def open_engine(self) -> DatasetIO:
        """Open the engine that merges in this process."""
        return open_engine(
            self.engine,
            None,
            self.storage_options,
            control_dir=self.control_dir,
            publish=self.publish,
            lock_timeout=self.lock_timeout,
        )

    def target(self, *, overwrite: bool = False, streaming: bool = False) -> BatchTarget:
        """Return what to do with the rows.

        Args:
            overwrite: Whether the save mode is overwrite, or the output mode is complete.
            streaming: Whether it is the output mode of a stream.

        Raises:
            InvalidArgumentError: If options do not fit each other or the mode.
        """
        arguments = dict(self.arguments)
        call: BatchCall
        if "sequence_by" in arguments:
            call = "apply_changes"
            _rename(arguments, "key_columns", "keys")
        elif "key_columns" in arguments or "keys" in arguments:
            call = "merge"
            _rename(arguments, "keys", "key_columns")
            arguments.setdefault("strategy", "upsert")
        else:
            call = "overwrite" if overwrite else "append"
        _check_use(arguments, call)
        if arguments.pop("partition_overwrite_mode", "static") == "dynamic":
            call = "overwrite_partitions"
        if call == "apply_changes" and "keys" not in arguments:
            raise InvalidArgumentError(
                "option 'sequence_by' makes the rows a change feed, and option 'keys' is missing.\n"
                'Hint: .option("keys", "id").',
                argument="keys",
            )
        if call == "merge":
            _check_merge(arguments, overwrite=overwrite, streaming=streaming)
        elif call == "apply_changes" and overwrite:
            raise _no_overwrite("a change feed", streaming)
        return BatchTarget(self.path, call, arguments, self.expectations, self.quarantine)

    def check_columns(self, names: Sequence[str]) -> None:
        """Refuse options that name columns which the rows do not have.

        Raises:
            InvalidArgumentError: Naming the option and the columns.
        """
        for name, value in self.arguments.items():
            if name not in _COLUMNS:
                continue
            wanted = (value,) if isinstance(value, str) else value
            if missing := [each for each in wanted if each not in names]:
                raise InvalidArgumentError.missing_columns(f"option {name!r}", missing, names)


def _by_name(
    given: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
    """Return texts by the names of options, storage options, and expectations."""
    texts: dict[str, str] = {}
    storage: dict[str, Any] = {}
    expect: dict[str, Any] = {}
    for key, value in given.items():
        text = str(value)
        if key.lower().startswith("storage."):
            storage[key[len("storage.") :]] = _storage_value(key, text)
        elif key.lower().startswith("expect."):
            expect[key[len("expect.") :]] = text
        elif (short := key.lower().replace("_", "")) not in _OF_SPARK:
            name = _name_of(key, short)
            if texts.setdefault(name, text) != text:
                raise InvalidArgumentError(
                    f"option {name!r} is given twice, with other values.\n"
                    "Hint: names are compared without case and underscores.",
                    argument=name,
                )
    return texts, storage, expect


def _name_of(key: str, short: str) -> str:
    if short in _NAMES:
        return _NAMES[short]
    if short in _UNSUPPORTED:
        raise InvalidArgumentError(f"option {key!r} is not supported: {_UNSUPPORTED[short]}.")
    near = get_close_matches(short, _NAMES, n=1)
    hint = f"did you mean {_NAMES[near[0]]!r}?" if near else f"known are {', '.join(OPTIONS)}."
    raise InvalidArgumentError(f"option {key!r} is not known to 'fsspeckit'.\nHint: {hint}")


def _storage_value(name: str, text: str) -> Any:
    if text.lower() in _TRUTHS:
        return _TRUTHS[text.lower()]
    return _as_secret_object(name, text) if text.strip().startswith("{") else text


def _rename(arguments: dict[str, Any], name: str, wanted: str) -> None:
    """Take two names of one option for one."""
    if name in arguments:
        value = arguments.pop(name)
        if arguments.setdefault(wanted, value) != value:
            raise InvalidArgumentError(
                f"options {name!r} and {wanted!r} are the same, and differ: {list(value)!r} and "
                f"{list(arguments[wanted])!r}.\nHint: leave out one of them.",
                argument=wanted,
            )


def _check_use(arguments: Mapping[str, Any], call: str) -> None:
    """Refuse options that are for another kind of write."""
    for name in arguments:
        if call in _WRITES[OPTIONS[name].use]:
            continue
        if call == "append" and OPTIONS[name].use == "overwrite":
            raise InvalidArgumentError(
                f"option {name!r} is for rows that replace others.\n"
                'Hint: .mode("overwrite"), or leave it out.',
                argument=name,
            )
        if call in ("append", "overwrite"):
            needed = "sequence_by" if OPTIONS[name].use == "change feed" else "key_columns"
            raise InvalidArgumentError(
                f"option {name!r} has no use without option {needed!r}: rows are written as they "
                f"are.\nHint: .option({needed!r}, ...), or leave it out.",
                argument=name,
            )
        what = "a merge by key" if call == "merge" else "a change feed"
        raise InvalidArgumentError(
            f"option {name!r} has no use for {what}; it is for: {OPTIONS[name].use}.\n"
            "Hint: leave it out. A change feed has option 'sequence_by', a merge has not.",
            argument=name,
        )


def _check_merge(arguments: Mapping[str, Any], *, overwrite: bool, streaming: bool) -> None:
    is_full = arguments["strategy"] == "full_merge"
    if overwrite and not (streaming and is_full):
        raise _no_overwrite("a merge by key", streaming)
    if streaming and is_full and not overwrite:
        raise InvalidArgumentError(
            "option 'strategy' is 'full_merge', and every batch would delete the rows of those "
            'before it.\nHint: use "upsert", or outputMode("complete"): its batches have all rows.',
            argument="strategy",
        )
    if arguments["strategy"] == "deduplicate" and "order_by" not in arguments:
        raise InvalidArgumentError(
            "option 'strategy' is 'deduplicate', and the rows of Spark have no order.\n"
            'Hint: .option("order_by", "updated_at") keeps the greatest.',
            argument="strategy",
        )
    policy = arguments.get("duplicate_keys", "error")
    if policy != "error" and "order_by" not in arguments:
        raise InvalidArgumentError(
            f"option 'duplicate_keys' is {policy!r}, and the rows of Spark have no order.\n"
            'Hint: .option("order_by", "updated_at") keeps the greatest.',
            argument="duplicate_keys",
        )


def _no_overwrite(what: str, streaming: bool) -> InvalidArgumentError:
    mode = 'outputMode("complete")' if streaming else 'mode("overwrite")'
    other = 'outputMode("append")' if streaming else 'mode("append")'
    return InvalidArgumentError(
        f"{mode} replaces all rows, and the options describe {what}.\n"
        f"Hint: use {other}. To make the dataset equal the rows by key, use the strategy "
        "'full_merge'.",
        argument="mode",
    )
