"""The assumed columns of a source that cannot be queried: those that the target declares; no promise, a preview."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.base.columns import SourceColumn

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline.pipeline import TargetDeclaration

FAMILIES = {
    "small_int": "integer",
    "integer": "integer",
    "big_int": "integer",
    "float": "float",
    "double": "float",
    "numeric": "decimal",
    "boolean": "boolean",
    "text": "text",
    "string": "text",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_tz": "timestamp_tz",
    "json": "json",
    "jsonb": "json",
    "uuid": "uuid",
    "bytes": "binary",
}
"""Declared kinds and the family of source columns that fits them as they are."""


def assumed_columns(target: TargetDeclaration) -> tuple[SourceColumn, ...]:
    """Return the columns that a source of this target must have, in the families of the declaration."""
    mapped = target.column_map or {}
    columns = {
        mapped.get(c.name, c.name): FAMILIES[c.type.kind]
        for c in target.table.columns
        if mapped.get(c.name, c.name).isidentifier()
    }
    for name in (target.write.event_timestamp_column, target.write.incremental_column):
        if name is not None:
            columns.setdefault(name, "timestamp_tz")
    return tuple(SourceColumn(name, family, "assumed") for name, family in columns.items())
