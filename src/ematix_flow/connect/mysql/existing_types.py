"""Types of existing columns of MySQL that no declaration spells: what carries their values; it runs nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ematix_flow.connect.types.existing import MOST_DIGITS, SIZE, WHOLE, ExistingTypes
from ematix_flow.declare.table import types

if TYPE_CHECKING:
    from ematix_flow.declare.table.types import ColumnType


class MySQLTypes(ExistingTypes):
    """Numbers, text, bytes and points in time of every size; sets, enums and times of day as text."""

    _INTEGER = re.compile(r"(TINY|SMALL|MEDIUM|BIG)?INT(\(\d+\))?( UNSIGNED)?( ZEROFILL)?")
    _DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
    _BEGINS: tuple[tuple[str, ColumnType], ...] = (
        ("YEAR", types.Integer()),
        ("BIT", WHOLE),
        ("DATETIME", types.Timestamp()),
        ("TIMESTAMP", types.TimestampTZ()),
        ("FLOAT", types.Double()),
        ("DOUBLE", types.Double()),
        *((word, types.Bytes()) for word in ("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")),
    )
    _SHAPES = ("GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTI", "GEOMCOLLECTION")

    def carried_as(self, native: str, given: ColumnType) -> ColumnType | None:
        """Carry what has a declared type that holds it; shapes are refused, for they are no text."""
        del given
        upper = native.upper()
        if upper.startswith(self._SHAPES):
            return None
        if self._INTEGER.fullmatch(upper):
            return WHOLE if upper.startswith("BIGINT") and "UNSIGNED" in upper else types.BigInt()
        digits, size = self._DECIMAL.match(upper), SIZE.search(upper)
        if digits and int(digits[1]) <= MOST_DIGITS:
            return types.Numeric(int(digits[1]), int(digits[2]))
        if upper.startswith("CHAR(") and size:
            return types.String(int(size[1]))
        return next((kind for word, kind in self._BEGINS if upper.startswith(word)), types.Text())

    def foreign(self, native: str) -> bool:
        """Return True for times of day, enums, sets, addresses and the UUID of MariaDB."""
        upper = native.upper()
        return upper.startswith(("ENUM(", "SET(", "INET")) or upper == "UUID" or bool(re.match(r"TIME(\(|$)", upper))

    def typed(self, native: str, value: str) -> str:
        """Let a text of digits be a word of an enum or a set and never its number, and no text be cut."""
        if re.match(r"(TINY|MEDIUM)?(TEXT|BLOB)", native.upper()):
            # MariaDB copies a LONGTEXT into a smaller one without a look at its length; what a function gives it checks.
            return f"CONCAT({value})"
        if not native.upper().startswith(("ENUM(", "SET(")):
            return value
        words = native[native.index("(") :]
        number = f"{value} REGEXP '^[0-9]+$' AND {value} NOT IN {words}"
        return f"CASE WHEN {number} THEN CONCAT({value}, ' (a number)') ELSE {value} END"
