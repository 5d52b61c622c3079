"""The engines behind one contract."""

from __future__ import annotations
