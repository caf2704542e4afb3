"""A declared table over one that is there: which of its types take the declared values as they are; it changes no table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.connect.types.reflected import carrier_type

if TYPE_CHECKING:
    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.connect.base.columns import ColumnSchema, TableSchema
    from ematix_flow.declare.table.schema import Column, Table


def over_existing(table: Table, existing: TableSchema | None, database: Catalog, on_drift: str) -> Table:
    """Return the table with the database's own type for every column that takes the declared values or refuses each by itself."""
    if existing is None:
        return table
    have = {column.name: column for column in existing.columns}
    keyed = {*table.primary_key, *(name for group in table.unique_constraints for name in group)}

    def over(column: Column) -> Column:
        there = have.get(column.name)
        if there is None or column.native:
            return column
        wanted = database.ddl_type(column.type, in_key=column.name in keyed)
        if on_drift == "evolve" and database.widening(there.type, wanted):
            return column
        return replace(column, native=_native(column, there, wanted, database))

    return replace(table, columns=tuple(map(over, table.columns)))


def _native(column: Column, there: ColumnSchema, wanted: str, database: Catalog) -> str:
    """Return what the database calls a type that is not the declared one and takes its values; empty for every other."""
    if database.same_type(there.type, wanted):
        return ""
    kind = carrier_type(database, there, column.type)
    if kind is None or not kind.native:
        return ""
    takes = database.same_type(kind.native, wanted) or database.existing.takes(kind.native, column.type)
    return kind.native if takes else ""
