"""Reports: a dataset, a plan or a result as one page for a browser, and served while it changes.

The page is built from ``frontend/`` and ships as ``page.html``. This package fills it with one JSON
document, whose parts are described by the types in ``frontend/src/model.ts``. Everything in it
comes from paths, footers and commit records; making it changes nothing.
"""

from __future__ import annotations

from fsspeckit.report.model import page_of, report_model
from fsspeckit.report.page import fill_page, is_report, load_template
from fsspeckit.report.server import ReportServer

__all__ = [
    "ReportServer",
    "fill_page",
    "is_report",
    "load_template",
    "page_of",
    "report_model",
]
