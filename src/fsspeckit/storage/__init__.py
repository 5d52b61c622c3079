"""Everything that touches a filesystem: where a dataset is, what is in it, how it changes."""

from __future__ import annotations
