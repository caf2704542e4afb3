"""A declared table over one that is there: which of its types take the values, and what has to be done; it changes no table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.connect.types.reflected import carrier_type
from ematix_flow.declare.pipeline.write import CHANGES
from ematix_flow.errors import DriftError, PlanError
from ematix_flow.plan.sql.ddl import VERSION, create_table_sql, differences
from ematix_flow.plan.steps import EnsureTable

if TYPE_CHECKING:
    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.connect.base.columns import ColumnSchema, TableSchema
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.pipeline.write import Write
    from ematix_flow.declare.table.schema import Column, Table
    from ematix_flow.plan.batch import Inspection
    from ematix_flow.plan.sql.ddl import Difference, TableDefinition


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


def ensure_step(
    table: Table, write: Write, definition: TableDefinition, database: TargetSystem, inspection: Inspection
) -> EnsureTable:
    """Return what has to be done about the target's table, or refuse it as the drift policy requires."""
    if not inspection.target_known:
        return EnsureTable(definition, (create_table_sql(definition, database),), (), None)
    if inspection.existing is None:
        return EnsureTable(definition, (create_table_sql(definition, database),), (), exists=False)
    if inspection.existing.problem:
        message = f"table {table.qualified_name} cannot be loaded safely: {inspection.existing.problem}"
        raise PlanError(message)
    drift = differences(definition, inspection.existing, database)
    own = tuple(d.cure for d in drift if d.cure and write.mode == CHANGES and repr(VERSION.name) in d.text)
    drift = tuple(d for d in drift if d.cure not in own or not d.cure)
    if not table.stamped and write.on_drift == "error":
        return EnsureTable(definition, own, (), exists=True)
    _refuse_drift(table, drift, write)
    cures = tuple(d.cure for d in drift if d.cure) if write.on_drift == "evolve" else ()
    return EnsureTable(definition, (*own, *cures), drift, exists=True)


def _refuse_drift(table: Table, existing: tuple[Difference, ...], write: Write) -> None:
    fatal = [difference for difference in existing if _is_fatal(difference, write.on_drift)]
    if fatal:
        lines = "".join(f"\n  {difference.text}" for difference in fatal)
        message = f"schema drift detected: {table.qualified_name}{lines}"
        raise DriftError(message, hint=_hint(write))


def _hint(write: Write) -> str:
    """Return what can be done about drift: changes of another database have a policy of their own."""
    if write.cdc is None:
        as_it_is = ", 'warn' loads the table as it is" if write.on_drift != "warn" else ""
        return (
            f"change the table or its declaration; on_drift='evolve' adds columns and widens types by itself{as_it_is}."
        )
    if write.cdc.schema_evolution != "evolve":
        return 'change the table or its declaration; schema_evolution="evolve" adds columns and widens types by itself.'
    return (
        'schema_evolution="evolve" adds columns and widens types, and does nothing else: change the type in the table that is '
        "written to, or drop that table and have its rows read again (flow stream rewind NAME --to earliest)."
    )


def _is_fatal(difference: Difference, on_drift: str) -> bool:
    match on_drift:
        case "error":
            return True
        case "evolve":
            return not (difference.cure or difference.harmless)
        case "warn":
            return difference.absent
        case _:
            return False
