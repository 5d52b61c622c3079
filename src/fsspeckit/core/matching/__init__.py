"""Matching: the key scan, and the positions of target rows that have a source key."""

from __future__ import annotations
