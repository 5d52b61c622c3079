"""Google Cloud Storage: copies that take several requests, on fake-gcs-server behind a port."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from fsspeckit.storage import open_storage
from fsspeckit.testing.conformance.stores import object_store
from fsspeckit.testing.rule_server import RuleServer, passing_on_to

if TYPE_CHECKING:
    from werkzeug.wrappers import Request, Response

    from fsspeckit.testing.object_stores import FakeGcs
    from fsspeckit.testing.rule_server import Answer

pytestmark = pytest.mark.slow


def test_a_copy_that_was_made_in_part_is_continued() -> None:
    """As copies of many gigabytes are, to another class of storage or another place."""
    store = cast("FakeGcs", object_store("fake-gcs"))
    unfinished = [{"done": False, "rewriteToken": "more"}] * 2

    def in_part(request: Request, answer: Answer) -> Response:
        from werkzeug.wrappers import Response

        if request.method != "POST" or not unfinished:
            return answer()
        return Response(json.dumps(unfinished.pop()), content_type="application/json")

    def asked(request: Request) -> tuple[str, str]:
        return request.method, request.full_path

    server = RuleServer(passing_on_to(store.url))
    try:
        behind = replace(store, url=server.url)
        place = store.at(store.make_bucket(), "lake/data")
        storage = open_storage(place, storage_options=behind.options)
        source, target = storage.path("old"), storage.path("new")
        storage.backend.overwrite(source, b"bytes")
        with server.following(in_part), server.noting(asked) as noted:
            storage.backend.copy_all({source: target})
        copies = [path for method, path in noted if method == "POST"]
        assert ["rewriteToken=more" in path for path in copies] == [False, True, True]
        assert storage.backend.read(target) == b"bytes"
    finally:
        server.stop()
