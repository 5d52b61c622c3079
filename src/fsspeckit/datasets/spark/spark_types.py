"""Spark's types as Arrow's, in every supported version of Spark."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["arrow_schema"]

# Spark 4.1 asks whether timestamps with a zone are in UTC, later versions ask for the zone.
_IN_UTC = (
    {"timezone": "UTC"}
    if "timezone" in signature(to_arrow_schema).parameters
    else {"timestamp_utc": True}
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark hands the rows of a data frame over, instants in UTC."""
    return to_arrow_schema(schema, **_IN_UTC)
