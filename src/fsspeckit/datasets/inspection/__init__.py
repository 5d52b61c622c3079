"""What a dataset looks like, and how well it suits merges."""

from __future__ import annotations
