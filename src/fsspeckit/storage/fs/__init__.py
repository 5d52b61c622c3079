"""The filesystem below a dataset: backends, calls that change files, reads and their errors."""

from __future__ import annotations
