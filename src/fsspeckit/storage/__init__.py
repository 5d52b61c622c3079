"""Everything that touches a filesystem: where a dataset is, what is in it, how it changes.

A change takes four calls: :func:`open_storage`, :func:`take_snapshot`, :func:`staging` and
:func:`commit`. Readers call :func:`stable_files`; people call :func:`recover` and :func:`history`.
"""

from __future__ import annotations

from fsspeckit.storage.activity import (
    Activity,
    IncomingRows,
    WriterActivity,
    current_activity,
)
from fsspeckit.storage.clean import CleanedItem, CleanReport, clean, clean_storage
from fsspeckit.storage.commit.log import (
    CommitFacts,
    Skipped,
    TombstoneFile,
    Tombstones,
    Transaction,
    pending_numbers,
)
from fsspeckit.storage.commit.recovery import (
    RecoveredCommit,
    RecoveryReport,
    confirm_snapshot,
    recover,
    recover_storage,
    take_snapshot,
    unconfirmed_snapshot,
)
from fsspeckit.storage.commit.staging import (
    PhasePublisher,
    Stage,
    StagedFile,
    WorkerStage,
    create_stage,
    staging,
)
from fsspeckit.storage.commit.tombstones import TombstoneChange, read_tombstones
from fsspeckit.storage.commit.transaction import (
    CommitOutcome,
    FileChanges,
    Replan,
    commit,
    find_transaction,
)
from fsspeckit.storage.earlier import earlier_files
from fsspeckit.storage.findings import Findings, Severity, VerifyFinding
from fsspeckit.storage.fs.attributes import Capabilities, capabilities_of
from fsspeckit.storage.fs.backends import open_backend
from fsspeckit.storage.fs.clients import new_file
from fsspeckit.storage.fs.local_copies import OnDisk, on_local_disk
from fsspeckit.storage.fs.reads import (
    arrow_filesystem,
    naming_failure,
    open_input,
    read_range,
    read_tail,
)
from fsspeckit.storage.fs.syscalls import Call
from fsspeckit.storage.fs.tasks import Task
from fsspeckit.storage.hadoop_options import HADOOP_OPTIONS, HADOOP_PREFIX, is_hadoop_option
from fsspeckit.storage.history import History, HistoryEntry, history, history_of
from fsspeckit.storage.incoming import IncomingBatch
from fsspeckit.storage.listing import (
    DATA_SUFFIXES,
    DataFile,
    FileSelection,
    check_data_name,
    check_mergeable,
    check_readable,
    has_magic,
    is_hidden,
    list_files,
    plain_basename,
    unique_basename,
)
from fsspeckit.storage.restore import (
    RestoredFile,
    RestoreResult,
    restore,
    restore_storage,
    undo,
    undo_storage,
)
from fsspeckit.storage.roots import Root, open_root, passwords_of, without_credentials
from fsspeckit.storage.schemes import canonical_scheme, scheme_of, schemes_of
from fsspeckit.storage.snapshot import (
    Difference,
    PinnedFile,
    Snapshot,
    StableFiles,
    list_snapshot,
    stable_files,
)
from fsspeckit.storage.storage import (
    STAGED_SUFFIX,
    PublishMode,
    Retention,
    Storage,
    TombstoneLimits,
    TransactionLimits,
    check_lock_timeout,
    open_storage,
)
from fsspeckit.storage.verification import files_to_verify, removed_since, verify_control

__all__ = [
    "DATA_SUFFIXES",
    "HADOOP_OPTIONS",
    "HADOOP_PREFIX",
    "STAGED_SUFFIX",
    "Activity",
    "Call",
    "Capabilities",
    "CleanReport",
    "CleanedItem",
    "CommitFacts",
    "CommitOutcome",
    "DataFile",
    "Difference",
    "FileChanges",
    "FileSelection",
    "Findings",
    "History",
    "HistoryEntry",
    "IncomingBatch",
    "IncomingRows",
    "OnDisk",
    "PhasePublisher",
    "PinnedFile",
    "PublishMode",
    "RecoveredCommit",
    "RecoveryReport",
    "Replan",
    "RestoreResult",
    "RestoredFile",
    "Retention",
    "Root",
    "Severity",
    "Skipped",
    "Snapshot",
    "StableFiles",
    "Stage",
    "StagedFile",
    "Storage",
    "Task",
    "TombstoneChange",
    "TombstoneFile",
    "TombstoneLimits",
    "Tombstones",
    "Transaction",
    "TransactionLimits",
    "VerifyFinding",
    "WorkerStage",
    "WriterActivity",
    "arrow_filesystem",
    "canonical_scheme",
    "capabilities_of",
    "check_data_name",
    "check_lock_timeout",
    "check_mergeable",
    "check_readable",
    "clean",
    "clean_storage",
    "commit",
    "confirm_snapshot",
    "create_stage",
    "current_activity",
    "earlier_files",
    "files_to_verify",
    "find_transaction",
    "has_magic",
    "history",
    "history_of",
    "is_hadoop_option",
    "is_hidden",
    "list_files",
    "list_snapshot",
    "naming_failure",
    "new_file",
    "on_local_disk",
    "open_backend",
    "open_input",
    "open_root",
    "open_storage",
    "passwords_of",
    "pending_numbers",
    "plain_basename",
    "read_range",
    "read_tail",
    "read_tombstones",
    "recover",
    "recover_storage",
    "removed_since",
    "restore",
    "restore_storage",
    "scheme_of",
    "schemes_of",
    "stable_files",
    "staging",
    "take_snapshot",
    "unconfirmed_snapshot",
    "undo",
    "undo_storage",
    "unique_basename",
    "verify_control",
    "without_credentials",
]
