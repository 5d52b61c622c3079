"""Everything that decides what a merge touches, and knows no engine."""

from __future__ import annotations
