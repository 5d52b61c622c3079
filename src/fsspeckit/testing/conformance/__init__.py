"""The contract of every engine, as tests that its own test file inherits.

An engine gives a fixture, and sets flags where it differs::

    class TestPyarrow(EngineTests):
        engine_name = "pyarrow"

        @pytest.fixture
        def connect(self):
            return PyarrowDatasetIO

Everything is compared with the model over plain rows and with the files on disk, read with plain
pyarrow; nothing here looks inside an engine. Names of tests quote the scenario or the rule that
they prove.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

_PARTS = (
    *(
        "changes",
        "compacting",
        "concurrency",
        "crashes",
        "duplicates",
        "earlier",
        "feed_sequences",
        "feeds",
        "files",
        "keys",
        "merging",
        "objects",
        "partitions",
        "planning",
        "repartitioning",
        "rewriting",
        "schema_changes",
        "schemas",
    ),
    *("stores", "target", "transactions", "verifying", "writing"),
)
# Before they are imported: plain asserts would fail without telling the values.
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from fsspeckit.testing.conformance.changes import (  # noqa: E402
    DeleteTests,
    DeleteWhenTests,
    DeleteWhereTests,
    OnlyNewerTests,
    PurgeTests,
)
from fsspeckit.testing.conformance.compacting import CompactionTests, GrowingTests  # noqa: E402
from fsspeckit.testing.conformance.concurrency import ConcurrencyTests  # noqa: E402
from fsspeckit.testing.conformance.crashes import CrashTests, GeneratedTests  # noqa: E402
from fsspeckit.testing.conformance.duplicates import DeduplicateTests  # noqa: E402
from fsspeckit.testing.conformance.earlier import EarlierTests  # noqa: E402
from fsspeckit.testing.conformance.feed_sequences import FeedSequenceTests  # noqa: E402
from fsspeckit.testing.conformance.feeds import (  # noqa: E402
    FeedColumnTests,
    FeedCommitTests,
    FeedRefusalTests,
    FeedTests,
    VersionTests,
)
from fsspeckit.testing.conformance.files import (  # noqa: E402
    FileShapeTests,
    HandsOffTests,
    LookTests,
    UnreadableTests,
    WriterTests,
)
from fsspeckit.testing.conformance.keys import DuplicateKeyTests, KeyTypeTests, NullKeyTests  # noqa: E402
from fsspeckit.testing.conformance.merging import (  # noqa: E402
    EdgeTests,
    FullMergeTests,
    OptionTests,
    StrategyTests,
)
from fsspeckit.testing.conformance.objects import ObjectStoreTests  # noqa: E402
from fsspeckit.testing.conformance.partitions import GuardTests, MoveTests, PartitionTests  # noqa: E402
from fsspeckit.testing.conformance.planning import PlanningTests  # noqa: E402
from fsspeckit.testing.conformance.repartitioning import RepartitionTests  # noqa: E402
from fsspeckit.testing.conformance.rewriting import RewriteModeTests  # noqa: E402
from fsspeckit.testing.conformance.schema_changes import EvolveTests, SchemaChangeTests  # noqa: E402
from fsspeckit.testing.conformance.schemas import (  # noqa: E402
    ColumnNameTests,
    NestedTests,
    SchemaTests,
    UnfitTests,
)
from fsspeckit.testing.conformance.stores import Store, open_store  # noqa: E402
from fsspeckit.testing.conformance.target import Target  # noqa: E402
from fsspeckit.testing.conformance.transactions import TransactionTests  # noqa: E402
from fsspeckit.testing.conformance.verifying import VerifyTests  # noqa: E402
from fsspeckit.testing.conformance.writing import ReadTests, WriteTests  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "CareTests",
    "EngineTests",
    "MergeTests",
    "RowTests",
    "Store",
    "Target",
    "open_store",
]


class RowTests(
    StrategyTests,
    FullMergeTests,
    EdgeTests,
    OptionTests,
    DeleteTests,
    DeleteWhereTests,
    DeleteWhenTests,
    OnlyNewerTests,
    FeedTests,
    VersionTests,
    FeedColumnTests,
    FeedCommitTests,
    FeedRefusalTests,
    KeyTypeTests,
    NullKeyTests,
    DuplicateKeyTests,
    SchemaTests,
    UnfitTests,
    NestedTests,
    ColumnNameTests,
    PartitionTests,
    MoveTests,
    WriteTests,
    ReadTests,
    TransactionTests,
    GeneratedTests,
    FeedSequenceTests,
):
    """What holds for rows on every engine: which there are, and of which types."""

    engine_name: str
    """The engine's name, as it stands in the history of a dataset."""

    supports_memory_filesystem = True
    """Whether it reads filesystems that exist in one process only."""

    @pytest.fixture
    def connect(self) -> Callable[..., Any]:
        """The engine's constructor, taking ``filesystem``, ``control_dir`` and ``publish``."""
        raise NotImplementedError("an engine's tests give the fixture `connect`")

    @pytest.fixture
    def engine(self) -> str:
        """The name of the engine."""
        return self.engine_name

    @pytest.fixture
    def store(self, request: pytest.FixtureRequest) -> Iterator[Store]:
        """An empty place for a dataset: a local disk unless a test asks for others."""
        kind = getattr(request, "param", "exchange")
        if kind == "memory" and not self.supports_memory_filesystem:
            pytest.skip("this engine cannot read a filesystem of this process")
        with open_store(kind) as opened:
            yield opened

    @pytest.fixture
    def target(self, connect: Callable[..., Any], store: Store) -> Iterator[Target]:
        """A dataset in the store, and the engine to merge into it."""
        with connect(**store.options) as io:
            yield Target(io, store)


class MergeTests(
    RowTests,
    PurgeTests,
    ConcurrencyTests,
    GuardTests,
    PlanningTests,
    WriterTests,
    FileShapeTests,
    HandsOffTests,
    UnreadableTests,
    LookTests,
    RewriteModeTests,
    ObjectStoreTests,
    CrashTests,
):
    """What holds for merges, writes, change feeds and reading on every engine."""


class CareTests(
    DeduplicateTests,
    RepartitionTests,
    VerifyTests,
    CompactionTests,
    GrowingTests,
    SchemaChangeTests,
    EvolveTests,
    EarlierTests,
):
    """What holds for the care of a dataset on every engine: files and columns, not sources."""


class EngineTests(MergeTests, CareTests):
    """Everything that holds on every engine; an engine's tests inherit it."""
