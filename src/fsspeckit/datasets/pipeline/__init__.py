"""The way of a merge or a write: source, request, target, plan, match, rewrite, commit."""

from __future__ import annotations
