"""Declared types as the types of lake tables, as Spark spells them.

What a lake has no type for is stored as text, and that is reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.types.digits import digits_of
from ematix_flow.connect.types.existing import WHOLE_KINDS, ExistingTypes
from ematix_flow.declare.table import types

if TYPE_CHECKING:
    from ematix_flow.declare.table.types import ColumnType

_TYPES = {
    "small_int": "SMALLINT",
    "integer": "INT",
    "big_int": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "text": "STRING",
    "string": "STRING",
    "json": "STRING",
    "jsonb": "STRING",
    "uuid": "STRING",
    "date": "DATE",
    "timestamp": "TIMESTAMP_NTZ",
    "timestamp_tz": "TIMESTAMP",
    "bytes": "BINARY",
}

_TYPE_NAMES = {"LONG": "BIGINT", "INTEGER": "INT", "SHORT": "SMALLINT", "BYTE": "TINYINT"}
"""Other words for the same types."""


def ddl_type(column_type: ColumnType) -> str:
    """Return the type of a column."""
    if column_type.kind == "numeric":
        precision, scale = digits_of(column_type)
        return f"DECIMAL({precision},{scale})"
    return _TYPES[column_type.kind]


def normal(type_name: str) -> str:
    """Return one word for a type, however it is spelled."""
    upper = type_name.replace(" ", "").upper()
    return _TYPE_NAMES.get(upper, upper)


class LakeTypes(ExistingTypes):
    """Small integers, which Spark refuses to cut; what is nested is refused."""

    def carried_as(self, native: str, incoming: ColumnType) -> ColumnType | None:
        """Carry a byte as the next wider integer."""
        del incoming
        return types.SmallInt() if native == "TINYINT" else None

    def takes(self, native: str, declared: ColumnType) -> bool:
        """Return True for whole numbers over bytes."""
        return native == "TINYINT" and declared.kind in WHOLE_KINDS
