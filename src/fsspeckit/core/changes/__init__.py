"""Changes: a feed of upserts and deletes in any order, as rows that a merge can take."""

from __future__ import annotations

from fsspeckit.core.changes.feed import (
    DELETED_AT,
    END,
    EVALUATED,
    MARK,
    RESERVED,
    SEQUENCE,
    START,
    DropOvertaken,
    MarkChanges,
    SelectDeletes,
    feed_schema,
    shared_columns,
)
from fsspeckit.core.changes.tombstones import (
    decode_tombstones,
    known_tombstones,
    plan_tombstones,
)
from fsspeckit.core.changes.versions import VersionRows

__all__ = [
    "DELETED_AT",
    "END",
    "EVALUATED",
    "MARK",
    "RESERVED",
    "SEQUENCE",
    "START",
    "DropOvertaken",
    "MarkChanges",
    "SelectDeletes",
    "VersionRows",
    "decode_tombstones",
    "feed_schema",
    "known_tombstones",
    "plan_tombstones",
    "shared_columns",
]
