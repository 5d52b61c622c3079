"""A dataset whose columns change, in plain Python: what schema changes and merges must leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Row = dict[str, Any]

_STEPS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_NAMES = ("a", "b", "c", "d", "e")


class ColumnsModel:
    """Columns of integers, and rows by the key ``id``."""

    def __init__(self) -> None:
        self.types: dict[str, pa.DataType] = {"id": pa.int64(), "a": pa.int8()}
        self.rows: dict[int, Row] = {}

    def schema(self) -> pa.Schema:
        """The columns that every file has."""
        return pa.schema(list(self.types.items()))

    def upsert(self, rows: pa.Table) -> None:
        """Merge rows, which may have new columns and wider types."""
        for field in rows.schema:
            old = self.types.get(field.name, field.type)
            self.types[field.name] = max(old, field.type, key=lambda kind: kind.bit_width)
        self.rows |= {row["id"]: row for row in rows.to_pylist()}

    def evolve(
        self,
        *,
        add: Mapping[str, pa.DataType] | None = None,
        widen: Mapping[str, pa.DataType] | None = None,
        drop: str | None = None,
        rename: Mapping[str, str] | None = None,
        order: Sequence[str] | None = None,
    ) -> None:
        """Change the columns, as ``evolve`` does with the same arguments."""
        self.types |= {**(add or {}), **(widen or {})}
        names = dict(rename or {})
        self.types = {names.get(n, n): kind for n, kind in self.types.items() if n != drop}
        self.rows = {
            key: {names.get(n, n): value for n, value in row.items() if n != drop}
            for key, row in self.rows.items()
        }
        self.types = {name: self.types[name] for name in order or self.types}


@st.composite
def tables_of(draw: st.DrawFn, model: ColumnsModel, *, more: bool = False) -> pa.Table:
    """Draw rows with all columns; with ``more``, perhaps new ones and other types, too."""
    types = dict(model.types)
    for name in _NAMES if more else ():
        kind = draw(st.none() | st.sampled_from(_STEPS), label=name)
        types |= {} if kind is None else {name: kind}
    keys = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True))
    rows: list[Row] = [{"id": key} for key in keys]
    for row in rows:
        for name in types.keys() - {"id"}:
            top = 2 ** (types[name].bit_width - 1) - 1
            row[name] = draw(st.none() | st.sampled_from([0, top, -top]))
    return pa.Table.from_pylist(rows, pa.schema(list(types.items())))


@st.composite
def evolutions_of(draw: st.DrawFn, model: ColumnsModel) -> dict[str, Any]:
    """Draw a change of the columns, as arguments of ``evolve``."""
    names = [name for name in model.types if name != "id"]
    free = [name for name in _NAMES if name not in model.types]
    kinds = ["order", *["add"] * bool(free), *["rename"] * bool(free and names)]
    kind = draw(st.sampled_from([*kinds, *["drop", "widen"] * bool(names)]), label="kind")
    if kind == "order":
        return {"order": draw(st.permutations([*model.types]))}
    name = draw(st.sampled_from(free if kind == "add" else names), label="column")
    if kind == "add":
        return {"add": {name: draw(st.sampled_from(_STEPS))}}
    if kind == "widen":
        wider = [one for one in _STEPS if one.bit_width >= model.types[name].bit_width]
        return {"widen": {name: draw(st.sampled_from(wider))}}
    return {"drop": name} if kind == "drop" else {"rename": {name: draw(st.sampled_from(free))}}
