"""The benchmark against every peer: ``python -m benchmarks.peers``, see ``--help``.

One run makes a table in the format of each system from the same rows, merges the same sources into
fresh copies of it, checks every result, and writes a page with what was measured.
"""

from __future__ import annotations
