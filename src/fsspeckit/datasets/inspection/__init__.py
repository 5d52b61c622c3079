"""What a dataset looks like, and how well it suits merges."""

from __future__ import annotations

from fsspeckit.datasets.inspection.diagnosis import Diagnosis, Finding, diagnose_dataset
from fsspeckit.datasets.inspection.report import Inspection, KeyPruning, inspect_dataset

__all__ = [
    "Diagnosis",
    "Finding",
    "Inspection",
    "KeyPruning",
    "diagnose_dataset",
    "inspect_dataset",
]
