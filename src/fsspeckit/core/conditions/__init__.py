"""Conditions: which rows a delete or a change feed selects, as SQL text or a pyarrow expression."""

from __future__ import annotations

from fsspeckit.core.conditions.condition import Condition, EngineCondition
from fsspeckit.core.conditions.predicates import Bounds, Outcomes

__all__ = ["Bounds", "Condition", "EngineCondition", "Outcomes"]
