"""The collector is paused for a while, and only for a while."""

from __future__ import annotations

import gc
import os

import pytest

from fsspeckit.core.planning.footers import gc_disabled


@pytest.fixture(autouse=True)
def collector_on() -> None:
    assert gc.isenabled()


def test_it_is_on_again_afterwards() -> None:
    with gc_disabled():
        assert not gc.isenabled()
        with gc_disabled():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_on_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="wrong"), gc_disabled():
        raise ValueError("wrong")
    assert gc.isenabled()


def test_one_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with gc_disabled():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_pauses_may_overlap() -> None:
    """As those of two threads do: the one that began first ends first, or last."""
    for first_to_end in (0, 1):
        pauses = [gc_disabled(), gc_disabled()]
        for pause in pauses:
            pause.__enter__()
        for pause in (pauses[first_to_end], pauses[1 - first_to_end]):
            pause.__exit__(None, None, None)
        assert gc.isenabled()


def test_a_process_that_is_forked_meanwhile_collects_garbage() -> None:
    with gc_disabled():
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
        assert not gc.isenabled()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert gc.isenabled()
