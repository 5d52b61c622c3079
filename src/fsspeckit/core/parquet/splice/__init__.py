"""Splicing: a file put together from bytes of an old one and new column chunks."""

from __future__ import annotations
