"""One module for each family of systems, all with the same three questions: make, merge, read."""

from __future__ import annotations
