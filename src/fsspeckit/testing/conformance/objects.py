"""What must hold on object stores: rows, buckets that keep versions, limited credentials."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fsspeckit.storage import history, recover
from fsspeckit.testing.conformance.stores import both_object_stores, bucket_store, object_store
from fsspeckit.testing.conformance.target import Target, numbers
from fsspeckit.testing.object_stores import moto

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsspeckit.testing.conformance.stores import Store

__all__ = ["ObjectStoreTests"]

# Not marked as a class: the tests of an engine inherit from it, and all of them would be slow.
EVERY_OBJECT_STORE = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) for kind in both_object_stores()]
)
_LISTING = ("ListObjectsV2",)
_OBJECTS = (
    *("HeadObject", "GetObject", "PutObject", "CopyObject"),
    *("DeleteObject", "DeleteObjects"),
)
PREFIXES = ("lake/data/", "lake/.data.fsspeckit/")


def _upsert_three_times(connect: Callable[..., Any], store: Store) -> None:
    """Merge the same keys with other values, and compare everything after each merge."""
    with connect(**store.options) as io:
        target = Target(io, store)
        for value in ("first", "second", "third"):
            target.merge(numbers(1, 2, v=value))
    assert sum(target.rows(numbers().schema).values()) == 2
    assert store.leftovers() == []


class ObjectStoreTests:
    """Merges on moto, on moto that answers as MinIO does, and on MinIO."""

    @EVERY_OBJECT_STORE
    def test_a_key_that_is_merged_again_does_not_multiply(
        self, connect: Callable[..., Any], kind: str
    ) -> None:
        server = object_store(kind)
        _upsert_three_times(connect, bucket_store(server, server.make_bucket()))

    @EVERY_OBJECT_STORE
    def test_a_bucket_that_keeps_versions(self, connect: Callable[..., Any], kind: str) -> None:
        server = object_store(kind)
        store = bucket_store(server, server.make_bucket(versioned=True))
        _upsert_three_times(connect, store)
        report = recover(store.path, **store.opening)
        assert not report, "what was deleted is not recovered again"

    @EVERY_OBJECT_STORE
    def test_credentials_for_the_dataset_and_its_control_directory_are_enough(
        self, connect: Callable[..., Any], kind: str
    ) -> None:
        server = object_store(kind)
        bucket = server.make_bucket()
        with server.limited(bucket, *PREFIXES) as credentials:
            store = bucket_store(server, bucket, credentials)
            with connect(**store.options) as io:
                io.merge(numbers(1, 2), store.path, "upsert", ["id"])
                io.merge(numbers(2, 3, v="new"), store.path, "upsert", ["id"])
                assert io.plan_merge(numbers(1), store.path, "upsert", ["id"]).files
            assert len(history(store.path, **store.opening)) == 2
            assert not recover(store.path, **store.opening)
        assert sum(Target(None, store).rows(numbers().schema).values()) == 3

    @pytest.mark.slow
    def test_nothing_is_asked_about_the_bucket_or_beside_the_dataset(
        self, connect: Callable[..., Any]
    ) -> None:
        server = moto()
        store = bucket_store(server, server.make_bucket())
        with server.recording() as asked, connect(**store.options) as io:
            io.merge(numbers(1, 2), store.path, "upsert", ["id"])
            io.merge(numbers(2, 3, v="new"), store.path, "upsert", ["id"])
            io.write_dataset(numbers(4), store.path, mode="overwrite")
            io.read_dataset(store.path)
        with server.recording() as asked_by_recovery:
            recover(store.path, **store.opening)
        # Uploads that nobody finishes are looked for, if the credentials allow it.
        asked_of_bucket = {"ListMultipartUploads"}
        assert {r.action for r in asked_by_recovery} <= {*_LISTING, *_OBJECTS, *asked_of_bucket}
        asked += [r for r in asked_by_recovery if r.action not in asked_of_bucket]
        listed = {request.key for request in asked if request.action == "ListObjectsV2"}
        assert [prefix for prefix in listed if not prefix.startswith(PREFIXES)] == []
        assert {request.action for request in asked} <= {*_LISTING, *_OBJECTS}
        # Only where a new dataset might be an object, which other credentials could not even see.
        beside = {request.key for request in asked if not request.key.startswith(PREFIXES)}
        assert beside <= {"lake/data"}
