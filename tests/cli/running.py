"""What a command printed, what a dataset holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, Any

import jsonschema  # type: ignore[import-untyped]
import pyarrow as pa

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., "Ran"]


class Ran:
    """What a command printed, and how it ended."""

    def __init__(self, result: Any) -> None:
        self.code: int = result.exit_code
        self.out: str = result.stdout
        self.err: str = result.stderr

    @property
    def document(self) -> Any:
        """The JSON on stdout, which fits the schema of its kind."""
        document = json.loads(self.out)
        schemas = resources.files("fsspeckit.cli") / "schemas" / f"{document['kind']}.json"
        jsonschema.validate(document, json.loads(schemas.read_text()))
        return document


def rows(*ids: int, v: str = "old") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [v] * len(ids)})


def content(dataset: Path) -> dict[Any, Any]:
    """The rows of a dataset, by id."""
    found = PyarrowDatasetIO().read_dataset(str(dataset)).to_pylist()
    return {row["id"]: row for row in found}


def tree(path: Path) -> dict[str, bytes]:
    """Every file of a directory with its bytes."""
    return {
        str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()
    }
