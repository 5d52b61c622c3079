"""Integrations: fsspeckit inside of tools that people already use, one module for each tool.

Only the module of a tool imports it, so nothing is imported here.
"""

from __future__ import annotations
