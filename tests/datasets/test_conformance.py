"""The conformance suite itself: nothing in it is lost."""

from __future__ import annotations

from collections import Counter

from fsspeckit.testing.conformance import EngineTests


def test_no_part_hides_a_test_of_another() -> None:
    names = Counter(
        name for part in EngineTests.__bases__ for name in vars(part) if name.startswith("test")
    )
    assert names.total() > 100
    assert [name for name, count in names.items() if count > 1] == []
