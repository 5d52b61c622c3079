"""Single pages of a column chunk, read and replaced."""

from __future__ import annotations
