"""Everything that touches a filesystem: where a dataset is, what is in it, how it changes.

The way of a change: :func:`open_storage`, :func:`take_snapshot`, :func:`staging`, :func:`commit`.
Readers ask :func:`stable_files`. :func:`recover` and :func:`history` are for people.
"""

from __future__ import annotations

from fsspeckit.storage.commit.log import CommitFacts
from fsspeckit.storage.commit.recovery import (
    RecoveredCommit,
    RecoveryReport,
    recover,
    recover_storage,
    take_snapshot,
)
from fsspeckit.storage.commit.staging import Stage, StagedFile, staging
from fsspeckit.storage.commit.transaction import Change, CommitOutcome, Replan, commit
from fsspeckit.storage.fs.capabilities import Capabilities
from fsspeckit.storage.history import History, HistoryEntry, history, history_of
from fsspeckit.storage.snapshot import Difference, PinnedFile, Snapshot, StableFiles, stable_files
from fsspeckit.storage.storage import PublishMode, Retention, Storage, open_storage

__all__ = [
    "Capabilities",
    "Change",
    "CommitFacts",
    "CommitOutcome",
    "Difference",
    "History",
    "HistoryEntry",
    "PinnedFile",
    "PublishMode",
    "RecoveredCommit",
    "RecoveryReport",
    "Replan",
    "Retention",
    "Snapshot",
    "StableFiles",
    "Stage",
    "StagedFile",
    "Storage",
    "commit",
    "history",
    "history_of",
    "open_storage",
    "recover",
    "recover_storage",
    "stable_files",
    "staging",
    "take_snapshot",
]
