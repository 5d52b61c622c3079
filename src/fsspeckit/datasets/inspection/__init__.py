"""What a dataset looks like, and how well it suits merges."""

from __future__ import annotations

from fsspeckit.datasets.inspection.diagnosis import (
    Diagnosis,
    Finding,
    diagnose_dataset,
    diagnosis_of,
)
from fsspeckit.datasets.inspection.report import (
    SMALL_BYTES,
    Inspection,
    KeyPruning,
    Survey,
    inspect_dataset,
    inspection_of,
    survey,
)

__all__ = [
    "SMALL_BYTES",
    "Diagnosis",
    "Finding",
    "Inspection",
    "KeyPruning",
    "Survey",
    "diagnose_dataset",
    "diagnosis_of",
    "inspect_dataset",
    "inspection_of",
    "survey",
]
