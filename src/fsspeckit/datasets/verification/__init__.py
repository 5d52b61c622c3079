"""Verification: whether every reader gets all rows of a dataset, and none twice."""

from __future__ import annotations

from fsspeckit.datasets.verification.report import VerifyReport
from fsspeckit.datasets.verification.verify import VerifyNulls, run_verify

__all__ = ["VerifyNulls", "VerifyReport", "run_verify"]
