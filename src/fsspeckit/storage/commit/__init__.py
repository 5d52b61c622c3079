"""The commit: staging, the commit log, publishing, recovery and the trash."""

from __future__ import annotations
