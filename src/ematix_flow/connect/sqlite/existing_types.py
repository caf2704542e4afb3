"""Types of existing columns of SQLite that no declaration spells: what carries their values; it runs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.sqlite.types import family
from ematix_flow.connect.types.existing import SIZE, ExistingTypes
from ematix_flow.declare.table import types

if TYPE_CHECKING:
    from ematix_flow.declare.table.types import ColumnType


class SQLiteTypes(ExistingTypes):
    """By affinity, as SQLite itself does; a column without a type takes every value as it is."""

    _TEXT_KEPT = 15
    """Digits that a number of SQLite gives back; a longer one travels as text."""

    def carried_as(self, native: str, given: ColumnType) -> ColumnType | None:
        """Carry values as the column keeps them."""
        if native == "no type":
            return given
        size = SIZE.search(native)
        found = family(native)
        if found == "decimal" and size and int(size[1]) <= self._TEXT_KEPT:
            return types.Numeric(int(size[1]), int(size[2] or 0))
        kinds: dict[str, ColumnType] = {
            "integer": types.BigInt(),
            "float": types.Double(),
            "boolean": types.Boolean(),
            "binary": types.Bytes(),
            "json": types.JSONB(),
            "uuid": types.UUID(),
        }
        return kinds.get(found, types.Text())
