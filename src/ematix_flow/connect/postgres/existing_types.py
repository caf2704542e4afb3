"""Types of existing columns of PostgreSQL that no declaration spells: what carries their values; it runs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.types.existing import SIZE, TEXT_KINDS, ExistingTypes, digits_fit
from ematix_flow.declare.table import types

if TYPE_CHECKING:
    from ematix_flow.declare.table.types import ColumnType


class PostgresTypes(ExistingTypes):
    """Everything as text that PostgreSQL casts, but padded text and rounded points in time."""

    _ASSIGNED = ("name", "oid")
    """Types that INSERT makes of what carries them, as it does of those that our DDL spells in capitals."""
    _BOUNDS = "^\\s*(\\[[-+0-9]+:[-+0-9]+\\])+="
    """How an array begins that states where its numbering starts."""

    def carried_as(self, native: str, incoming: ColumnType) -> ColumnType | None:
        """Carry padded text, instants and numbers of objects as such."""
        del incoming
        size, base = SIZE.search(native), SIZE.sub("", native)
        if base == "CHAR":
            return types.String(int(size[1]) if size else 1)
        kinds = {"TIMESTAMP": types.Timestamp(), "TIMESTAMPTZ": types.TimestampTZ(), "oid": types.BigInt()}
        return kinds.get(base, types.Text())

    def takes(self, native: str, declared: ColumnType) -> bool:
        """Return True for Text over every type that our DDL has no word for, such as enums, times of day, ranges and arrays."""
        size, base, kind = SIZE.search(native), SIZE.sub("", native), declared.kind
        if not base.isupper() and base not in self._ASSIGNED:
            return kind == "text"
        if base == "NUMERIC":
            return kind == "numeric" if size is None else digits_fit(declared, int(size[1]), int(size[2] or 0))
        kinds = {
            "CHAR": TEXT_KINDS,
            "TIMESTAMP": ("timestamp",),
            "TIMESTAMPTZ": ("timestamp_tz",),
            # A smaller number is cast bit by bit: -1 would be the greatest of all.
            "oid": ("big_int",),
        }
        return kind in kinds.get(base, ())

    def typed(self, native: str, value: str) -> str:
        """Cast to the type without its size, which INSERT then applies without cutting anything off."""
        base = SIZE.sub("", native)
        if base in ("TIMESTAMP", "TIMESTAMPTZ") and base != native:
            more = f"CAST(CAST({value} AS TEXT) || ' has more digits' AS {base})"
            return f"CASE WHEN {value} IS NULL OR {value} = CAST({value} AS {native}) THEN {value} ELSE {more} END"
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
