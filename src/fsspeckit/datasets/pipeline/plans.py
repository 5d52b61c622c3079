"""What a plan keeps, so that it can be executed: the source as it was read, and the options.

A source is read once, when the plan is made. What was read stays with the plan: in memory, or in
the staging directory of the plan, which goes when the plan is executed or nobody has it any more.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any, Self

from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsspeckit.core.planning.plan import MergePlan
    from fsspeckit.datasets.engine import OpenStage, Source
    from fsspeckit.datasets.pipeline.request import MergeRequest
    from fsspeckit.storage.storage import Storage

__all__ = ["PlannedMerge", "planned_merge"]

_of_others: list[Callable[[], None]] = []


class PlannedMerge:
    """A merge that was planned and can be executed once, by the same engine.

    Args:
        engine: The name of the engine that took the source.
        storage: The dataset.
        request: The options.
        source: The source, as the engine took it.
        stage: The staging directory that it may be in.
        release: Lets go of the staging directory; called at the latest when the plan is gone.
    """

    def __init__(
        self,
        engine: str,
        storage: Storage,
        request: MergeRequest,
        source: Source,
        stage: OpenStage,
        release: Callable[[], None],
    ) -> None:
        self.engine = engine
        self.storage = storage
        self.request = request
        self.source = source
        self.stage = stage
        self._release = weakref.finalize(self, _in_process, os.getpid(), release)

    @property
    def is_released(self) -> bool:
        """Whether the source is gone, because the plan was executed."""
        return not self._release.alive

    def release(self) -> None:
        """Let go of the source."""
        self._release()
        del self.source, self.stage

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # a copy of a plan executes the same merge

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        # A source may be a connection or files of this process: a plan travels without it.
        return _elsewhere, ()


def _in_process(process: int, release: Callable[[], None]) -> None:
    """Let go only where the plan was made: a forked child has no say about its source."""
    if os.getpid() == process:
        release()
    else:
        _of_others.append(release)  # if it were forgotten, it would clean up all the same


def _elsewhere() -> None:
    """What a plan keeps in another process: nothing."""


def planned_merge(plan: MergePlan, engine: str | None = None) -> PlannedMerge:
    """What a plan keeps.

    Args:
        plan: The plan.
        engine: The name of the engine that is to execute it; None for its own.

    Raises:
        InvalidArgumentError: If it cannot be executed: it was executed already, or comes from
            another process or another engine.
    """
    kept: PlannedMerge | None = getattr(plan, "origin", None)
    if kept is None:
        raise InvalidArgumentError(
            f"{type(plan).__name__} cannot be executed: it does not know its source.\n"
            "Hint: pass what plan_merge() returned, in the same process; a plan that was stored or "
            "sent travels without its source."
        )
    if kept.is_released:
        raise InvalidArgumentError(
            "the plan was executed already, and has let go of its source.\nHint: plan again."
        )
    if engine is not None and kept.engine != engine:
        raise InvalidArgumentError(
            f"the plan was made by the engine {kept.engine!r}, and {engine!r} cannot execute it.\n"
            "Hint: call execute() of the engine that made the plan, or fsspeckit.execute(plan)."
        )
    return kept
