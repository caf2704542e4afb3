"""A declared table over one that is there: Text stands for the types that have no declaration; it changes no table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.declare.table.types import Text

if TYPE_CHECKING:
    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.connect.base.columns import FoundTable
    from ematix_flow.declare.table.schema import Column, Table


def over_existing(table: Table, found: FoundTable | None, database: Catalog) -> Table:
    """Return the table with the database's own type for every Text column whose type nothing else could declare."""
    if found is None:
        return table
    natives = {
        column.name: column.base or column.type
        for column in found.columns
        if database.existing.foreign(column.base or column.type)
    }
    if not natives:
        return table
    return replace(table, columns=tuple(_over(column, natives) for column in table.columns))


def _over(column: Column, natives: dict[str, str]) -> Column:
    native = natives.get(column.name, "")
    return replace(column, native=native) if native and column.type == Text() else column
