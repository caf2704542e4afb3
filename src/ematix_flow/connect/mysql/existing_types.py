"""Types of existing columns of MySQL that no declaration spells: what carries their values; it runs nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ematix_flow.connect.types.existing import (
    MOST_DIGITS,
    SIZE,
    TEXT_KINDS,
    WHOLE,
    ExistingTypes,
    digits_fit,
    is_whole,
)
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
        *((prefix, types.Bytes()) for prefix in ("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")),
    )
    _ACCEPTED: tuple[tuple[str, tuple[str, ...]], ...] = (
        (r"(TINY|MEDIUM|LONG)?TEXT|CHAR\(\d+\)", TEXT_KINDS),
        (r"DATETIME(\(\d\))?", ("timestamp", "timestamp_tz")),
        (r"TIMESTAMP(\(\d\))?", ("timestamp_tz",)),
        (r"(TINY|MEDIUM|LONG)?BLOB|(VAR)?BINARY\(\d+\)", ("bytes",)),
        (r"FLOAT UNSIGNED", ("float",)),
        (r"DOUBLE UNSIGNED", ("float", "double")),
    )
    """Shapes of types, and the declared ones whose values they keep or refuse."""
    _SIGNED_BITS = 64
    """Bits of a number whose sign would be lost."""
    _SHAPES = ("GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTI", "GEOMCOLLECTION")

    def carried_as(self, native: str, incoming: ColumnType) -> ColumnType | None:
        """Carry what has a declared type that holds it; shapes are refused, for they are no text."""
        del incoming
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
        return next((kind for prefix, kind in self._BEGINS if upper.startswith(prefix)), types.Text())

    def takes(self, native: str, declared: ColumnType) -> bool:
        """Return True where the server keeps a value or refuses it; what it would round or pad is compared first."""
        upper, kind = native.upper(), declared.kind
        if upper.startswith(("ENUM(", "SET(", "INET")) or upper == "UUID" or re.match(r"TIME(\(|$)", upper):
            return kind == "text"
        digits, bits = self._DECIMAL.match(upper), re.fullmatch(r"BIT\((\d+)\)", upper)
        if digits:
            return digits_fit(declared, int(digits[1]), int(digits[2]))
        if bits:
            return (bits[1] == "1" and kind == "boolean") or (int(bits[1]) < self._SIGNED_BITS and is_whole(declared))
        if self._INTEGER.fullmatch(upper) or upper.startswith("YEAR"):
            return is_whole(declared)
        return kind in next((kinds for shape, kinds in self._ACCEPTED if re.fullmatch(shape, upper)), ())

    def typed(self, native: str, value: str) -> str:
        """Let a text of digits be a word of an enum or a set and never its number, and no value be cut, rounded or padded."""
        upper = native.upper()
        rounded = re.match(r"(DATETIME|TIMESTAMP)(\(\d\))?$", upper)
        if rounded:
            more = f"CAST(CONCAT({value}, ' has more digits') AS DATETIME(6))"
            same = f"{value} IS NULL OR {value} = CAST({value} AS DATETIME{rounded[2] or ''})"
            return f"CASE WHEN {same} THEN {value} ELSE {more} END"
        if upper.startswith("YEAR"):
            # Two digits would be given a century.
            return f"CASE WHEN {value} BETWEEN 1 AND 99 THEN {value} + 10000 ELSE {value} END"
        padded = re.fullmatch(r"BINARY\((\d+)\)", upper)
        if padded:
            longer = f"CONCAT({value}, REPEAT('-', {padded[1]} + 1))"
            return f"CASE WHEN LENGTH({value}) < {padded[1]} THEN {longer} ELSE {value} END"
        if re.match(r"(TINY|MEDIUM)?(TEXT|BLOB)", upper):
            # MariaDB copies a LONGTEXT into a smaller one without a check of its length; what a function returns is
            # checked.
            return f"CONCAT({value})"
        if not upper.startswith(("ENUM(", "SET(")):
            return value
        labels = native[native.index("(") :]
        number = f"{value} REGEXP '^[0-9]+$' AND {value} NOT IN {labels}"
        return f"CASE WHEN {number} THEN CONCAT({value}, ' (a number)') ELSE {value} END"
