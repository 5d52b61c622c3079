"""Threads of tests run while coverage is measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PROGRAM = """
import sys, threading
from tests import traced_threads

traced_threads.install()
sys.addaudithook(lambda event, arguments: sum(range(50)))
sys.setswitchinterval(1e-6)
ran = []

def start_many():
    for number in range(300):
        thread = threading.Thread(target=ran.append, args=(number,))
        thread.start()
        thread.join()

threads = [threading.Thread(target=start_many) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(ran))
"""


def test_every_thread_runs_although_others_start(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    measured = [sys.executable, "-m", "coverage", "run", f"--data-file={tmp_path / 'coverage'}"]
    ended = subprocess.run(
        [*measured, str(program)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.stdout, ended.returncode) == ("2400\n", 0)
    assert "Exception ignored" not in ended.stderr
