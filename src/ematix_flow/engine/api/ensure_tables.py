"""Creates or widens one declared table outside a load, under the same drift rules as a load."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.config.redact import safe_text
from ematix_flow.declare.pipeline.write import AS_IT_IS, write
from ematix_flow.declare.table.class_body import table_of
from ematix_flow.engine.api.references import reference_to
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import CommitError
from ematix_flow.plan.batch import Inspection
from ematix_flow.plan.existing_tables import ensure_step, over_existing
from ematix_flow.plan.sql.ddl import IS_CURRENT, VALID_FROM, table_definition

if TYPE_CHECKING:
    from ematix_flow.connect.base.columns import TableSchema
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.plan.steps import EnsureTable


def ensure_table(declared: Any, connection: Any, on_drift: str = "error") -> dict[str, Any]:
    """Create a table where it is missing and return the action with the differences; framework columns included."""
    table = table_of(declared)
    rules = write("append", on_drift=on_drift)
    if on_drift == "warn":
        rules = replace(rules, on_drift=AS_IT_IS)  # whoever calls is told the differences, and no row is loaded
    database = target_for(reference_to(connection), table, session_for(Options()))
    session = database.session()
    try:
        existing = database.find_table(session, database.table_name(table.schema, table.name))
        table = over_existing(table, existing, database, on_drift)
        mode = "scd2" if table.features is not None else _mode_of(existing)
        definition = table_definition(table, mode, database)
        inspection = Inspection("", "", "", target_known=True, existing=existing)
        step = ensure_step(table, rules, definition, database, inspection)
        _apply(step, database, session)
    finally:
        session.close()
    return {"action": _action(step), "differences": [difference.text for difference in step.differences]}


def _mode_of(existing: TableSchema | None) -> str:
    """Return the mode to compare for: a table that holds versions is what scd2 made of the declaration."""
    names = {column.name for column in existing.columns} if existing is not None else set()
    return "scd2" if {VALID_FROM.name, IS_CURRENT.name} <= names else "append"


def _action(step: EnsureTable) -> str:
    if not step.exists:
        return "created"
    return "drift" if step.differences else "matched"


def _apply(step: EnsureTable, database: TargetSystem, session: Session) -> None:
    try:
        if step.statements and step.wanted.place.schema:
            database.create_schema(session, step.wanted.place.schema)
        for statement in step.statements:
            database.data(session).execute(statement)
    except database.errors as error:
        message = f"table {step.wanted.place.name} could not be prepared: {safe_text(error)}"
        raise CommitError(message) from None
