"""Files of a dataset that get other columns, for every call that changes the schema."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fsspeckit.core.rewrite import evolve_file
from fsspeckit.storage import WorkerStage, open_backend, plain_basename

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.core.planning import FileFooter
    from fsspeckit.core.rewrite import Rewritten
    from fsspeckit.core.schema_changes import Evolution
    from fsspeckit.datasets.engine import Engine, OpenStage
    from fsspeckit.display import Progress
    from fsspeckit.storage import Root, StagedFile

__all__ = ["StoredColumn"]


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column that the files of a dataset store."""

    name: str
    """Its name."""

    type: str
    """Its Arrow type."""

    nullable: bool
    """Whether it may be NULL."""


@dataclass(frozen=True)
class EvolveTask:
    """Rewrites one file so that it has other columns; runs in any process."""

    root: Root
    stage: WorkerStage
    evolution: Evolution

    def __call__(self, path: str) -> tuple[StagedFile, Rewritten]:
        """Return the new file, which may be written several times under different names."""
        relative = self.root.relative(path)
        directory, _, basename = relative.rpartition("/")
        file = self.stage.new_file(directory, plain_basename(basename), like=relative)
        done = evolve_file(self.root, path, self.evolution, file.path)
        if done.is_new and self.root.is_local:
            # While others are copied: the commit then finds nothing left to wait for.
            open_backend(self.root).sync_file(file.path)
        return file, done


def evolve_files(
    engine: Engine[Any, Any, Any],
    root: Root,
    stage: OpenStage,
    evolution: Evolution,
    footers: Sequence[FileFooter],
    progress: Progress,
) -> dict[str, tuple[StagedFile, Rewritten]]:
    """Rewrite files that do not have the columns of an evolution.

    Returns:
        By canonical path, each file that had to be rewritten.
    """
    wanted = [footer for footer in footers if evolution.is_needed(footer.schema)]
    if not wanted:
        return {}
    task = EvolveTask(root, WorkerStage(stage().path), evolution)
    items = [(footer.file.path, footer.file.size) for footer in wanted]
    done = engine.map_items("rewrite", task, items, stage, progress)
    found = {path: result for (path, _), result in zip(items, done, strict=True)}
    return {path: (new.staged_as(file), new) for path, (file, new) in found.items() if new.is_new}


def recorded_schema(evolution: Evolution) -> dict[str, Any]:
    """Return what a commit record says about an evolution."""
    columns = [asdict(column) for column in stored_columns_of(evolution)]
    return {"columns": columns, "changes": [str(change) for change in evolution.changes]}


def stored_columns_of(evolution: Evolution) -> list[StoredColumn]:
    """Return the columns that files store afterwards."""
    return [StoredColumn(f.name, str(f.type), f.nullable) for f in evolution.schema]
