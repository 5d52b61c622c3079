"""What pyarrow does not expose of the Parquet format: raw footers, exactness flags, blooms."""

from __future__ import annotations
