"""Two checkouts of this library side by side: the same merges in turns, in one sitting.

Shapes use nothing but what is public, since modules move between checkouts.
"""

from __future__ import annotations
