"""Import paths that users know; what they name is defined elsewhere."""

from __future__ import annotations
