"""What the tests of every engine share: the model, generated data, files of several writers."""

from __future__ import annotations
