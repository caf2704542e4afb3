"""How values get into a column that is there already: the declared type with the same DDL, or what carries them.

It queries nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.types.existing import MOST_DIGITS, SIZE
from ematix_flow.declare.table import types
from ematix_flow.declare.table.schema import Column

if TYPE_CHECKING:
    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.connect.base.columns import ColumnSchema
    from ematix_flow.declare.table.types import ColumnType

_PLAIN: tuple[ColumnType, ...] = (
    # Before JSON and UUID: lakes keep all three as text, and a text need not be a UUID.
    types.Text(),
    types.BigInt(),
    types.Integer(),
    types.SmallInt(),
    types.Double(),
    types.Float(),
    types.Boolean(),
    types.TimestampTZ(),
    types.Timestamp(),
    types.Date(),
    types.JSONB(),
    types.JSON(),
    types.Bytes(),
)
_SIZED = ("VARCHAR", "NUMERIC", "DECIMAL", "DECIMALTEXT")


@dataclass(frozen=True, slots=True)
class CarrierType:
    """The declared type that carries values to a column."""

    type: ColumnType
    native: str = ""
    """What the database calls the type, where it is another one and the database has to cast."""


def carrier_type(database: Catalog, column: ColumnSchema, incoming: ColumnType) -> CarrierType | None:
    """Return how values of type `incoming` get into a column; None where no load can write it."""
    native = column.base or column.type
    plain = (*_PLAIN, types.UUID()) if native.upper() == "UUID" else _PLAIN
    for candidate in (*_sized(native), *plain):
        if database.same_type(native, database.ddl_type(candidate)):
            return CarrierType(candidate, column.base)
    carried = database.existing.carried_as(native, incoming)
    return None if carried is None else CarrierType(carried, native)


def mirrored_type(database: Catalog, column: ColumnSchema) -> ColumnType:
    """Return the type of a column that mirrors one of a database; what no other system has is a text."""
    carrier = carrier_type(database, column, types.Text())
    return types.Text() if carrier is None or (carrier.native and not column.base) else carrier.type


def column_over(database: Catalog, column: ColumnSchema, incoming: ColumnType, *, primary_key: bool) -> Column | None:
    """Return the declared column for values of type `incoming` in one that is there; None where no load can write it."""
    kind = carrier_type(database, column, incoming)
    if kind is None:
        return None
    nullable = column.nullable and not primary_key
    return Column(kind.type, nullable, primary_key=primary_key, name=column.name, native=kind.native)


def _sized(native: str) -> tuple[ColumnType, ...]:
    size, base = SIZE.search(native), SIZE.sub("", native).upper()
    if size is None or base not in _SIZED or not int(size[1]):
        return ()
    first, second = int(size[1]), int(size[2] or 0)
    if base == "VARCHAR":
        return (types.String(first),)
    return (types.Numeric(first, second),) if second <= first <= MOST_DIGITS else ()
