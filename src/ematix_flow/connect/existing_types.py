"""Types of existing columns that no declaration spells: what carries their values, and how the database casts them; it runs nothing.

A value of such a type is carried by a declared type that holds all of its values, or else as text. The database itself
makes its own value of it when the load is applied, so a value that the type does not have is refused there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ematix_flow.declare import types

if TYPE_CHECKING:
    from ematix_flow.declare.types import ColumnType

MOST_DIGITS = 38
"""Decimal digits that Arrow carries."""
SIZE = re.compile(r"\s*\((\d+)(?:,\s*(\d+))?\)")
WHOLE = types.Numeric(20, 0)
"""Holds every unsigned number of 64 bits."""


class ExistingTypes:
    """What a system says about its own types; this one has none that a load could write."""

    def carried_as(self, native: str, given: ColumnType) -> ColumnType | None:
        """Return the declared type that carries values to a column; `given` is what the rows have, None refuses."""
        del native, given
        return None

    def foreign(self, native: str) -> bool:
        """Say whether no declared type means such values, so that a table declares Text for them."""
        del native
        return False

    def typed(self, native: str, value: str) -> str:
        """Return the SQL that makes a carried value one of the type; the value itself where INSERT does so."""
        del native
        return value


class DuckDBTypes(ExistingTypes):
    """Small and unsigned integers, and everything else as text that DuckDB casts."""

    _INTEGERS = ("TINYINT", "UTINYINT", "USMALLINT", "UINTEGER")
    _NESTED = re.compile(r"\]$|^(STRUCT|MAP|UNION)\(")

    def carried_as(self, native: str, given: ColumnType) -> ColumnType | None:
        """Carry numbers and points in time as such."""
        del given
        if native in self._INTEGERS:
            return types.BigInt()
        if native == "UBIGINT":
            return WHOLE
        return types.Timestamp() if native.startswith("TIMESTAMP_") else types.Text()

    def foreign(self, native: str) -> bool:
        """Say yes for times of day, intervals, bits, enums, lists, structs and maps."""
        return native in ("TIME", "TIME WITH TIME ZONE", "INTERVAL", "BIT") or bool(
            native.startswith("ENUM(") or self._NESTED.search(native)
        )

    def typed(self, native: str, value: str) -> str:
        """Cast; documents become lists and structs by their own rules, and whole numbers have to be spelled as such."""
        if self._NESTED.search(native):
            document = f"CAST(CAST({value} AS JSON) AS {native})"
            return f"CASE WHEN json_valid({value}) THEN {document} ELSE CAST({value} AS {native}) END"
        if native in ("HUGEINT", "UHUGEINT"):
            spelled = f"regexp_full_match({value}, '[+-]?[0-9]+')"
            value = f"CASE WHEN {spelled} THEN {value} ELSE {value} || ' is no whole number' END"
        return f"CAST({value} AS {native})"


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
        """Say yes for every type that our DDL has no word for: enums, times of day, ranges, arrays, citext and so on."""
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
        """Say yes for times of day, enums, sets, addresses and the UUID of MariaDB."""
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


class SQLiteTypes(ExistingTypes):
    """By affinity, as SQLite itself does; a column without a type takes every value as it is."""

    _TEXT_KEPT = 15
    """Digits that a number of SQLite gives back; a longer one travels as text."""

    def carried_as(self, native: str, given: ColumnType) -> ColumnType | None:
        """Carry values as the column keeps them."""
        from ematix_flow.connect.sqlite_types import family

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


class LakeTypes(ExistingTypes):
    """Small integers, which Spark refuses to cut; what is nested is refused."""

    def carried_as(self, native: str, given: ColumnType) -> ColumnType | None:
        """Carry a byte as the next wider integer."""
        del given
        return types.SmallInt() if native == "TINYINT" else None
