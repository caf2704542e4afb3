"""Types of existing columns of SQLite that no declaration spells: what carries their values; it runs nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ematix_flow.connect.sqlite.types import family
from ematix_flow.connect.types.existing import SIZE, TEXT_KINDS, WHOLE_KINDS, ExistingTypes, digits_fit
from ematix_flow.declare.table import types

if TYPE_CHECKING:
    from ematix_flow.declare.table.types import ColumnType


class SQLiteTypes(ExistingTypes):
    """By affinity, as SQLite itself does; a column without a type takes every value as it is."""

    _EXACT_DIGITS = 15
    """Digits that a number of SQLite preserves; a longer one travels as text."""

    def carried_as(self, native: str, incoming: ColumnType) -> ColumnType | None:
        """Carry values as the column keeps them."""
        if native == "no type":
            return incoming
        size = SIZE.search(native)
        type_family = family(native)
        if type_family == "decimal" and size and int(size[1]) <= self._EXACT_DIGITS:
            return types.Numeric(int(size[1]), int(size[2] or 0))
        kinds: dict[str, ColumnType] = {
            "integer": types.BigInt(),
            "float": types.Double(),
            "boolean": types.Boolean(),
            "binary": types.Bytes(),
            "json": types.JSONB(),
            "uuid": types.UUID(),
        }
        return kinds.get(type_family, types.Text())

    def takes(self, native: str, declared: ColumnType) -> bool:
        """Return True where SQLite keeps a value as it is.

        What has the affinity of numbers alters text that looks like one.
        """
        size, kind, base_name = SIZE.search(native), declared.kind, SIZE.sub("", native).upper()
        if native == "no type":
            return True
        if base_name in ("DECIMAL", "NUMERIC"):
            digits = (int(size[1]), int(size[2] or 0)) if size else (self._EXACT_DIGITS, getattr(declared, "scale", 0))
            return digits[0] <= self._EXACT_DIGITS and digits_fit(declared, *digits)
        points = {"DATETIME": ("timestamp", "timestamp_tz"), "TIMESTAMP WITH TIME ZONE": ("timestamp_tz",)}
        kinds = {
            "integer": WHOLE_KINDS,
            "float": ("float", "double"),
            "text": TEXT_KINDS if re.search("CHAR|CLOB|TEXT", base_name) else (),
            "boolean": ("boolean",),
            "binary": ("bytes",),
        }
        return kind in points.get(base_name, kinds.get(family(native), ()))
