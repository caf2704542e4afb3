"""Brings one declared table into being outside a load, under the same drift rules as a load."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.config.redact import safe_text
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.class_body import table_of
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import ALL_TYPES
from ematix_flow.engine.api.references import reference_to
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import CommitError, DeclareError, did_you_mean
from ematix_flow.plan.batch import Observed, ensure_step
from ematix_flow.plan.existing_tables import over_existing
from ematix_flow.plan.sql.ddl import IS_CURRENT, VALID_FROM, wanted_table

if TYPE_CHECKING:
    from ematix_flow.connect.base.columns import FoundTable
    from ematix_flow.connect.base.database import Database
    from ematix_flow.connect.base.session import Session
    from ematix_flow.plan.steps import EnsureTable


def ensure_table(declared: Any, connection: Any, on_drift: str = "error") -> dict[str, Any]:
    """Create a table where it is missing and give the action with the differences; framework columns included."""
    table = table_of(declared)
    rules = write("append", on_drift=on_drift)
    database = target_for(reference_to(connection), table, session_for(Options()))
    session = database.session()
    try:
        found = database.find_table(session, database.place(table.schema, table.name))
        table = over_existing(table, found, database, on_drift)
        wanted = wanted_table(table, _mode_of(found), database)
        seen = Observed("", "", "", target_known=True, found=found)
        step = ensure_step(table, rules, wanted, database, seen)
        _apply(step, database, session)
    finally:
        session.close()
    return {"action": _action(step), "differences": [difference.text for difference in step.differences]}


def _mode_of(found: FoundTable | None) -> str:
    """Return the mode to compare for: a table that holds versions is what scd2 made of the declaration."""
    names = {column.name for column in found.columns} if found is not None else set()
    return "scd2" if {VALID_FROM.name, IS_CURRENT.name} <= names else "append"


def _action(step: EnsureTable) -> str:
    if not step.exists:
        return "created"
    return "drift" if step.differences else "matched"


def _apply(step: EnsureTable, database: Database, session: Session) -> None:
    try:
        if step.statements and step.wanted.place.schema:
            database.create_schema(session, step.wanted.place.schema)
        for statement in step.statements:
            database.data(session).execute(statement)
    except database.errors as error:
        message = f"table {step.wanted.place.name} could not be prepared: {safe_text(error)}"
        raise CommitError(message) from None


def table_from_spec(spec: str | dict[str, Any]) -> Table:
    """Return the table that a spec describes, as text or as the value that `ManagedTable._to_spec()` gives."""
    fields = json.loads(spec) if isinstance(spec, str) else spec
    try:
        return Table(
            schema=fields["schema"],
            name=fields["name"],
            columns=tuple(_column(column) for column in fields["columns"]),
            unique_constraints=tuple(tuple(names) for names in fields.get("unique_constraints", ())),
        )
    except KeyError as error:
        message = f"a table spec needs {error.args[0]!r}"
        raise DeclareError(message, hint="schema, name and columns; each column has name and type.") from None


def _column(fields: dict[str, Any]) -> Column:
    kinds = {column_type.kind: column_type for column_type in ALL_TYPES}
    given = fields["type"]
    arguments = {"kind": given} if isinstance(given, str) else dict(given)
    kind = arguments.pop("kind")
    if kind not in kinds:
        message = f"column {fields['name']!r} has the unknown type {kind!r}"
        raise DeclareError(message, hint=did_you_mean(str(kind), kinds))
    return Column(
        type=kinds[kind](**arguments),
        nullable=bool(fields.get("nullable", True)),
        primary_key=bool(fields.get("primary_key", False)),
        name=fields["name"],
    )
