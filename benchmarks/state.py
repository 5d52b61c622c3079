"""Which state of the code a figure is of: a commit, and whether anything has changed since."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_MEASURED = ("src", "benchmarks", "pyproject.toml", "constraints.txt")
"""What figures depend on. Pages are left out: every benchmark changes one."""


@dataclass(frozen=True)
class State:
    """A commit, and a digest of what is not committed."""

    commit: str
    date: str
    changes: str = ""
    """Empty where everything is committed."""

    def __str__(self) -> str:
        changed = f", with uncommitted changes {self.changes}" if self.changes else ""
        return f"{self.commit} of {self.date}{changed}"

    @property
    def line(self) -> str:
        """The first line of a page."""
        return f"*Measured on commit {self}.*"


def current_state(root: Path = ROOT) -> State:
    """Return the state of a checkout now."""
    commit, date = _git(root, "log", "-1", "--format=%h %cs", "--abbrev=10").split()
    changes = hashlib.sha256()
    listed = _git(root, "ls-files", "-mdo", "--exclude-standard", "--", *_MEASURED)
    staged = _git(root, "diff", "--cached", "--name-only", "HEAD", "--", *_MEASURED)
    names = sorted({*listed.splitlines(), *staged.splitlines()})
    for name in names:
        path = root / name
        changes.update(name.encode() + b"\0")
        changes.update(path.read_bytes() if path.is_file() else b"removed")
    return State(commit, date, changes.hexdigest()[:8] if names else "")


def _git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
