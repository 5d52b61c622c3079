"""The page: whatever a dataset holds stays data, and the browser runs nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.report.datasets import model_of, paths_of

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import FsspeckitError, InvalidArgumentError
from fsspeckit.report import fill_page, is_report, load_template, page_of, report_model
from fsspeckit.report.page import content_policy, encode_model
from fsspeckit.storage import open_storage

HOSTILE = "</script><script>alert(1)</script><!--&\u2028\"'"


@pytest.fixture
def page(tmp_path: Path) -> str:
    """The page of a dataset whose columns, paths and values try to leave their place."""
    place = tmp_path / "<img src=x>"
    table = pa.table({HOSTILE: [HOSTILE, "z"], "day": [HOSTILE, "other"]})
    PyarrowDatasetIO().write_dataset(table, str(place), partition_by=["day"])
    pq.write_table(pa.table({HOSTILE: ["y"]}), place / "day=other" / "a<b>&'.parquet")
    return fill_page(report_model(open_storage(place), [HOSTILE]))


def test_names_and_values_stay_data(page: str) -> None:
    model = model_of(page)
    assert model["axes"][0]["column"] == HOSTILE
    assert HOSTILE in model["axes"][0]["texts"]
    assert [HOSTILE] in model["files"]["partitions"]
    assert "day=other/a<b>&'.parquet" in paths_of(model)
    assert model["dataset"]["path"].endswith("<img src=x>")
    # The template and a policy, and no character of the data that means something to a browser.
    rest = page.replace(encode_model(model), "null")
    assert re.sub(r"<meta http-equiv=[^>]*>", "", rest, count=1) == load_template()
    assert not set("<>&") & set(encode_model(model))
    assert encode_model(model).isascii()


def test_the_page_asks_nobody(page: str) -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert "unsafe" not in policy
    assert not re.search(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=", load_template())


def test_the_policy_allows_the_script_and_the_style_of_the_page() -> None:
    template = load_template()
    scripts = re.findall(r"<script>(.*?)</script>", template, re.DOTALL)
    styles = re.findall(r"<style>(.*?)</style>", template, re.DOTALL)
    assert (len(scripts), len(styles)) == (1, 1)
    policy = content_policy(template, connect=True)
    for text in (*scripts, *styles):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "connect-src 'self'" in policy
    # What a policy with hashes would stop.
    assert not re.search(
        r"<[a-z][^>]*\s(?:style|on[a-z]+)=", re.sub(r"<script.*", "", template, flags=re.DOTALL)
    )


def test_what_json_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_model({"x": float("nan")})


def test_a_page_is_recognised() -> None:
    assert is_report(load_template().encode())
    assert not is_report(b"<html></html>")


def test_a_value_without_a_page_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="there is no page of a int"):
        page_of(1)


def test_an_installation_without_the_page_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("fsspeckit.report.page.resources.files", lambda name: tmp_path)
    load_template.cache_clear()
    try:
        with pytest.raises(FsspeckitError, match=r"has no page\.html"):
            load_template()
        Path(tmp_path, "page.html").write_text("<html></html>")
        with pytest.raises(FsspeckitError, match="no place for the data"):
            load_template()
    finally:
        monkeypatch.undo()
        load_template.cache_clear()
