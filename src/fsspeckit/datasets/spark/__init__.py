"""The Spark engine: from local mode on a laptop to a cluster.

>>> import pyarrow as pa
>>> io = SparkDatasetIO()  # doctest: +SKIP
>>> result = io.merge(frame, "s3://bucket/orders", "upsert", ["id"])  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspeckit.datasets.base import DatasetIO
from fsspeckit.datasets.spark.conditions import with_own_conditions
from fsspeckit.datasets.spark.engine import SparkEngine
from fsspeckit.datasets.spark.limits import DEFAULT_LIMITS, LOCAL_LIMITS, SparkLimits
from fsspeckit.datasets.spark.reading import read_frame
from fsspeckit.datasets.spark.session import Jobs, check_shared, open_session, s3_settings
from fsspeckit.datasets.spark.sinks import ApplyChangesSink, MergeSink
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage import scheme_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from fsspeckit.datasets.pipeline import MergeOptions
    from fsspeckit.storage import PublishMode, Retention, Storage

__all__ = ["ApplyChangesSink", "MergeSink", "SparkDatasetIO", "SparkLimits"]


class SparkDatasetIO(DatasetIO):
    """Reads, writes and merges datasets with PySpark, on classic and on Connect sessions.

    A merge runs in one of three tiers: ``driver``, ``broadcast`` or ``shuffle``. The metrics of its
    result name it as ``tier``, and the size that decided as ``tier_reason``; with an empty
    source they have neither.

    Args:
        spark: A session; None for the active one, or a new one in local mode.
        filesystem: An fsspec or pyarrow filesystem for paths; None to find it from each path.
        storage_options: What fsspec needs to open the filesystem of a URL; None for the settings
            ``fs.s3a.*`` of the session where the URL is one of S3.
        control_dir: Where staging, records and lock live, if not beside the dataset.
        publish: ``"auto"`` or ``"plain"``, see :class:`~fsspeckit.datasets.base.DatasetIO`.
        lock_timeout: How many seconds to wait for another writer.
        retention: How long replaced files are kept in the trash; None for the default.
        limits: How large the work of the driver and of each task may be; with it tiers are chosen.
            None for what suits the session: in local mode the driver does most merges.

    Raises:
        EngineNotInstalledError: If pyspark or Java is missing or too old.
        InvalidArgumentError: If ``limits`` are not ``SparkLimits``.
    """

    def __init__(
        self,
        spark: SparkSession | None = None,
        *,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        control_dir: str | None = None,
        publish: PublishMode = "auto",
        lock_timeout: float = 30.0,
        retention: Retention | None = None,
        limits: SparkLimits | None = None,
    ) -> None:
        if not isinstance(limits, SparkLimits | None):
            raise InvalidArgumentError(
                f"limits must be SparkLimits, got {limits!r}.\n"
                "Hint: pass SparkLimits(driver_max_files=8), for example.",
                argument="limits",
            )
        self.jobs = Jobs(open_session(spark))
        """The session, and the jobs that run on it."""
        if limits is None:
            limits = LOCAL_LIMITS if self.jobs.are_local else DEFAULT_LIMITS
        engine = SparkEngine(self.jobs, filesystem, limits)
        super().__init__(
            engine, filesystem, storage_options, control_dir, publish, lock_timeout, retention
        )

    def read_dataset(
        self,
        path: str,
        *,
        columns: str | Sequence[str] | None = None,
        filters: Any = None,
        commit: int | None = None,
    ) -> DataFrame:
        """Read a consistent state of a dataset as a data frame.

        Its files are pinned now and read when the frame is used. If a commit has replaced one of
        them by then, the job fails; it never mixes two states.

        Args:
            path: The dataset's directory, path or URL; or one file of it, or a glob.
            columns: The columns to read, or one of them as a string; None for all.
            filters: SQL text, or what pyarrow takes: an expression, or lists of tuples.
            commit: The number of a commit: read the state after it, as long as its files are in
                the dataset or in the trash. 0 is the state before the first one.

        Raises:
            FileNotFoundError: If there is no such dataset.
            NotRestorableError: If files of the state after ``commit`` are gone.
        """
        storage, selection = self._open_files(path)
        return read_frame(self.jobs, storage, columns, filters, selection, commit)

    def _with_own_conditions(self, data: Any, options: MergeOptions) -> tuple[Any, MergeOptions]:
        """Take a ``Column`` as a condition, which Spark evaluates."""
        return with_own_conditions(self.jobs, data, options)

    def _default_options(self, path: Any) -> Mapping[str, Any] | None:
        """Return the session's settings for S3, so that nobody has to write them twice."""
        is_url = isinstance(path, str) and scheme_of(path) == "s3"
        return s3_settings(self.jobs.spark, path) if is_url else None

    def _storage(
        self, path: str, filesystem: Any, *, only_reads: bool = False, lists_files: bool = False
    ) -> Storage:
        storage = super()._storage(path, filesystem, only_reads=only_reads, lists_files=lists_files)
        check_shared(storage.root)
        return storage
