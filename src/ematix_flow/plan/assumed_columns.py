"""The assumed columns of a source: of one that cannot be queried, and those that JSON leaves out where they are NULL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.declare.pipeline.normalize import Default, Derive
from ematix_flow.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def optional_keys(target: TargetDeclaration, columns: Sequence[SourceColumn]) -> tuple[SourceColumn, ...]:
    """Return the declared columns that need no value and that no line of JSON was found to have: lines may leave them out.

    One that is nearly a key that nobody asks for is not among them: it is likelier to be spelled otherwise in one place.
    """
    mapped = target.column_map or {}
    declared = {column.name.lower() for column in target.table.columns}
    keys = {column.name.lower() for column in columns}
    free = [
        column.name for column in columns if column.name.lower() not in declared and column.name not in mapped.values()
    ]
    left_out = []
    for column in target.table.columns:
        has_default = any(isinstance(step, Default) for step in column.normalizers)
        is_computed = column.name in mapped or any(isinstance(step, Derive) for step in column.normalizers)
        if column.name.lower() in keys or is_computed or not (column.nullable or has_default):
            continue
        if nearest(column.name, free) is None:
            left_out.append(SourceColumn(column.name, "text", "string"))
    return tuple(left_out)
