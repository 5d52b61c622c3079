"""The collector is paused for a while, and only for a while."""

from __future__ import annotations

import gc

import pytest

from fsspeckit.core.planning.footers import collector_paused


@pytest.fixture(autouse=True)
def collector_on() -> None:
    assert gc.isenabled()


def test_it_is_on_again_afterwards() -> None:
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_on_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="wrong"), collector_paused():
        raise ValueError("wrong")
    assert gc.isenabled()


def test_one_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_pauses_may_overlap() -> None:
    """As those of two threads do: the one that began first ends first, or last."""
    for first_to_end in (0, 1):
        pauses = [collector_paused(), collector_paused()]
        for pause in pauses:
            pause.__enter__()
        for pause in (pauses[first_to_end], pauses[1 - first_to_end]):
            pause.__exit__(None, None, None)
        assert gc.isenabled()
