"""The PyArrow engine: one machine, no JVM, nothing else to install.

>>> import pyarrow as pa
>>> io = PyarrowDatasetIO()
>>> _ = io.write_dataset(pa.table({"id": [1, 2], "v": ["a", "b"]}), "memory://doc-pyarrow")
>>> result = io.merge(
...     pa.table({"id": [2, 3], "v": ["B", "C"]}), "memory://doc-pyarrow", "upsert", ["id"]
... )
>>> result.updated, result.inserted
(1, 1)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspeckit.datasets.base import DatasetIO
from fsspeckit.datasets.pyarrow.engine import SCAN_WORKERS as SCAN_WORKERS
from fsspeckit.datasets.pyarrow.engine import ArrowEngine as ArrowEngine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fsspeckit.storage import PublishMode, Retention

__all__ = ["PyarrowDatasetIO"]


class PyarrowDatasetIO(DatasetIO):
    """Reads, writes and merges datasets with pyarrow alone.

    Args:
        filesystem: An fsspec or pyarrow filesystem for paths; None to find it from each path.
        storage_options: What fsspec needs to open the filesystem of a URL.
        control_dir: Where staging, records and lock live, if not beside the dataset.
        publish: ``"auto"`` or ``"plain"``, see :class:`~fsspeckit.datasets.base.DatasetIO`.
        lock_timeout: How many seconds to wait for another writer.
        retention: How long replaced files are kept in the trash; None for the default.
    """

    def __init__(
        self,
        filesystem: Any = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        control_dir: str | None = None,
        publish: PublishMode = "auto",
        lock_timeout: float = 30.0,
        retention: Retention | None = None,
    ) -> None:
        super().__init__(
            ArrowEngine(filesystem),
            filesystem,
            storage_options,
            control_dir,
            publish,
            lock_timeout,
            retention,
        )
