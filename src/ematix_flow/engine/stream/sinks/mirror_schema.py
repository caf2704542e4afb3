"""The table of a replication over the mirror that is there; it queries nothing and changes no table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.connect.types.reflected import column_over
from ematix_flow.declare.table.types import BigInt, Double, Float, Integer, Numeric, SmallInt, String, Text
from ematix_flow.plan.existing_tables import over_existing

if TYPE_CHECKING:
    from collections.abc import Collection

    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.connect.base.columns import ColumnSchema, TableSchema
    from ematix_flow.declare.table.schema import Column, Table
    from ematix_flow.declare.table.types import ColumnType

_WIDER = ((BigInt, Integer), (BigInt, SmallInt), (Integer, SmallInt), (Double, Float))


def over_mirror(
    table: Table, existing: TableSchema, database: Catalog, hidden: Collection[str], *, evolves: bool
) -> Table:
    """Return the columns of a mirror as changes are written to them: those that it has, and new ones where it evolves.

    Changes of before may have a column that the source has no more, so the mirror's own are all written.
    """
    declared = {
        column.name: column
        for column in over_existing(table, existing, database, "evolve" if evolves else "error").columns
    }
    written = [
        _over(declared.get(there.name), there, database, evolves=evolves)
        for there in existing.columns
        if there.name not in hidden or there.name in declared
    ]
    columns = [column for column in written if column is not None]
    names = {column.name for column in existing.columns}
    # A key column that the mirror lacks is no column to leave out: the rows of others would be taken for one.
    more = [column for column in table.columns if column.name not in names and (evolves or column.primary_key)]
    return replace(table, columns=(*columns, *more))


def _over(column: Column | None, there: ColumnSchema, database: Catalog, *, evolves: bool) -> Column | None:
    """Return a column as it is there; None for one that the source has no more and that nobody can write."""
    if column is None:
        return column_over(database, there, Text(), primary_key=False)
    column = replace(column, nullable=there.nullable and column.nullable)
    wanted = database.ddl_type(column.type, in_key=column.primary_key)
    if column.native or database.same_type(there.type, wanted):
        return column
    own = column_over(database, there, column.type, primary_key=column.primary_key)
    is_narrow = own is None or database.widening(there.type, wanted) or not holds(own.type, column.type)
    if own is None or (evolves and is_narrow):
        return column  # is widened, or refused
    return replace(own, nullable=column.nullable)


def holds(wide: ColumnType, narrow: ColumnType) -> bool:
    """Return whether a type has every value of another one, so that nothing has to be widened; lakes narrow no column either."""
    match wide, narrow:
        case Numeric(), Numeric():
            return wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale
        case String(), String():
            return wide.length >= narrow.length
        case Text(), String():
            return True
    return (type(wide), type(narrow)) in _WIDER
