"""Creates or widens a target's tables as its plan says; it moves no rows and opens no transaction of its own."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ematix_flow.connect.base.columns import ColumnSchema
from ematix_flow.connect.base.retry import CREATE_LAKE_TABLE, attempts
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.lake.table import LakeTable
from ematix_flow.errors import CommitError
from ematix_flow.plan.metadata_tables import versions_table
from ematix_flow.plan.sql.ddl import ColumnDefinition, TableDefinition, create_table_sql, differences
from ematix_flow.plan.sql.modes.scd2 import points_columns
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.connect.base.columns import TableName
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.stage import StageColumn
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.plan.steps import TargetPlan
    from ematix_flow.records import Counts


def can_simulate(database: Catalog, plan: TargetPlan) -> bool:
    """Return whether a load can be carried out and rolled back, with its table created or widened in the same transaction."""
    return database.capabilities.transactional_ddl or not plan.ensure.statements


def warn_of_drift(plan: TargetPlan) -> None:
    """Warn of a table that is loaded although it differs from its declaration."""
    if plan.commit.write.on_drift == "warn" and plan.ensure.differences:
        texts = "; ".join(difference.text for difference in plan.ensure.differences)
        message = (
            f"table {plan.table_name} differs from its declaration and is loaded as it is (on_drift='warn'): {texts}"
        )
        warnings.warn(message, UserWarning, stacklevel=2)


def warn_of_retained(plan: TargetPlan, counts: Counts) -> None:
    """Warn of a load that left rows in the target which may be absent from the source, because some were rejected."""
    if counts.rejected and plan.commit.program.retaining is not None:
        done = "closed" if plan.commit.write.mode == "scd2" else "deleted"
        message = (
            f"{plan.table_name}: {quantity(counts.rejected, 'row')} of the source became rejects, so no absent key was "
            f"{done}: the next load without rejects does it"
        )
        warnings.warn(message, UserWarning, stacklevel=2)


def expand(database: TargetSystem, session: Session, plan: TargetPlan) -> None:
    """Bring the target up to its plan; statements are idempotent over retries because the plan inspected it first."""
    definition, rows = plan.ensure.wanted, database.data(session)
    if plan.ensure.statements:
        if definition.place.schema:
            database.create_schema(session, definition.place.schema)
        for statement in plan.ensure.statements:
            _ddl(database, rows, statement, definition)
    if plan.commit.load.points is not None and database.capabilities.rolls_back:
        _expand_points(database, session, plan.commit.load.points, points_columns(plan.commit.load))
    rules = plan.commit.load.changes
    if rules is not None and rules.versions is not None:
        _expand_metadata(database, session, versions_table(database))


def _expand_points(
    database: TargetSystem, session: Session, table_name: TableName, columns: Sequence[StageColumn]
) -> None:
    """Create the table of folded events; it is a metadata table, so it follows its target under every drift policy."""
    columns_of = tuple(ColumnDefinition(column, nullable=True) for column in columns)
    _expand_metadata(database, session, TableDefinition(table_name, columns_of, (), ()))


def _expand_metadata(database: TargetSystem, session: Session, table: TableDefinition) -> None:
    existing = database.find_table(session, table.place)
    if existing is not None:
        for difference in differences(table, existing, database):
            if difference.cure:
                _ddl(database, session, difference.cure, table)
        return
    if table.place.schema:
        database.create_schema(session, table.place.schema)
    _ddl(database, session, create_table_sql(table, database), table)


def _created_columns(definition: TableDefinition, database: Catalog) -> list[ColumnSchema]:
    return [ColumnSchema(c.column.name, database.ddl_type(c.column.type), c.nullable) for c in definition.columns]


def _ddl(database: TargetSystem, session: Session, statement: str, definition: TableDefinition) -> None:
    creates = "CREATE" in statement
    plain = creates and not definition.partitions
    if plain and isinstance(database, LakeTable) and database.create_table(_created_columns(definition, database)):
        return
    # A lake table is a folder before it is a table: another run may be creating it.
    may_pass = creates and not database.capabilities.rolls_back
    try:
        for attempt in attempts(CREATE_LAKE_TABLE, on=lambda error: may_pass and database.is_transient(error)):
            with attempt:
                _execute_ddl(database, session, statement, definition if creates else None)
    except database.errors as error:
        message = f"the target's table could not be prepared: {safe_text(error)}"
        raise CommitError(message) from None


def _execute_ddl(database: TargetSystem, session: Session, statement: str, created: TableDefinition | None) -> None:
    try:
        session.execute(statement)
    except database.errors:
        # A concurrent run, or a statement that outlived its run, may be creating the same table.
        if created is None or database.find_table(session, created.place) is None:
            raise
