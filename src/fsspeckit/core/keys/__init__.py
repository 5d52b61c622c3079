"""Keys: canonical values that every engine compares alike, and the source's keys."""

from __future__ import annotations
