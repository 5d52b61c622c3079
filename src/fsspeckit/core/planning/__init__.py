"""Planning: which files and row groups a merge must touch, and on what evidence."""

from __future__ import annotations
