"""Types of existing columns that no declaration spells: what carries their values, and how the database casts them; it runs nothing.

A value of such a type is carried by a declared type that holds all of its values, or else as text. The database itself
makes its own value of it when the load is applied, so a value that the type does not have is refused there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ematix_flow.declare.table import types

if TYPE_CHECKING:
    from ematix_flow.declare.table.types import ColumnType

MOST_DIGITS = 38
"""Decimal digits that Arrow carries."""
SIZE = re.compile(r"\s*\((\d+)(?:,\s*(\d+))?\)")
WHOLE = types.Numeric(20, 0)
"""Holds every unsigned number of 64 bits."""
WHOLE_KINDS = ("small_int", "integer", "big_int")
TEXT_KINDS = ("text", "string")


def is_whole(declared: ColumnType) -> bool:
    """Return whether values of a declared type are whole numbers."""
    return declared.kind in WHOLE_KINDS or (declared.kind == "numeric" and getattr(declared, "scale", 0) == 0)


def digits_fit(declared: ColumnType, precision: int, scale: int) -> bool:
    """Return whether a column of so many digits has room for every value of a declared number."""
    if not isinstance(declared, types.Numeric):
        return False
    return declared.scale <= scale and declared.precision - declared.scale <= precision - scale


class ExistingTypes:
    """What a system declares about its own types; this one has none that a load could write."""

    def carried_as(self, native: str, incoming: ColumnType) -> ColumnType | None:
        """Return the declared type that carries values to a column; `incoming` is what the rows have, None refuses."""
        del native, incoming
        return None

    def takes(self, native: str, declared: ColumnType) -> bool:
        """Return whether a column keeps every value of a declared type as it is, or refuses it by itself; Text means any text."""
        del native, declared
        return False

    def typed(self, native: str, value: str) -> str:
        """Return the SQL that makes a carried value one of the type; the value itself where INSERT does so."""
        del native
        return value
