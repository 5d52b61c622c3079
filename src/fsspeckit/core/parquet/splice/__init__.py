"""A file assembled from byte ranges of an old one and new column chunks."""

from __future__ import annotations
