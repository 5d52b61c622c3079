"""The command ``write``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from fsspeckit.cli import options as o  # noqa: TC001 - typer reads the annotations
from fsspeckit.cli.choices import Compression, Mode
from fsspeckit.cli.runner import Session, open_session
from fsspeckit.cli.working import Work, work_on

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fsspeckit.datasets.pipeline.results import WriteDatasetResult

__all__ = ["write"]


def write(  # noqa: PLR0913, PLR0917 - the options of the command
    sources: o.Sources,
    target: o.Target,
    mode: o.WriteModeOption = Mode.APPEND,
    engine: o.Engine = None,
    partition_by: o.PartitionBy = None,
    source_format: o.FormatOption = None,
    delimiter: o.Delimiter = None,
    infer_types: o.InferTypes = False,
    compression: o.CompressionOption = Compression.SNAPPY,
    max_rows_per_file: o.MaxRowsPerFile = 5_000_000,
    row_group_size: o.RowGroupSize = 500_000,
    bloom: o.Bloom = None,
    lock_timeout: o.LockTimeout = 30.0,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Write rows as new files, beside those that are there or instead of them.

    The dataset need not exist yet. All files change at once, or none does.
    """
    arguments = locals()
    _write(open_session(as_json, quiet, storage_option, config), arguments)


def _write(session: Session, arguments: Mapping[str, Any]) -> None:
    def call(work: Work) -> WriteDatasetResult:
        return work.io.write_dataset(
            work.data,
            arguments["target"],
            mode=arguments["mode"].value,
            partition_by=arguments["partition_by"] or None,
            compression=arguments["compression"].value,
            max_rows_per_file=arguments["max_rows_per_file"],
            row_group_size=arguments["row_group_size"],
            bloom_columns=arguments["bloom"] or None,
            progress=work.progress,
        )

    work_on(session, arguments, call, partial(session.show_done, session.output.written))
