"""The table that a frame goes into when none is declared: as it exists, or built from the types of the frame."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.types.from_arrow import narrow_type
from ematix_flow.connect.types.reflected import column_over
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import DeclareError, PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.columns import TableSchema
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.engine.batch.options import Options


def split_name(name: Any) -> tuple[str, str]:
    """Return schema and name of `schema.name`."""
    schema, dot, table = name.partition(".") if isinstance(name, str) else ("", "", "")
    if not (schema and dot and table):
        message = f"{name!r} is no name of a table"
        raise DeclareError(message, hint='write "schema.table".')
    return schema, table


def inferred_table(name: str, layout: pa.Schema, keys: Sequence[str], connection: Any, options: Options) -> Table:
    """Return the table for rows of this layout; where it does not exist, `keys` become its primary key."""
    if not layout.names:
        raise DeclareError("the frame has no columns", hint="write a frame with at least one column.")
    columns = [
        Column(
            narrow_type(field.type), nullable=field.name not in keys, primary_key=field.name in keys, name=field.name
        )
        for field in layout
    ]
    created = Table(*split_name(name), tuple(columns), stamped=False)
    database = target_for(connection, created, session_for(options))
    existing = _existing(database, created)
    return created if existing is None else _over(created, existing, database)


def _existing(database: TargetSystem, table: Table) -> TableSchema | None:
    if not database.exists():
        return None
    with closing(database.session()) as session:
        return database.find_table(session, database.table_name(table.schema, table.name))


def _over(created: Table, existing: TableSchema, database: TargetSystem) -> Table:
    """Return the table with the types and the key that it has; columns that it lacks are drift."""
    there = {column.name: column for column in existing.columns}
    columns = []
    for column in created.columns:
        if column.name not in there:
            columns.append(replace(column, primary_key=False, nullable=True))
            continue
        over = column_over(database, there[column.name], column.type, primary_key=column.name in existing.primary_key)
        if over is None:
            message = f"column {column.name!r} of {created.qualified_name} is {there[column.name].type}, which loads cannot write"
            raise PlanError(message, hint="leave it out of the frame, or give the table a column of another type.")
        columns.append(over)
    return replace(created, columns=tuple(columns))
