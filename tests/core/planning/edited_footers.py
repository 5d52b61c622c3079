"""What the chain of evidence says about the files of a directory, and footers made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from fsspec.implementations.memory import MemoryFileSystem
from tests.core.parquet.thrift_writer import encode, footer_of

from fsspeckit.core.keys.canonical import canonical_keys
from fsspeckit.core.keys.source import keys_table
from fsspeckit.core.parquet.format.thrift import Spec, Struct, decode
from fsspeckit.core.planning.pruning import Verdict, prune
from fsspeckit.core.planning.target import read_target
from fsspeckit.storage.listing import list_files
from fsspeckit.storage.roots import open_root

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def verdicts(
    directory: str | Path, key_columns: Sequence[str], keys: Any, filesystem: Any = None
) -> dict[str, Verdict]:
    """Prune the files of a directory; by the part of their path below it."""
    root = open_root(str(directory), filesystem)
    source = keys_table(keys, key_columns)
    target = read_target(root, list_files(root).files, key_columns, source.schema)
    canonical = canonical_keys(source, target.key_columns)
    found = prune(root, target.footers, canonical, target.key_columns, target.partitions)
    names = [root.relative(footer.file.path) for footer in target.footers]
    return dict(zip(names, found, strict=True))


def candidates(directory: str | Path, keys: Any, column: str = "id") -> dict[str, tuple[int, ...]]:
    """The row groups of each file that may hold one of the keys."""
    found = verdicts(directory, [column], keys)
    return {name: verdict.row_groups for name, verdict in found.items()}


def edit_footer(path: str | Path, spec: Spec, change: Callable[[Struct], None]) -> None:
    """Rewrite the footer of a file after a change to its decoded fields."""
    path = Path(path)
    data = path.read_bytes()
    footer = footer_of(data)
    struct, _ = decode(footer, spec)
    change(struct)
    encoded = encode(struct)
    body = data[: -8 - len(footer)]
    path.write_bytes(body + encoded + len(encoded).to_bytes(4, "little") + b"PAR1")


def remove(struct: Struct, *fields: int) -> None:
    """Take fields out of a decoded struct."""
    for number in fields:
        struct.kinds.pop(number, None)
        struct.values.pop(number, None)
        struct.raw.pop(number, None)


def column(values: Sequence[Any], data_type: pa.DataType, name: str = "id") -> pa.Table:
    """A table of one column."""
    return pa.table({name: pa.array(values, data_type)})


class CountingFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """A filesystem that is not local and remembers every request for data."""

    protocol = "counting"
    store: dict[str, Any] = {}  # noqa: RUF012 - the base class shares one too
    pseudo_dirs = [""]  # noqa: RUF012
    requests: list[tuple[str, int, int]] = []  # noqa: RUF012

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        self.requests.append((path, start or 0, end or -1))
        data: bytes = super().cat_file(path, start, end, **kwargs)
        return data

    def _open(self, path: str, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("mode", args[0] if args else "rb") == "rb":
            self.requests.append((path, 0, -1))
        return super()._open(path, *args, **kwargs)
