"""A table as its spec describes it: the value that `ManagedTable._to_spec()` returns, or its JSON text."""

from __future__ import annotations

import json
from typing import Any

from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import ALL_TYPES
from ematix_flow.errors import DeclareError, did_you_mean


def table_from_spec(spec: str | dict[str, Any]) -> Table:
    """Return the table that a spec describes, as text or as the value that `ManagedTable._to_spec()` returns."""
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
