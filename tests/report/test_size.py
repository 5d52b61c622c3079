"""10,000 files and 1,000 commits fit into a page of 5 MB."""

from __future__ import annotations

import pytest
from tests.report.datasets import large_dataset, model_of, named, ranges

from fsspeckit.report import fill_page, report_model

FILES, COMMITS = 10_000, 1_000
MAX_BYTES = 5_000_000


@pytest.mark.slow
def test_a_large_dataset_fits_into_a_page() -> None:
    page = fill_page(report_model(large_dataset(FILES, COMMITS)))
    assert len(page.encode()) < MAX_BYTES
    model = model_of(page)
    assert len(model["files"]["name"]) == FILES
    assert len(model["commits"]) == COMMITS
    assert len(set(ranges(model))) == FILES
    assert len(model["rowGroups"]["rows"]) == FILES
    assert all(commit["detail"] is not None for commit in model["commits"])
    share = FILES // COMMITS
    last = model["commits"][-1]
    assert len(named(model, last["added"])) == 2 * share
    assert len(last["detail"]["rewrites"]["from"]) == share
    assert last["detail"]["rewrites"]["columns"] == [[0, 1]] * share
    assert model["notes"] == []
