"""Types of existing columns of PostgreSQL that no declaration spells: what carries their values; it runs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.types.existing import SIZE, ExistingTypes
from ematix_flow.declare.table import types

if TYPE_CHECKING:
    from ematix_flow.declare.table.types import ColumnType


class PostgresTypes(ExistingTypes):
    """Everything as text that PostgreSQL casts, but padded text and rounded points in time."""

    _ASSIGNED = ("name", "oid")
    """Types that INSERT makes of what carries them, as it does of those that our DDL spells in capitals."""
    _BOUNDS = "^\\s*(\\[[-+0-9]+:[-+0-9]+\\])+="
    """How an array begins that says where its numbering starts."""

    def carried_as(self, native: str, given: ColumnType) -> ColumnType | None:
        """Carry padded text, instants and numbers of objects as such."""
        del given
        size, base = SIZE.search(native), SIZE.sub("", native)
        if base == "CHAR":
            return types.String(int(size[1]) if size else 1)
        found = {"TIMESTAMP": types.Timestamp(), "TIMESTAMPTZ": types.TimestampTZ(), "oid": types.BigInt()}
        return found.get(base, types.Text())

    def foreign(self, native: str) -> bool:
        """Return True for every type that our DDL has no word for: enums, times of day, ranges, arrays, citext and so on."""
        base = SIZE.sub("", native)
        return not base.isupper() and base not in self._ASSIGNED

    def typed(self, native: str, value: str) -> str:
        """Cast to the type without its size, which INSERT then applies without cutting anything off."""
        base = SIZE.sub("", native)
        if base == "NUMERIC":
            return f"CAST({value} AS NUMERIC)"
        if base.isupper() or base in self._ASSIGNED:
            return value
        if base == "bit":
            return f"CAST({value} AS BIT VARYING)"
        if not base.endswith("[]"):
            return f"CAST({value} AS {base})"
        text = f"CAST({value} AS TEXT)"
        elements = f"ARRAY(SELECT jsonb_array_elements_text(CAST({text} AS JSONB)))"
        listed = f"{text} ~ '^\\s*\\[' AND {text} !~ '{self._BOUNDS}'"
        return f"CASE WHEN {listed} THEN CAST({elements} AS {base}) ELSE CAST({text} AS {base}) END"
