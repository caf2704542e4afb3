"""The table that a stream writes to: as declared, as it exists, or built from the first rows."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.connect.base.stream_source import MOST_FIELDS
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.registry import DATABASES, SINKS
from ematix_flow.connect.types.from_arrow import declared_type
from ematix_flow.connect.types.reflected import column_over
from ematix_flow.declare.table.schema import FRAMEWORK_COLUMNS, Column, Table
from ematix_flow.declare.table.types import Text
from ematix_flow.errors import PlanError, usable
from ematix_flow.plan.keys import merge_keys
from ematix_flow.plan.sql.ddl import BATCH_ID, LOADED_AT, SCD2_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.connect.base.columns import TableSchema
    from ematix_flow.declare.stream.stream import Stream, StreamTarget

FOLDER = "files"
"""The schema of tables that are folders of files; the folder's own name is the table's."""


_OF_VERSIONS = frozenset(column.name for column in (*SCD2_COLUMNS, LOADED_AT, BATCH_ID))

UNKNOWN = "unknown"
"""The one column of a table that is created before a single message could be read."""


def name_of(target: StreamTarget) -> tuple[str, str]:
    """Return schema and name of the table that a target is."""
    if target.table_name is not None:
        return target.table_name
    return FOLDER, (target.prefix or "").strip("/").replace("/", ".") or "all"


def table_of(target: StreamTarget, database: Catalog, rows: pa.Schema) -> Table:
    """Return the table that rows of this layout go into, with the columns that a load writes."""
    if target.declared_table is not None:
        return target.declared_table
    schema, name = name_of(target)
    existing = None if target.table_name is None else _existing_table(database, schema, name)
    if existing is None and not _may_create(target, database):
        message = f"table {schema}.{name} does not exist in {target.connection_name!r}"
        hint = "create it, give target_table= a table class, or say create_table=True."
        raise PlanError(message, hint=hint)
    if len(rows) > MOST_FIELDS:
        message = f"the messages of one batch have {len(rows)} different fields, too many for {schema}.{name}"
        raise PlanError(message, hint="declare the table, or choose columns in transform_sql=.")
    if existing is None:
        columns = [_new_column(field, target) for field in rows] or [Column(Text(), name=UNKNOWN)]
    else:
        columns = _there(database, existing, rows, f"{schema}.{name}", target)
    return Table(schema, name, tuple(columns), stamped=target.write.mode == "scd2")


def columns_there(target: StreamTarget, database: Catalog) -> frozenset[str]:
    """Return the names of the columns that a target is declared with or has."""
    if target.declared_table is not None:
        return frozenset(target.declared_table.column_names)
    existing = None if target.table_name is None else _existing_table(database, *target.table_name)
    return frozenset() if existing is None else frozenset(column.name for column in existing.columns)


def key_columns(target: StreamTarget, database: Catalog) -> tuple[str, ...]:
    """Return the columns by which a row of a target is known: as declared, or as its table has them; none without a key."""
    declared = target.declared_table
    if declared is not None:
        return tuple(column.name for column in declared.columns if column.primary_key)
    existing = None if target.table_name is None else _existing_table(database, *target.table_name)
    return _keys(target) or (() if existing is None else tuple(existing.primary_key))


def refuse_without_keys(stream: Stream, target: StreamTarget, database: Catalog | None = None) -> None:
    """Refuse rows that are merged by no key; without `database` as far as the declaration says so."""
    if stream.cdc is not None or target.write.mode not in ("merge", "scd2"):
        return
    if target.declared_table is not None:
        merge_keys(target.declared_table, target.write)
        return
    if database is None or target.table_name is None or target.write.keys or key_columns(target, database):
        return
    if is_there(target, database) or _may_create(target, database):
        message = f"{target.write.spelled} into {'.'.join(target.table_name)} has no keys"
        hint = (
            "say keys=[...], for example the beginning of the window and its groups, or give the table a primary key."
        )
        raise PlanError(message, hint=hint, origin=stream.origin)


def is_there(target: StreamTarget, database: Catalog) -> bool:
    """Return whether the table of a target exists; a folder of files always does."""
    return target.table_name is None or _existing_table(database, *target.table_name) is not None


def with_drift(target: StreamTarget, database: Catalog) -> StreamTarget:
    """Return the target with drift allowed where its undeclared table is built from rows."""
    if target.declared_table is None and _may_create(target, database):
        return replace(target, write=replace(target.write, on_drift="evolve"))
    return target


def creates_columns(target: StreamTarget) -> bool:
    """Return whether the fields of messages become columns of a target."""
    return target.declared_table is None and _creates(target, resolve_connection(target.connection).kind)


def _may_create(target: StreamTarget, database: Catalog) -> bool:
    """Return whether the target begins to exist with the first rows; for databases that has to be declared."""
    return _creates(target, database.kind)


def _creates(target: StreamTarget, kind: str) -> bool:
    return target.create_table or (kind not in DATABASES and kind not in SINKS)


def _existing_table(database: Catalog, schema: str, name: str) -> TableSchema | None:
    if not database.exists():
        return None
    with closing(database.session()) as session:
        return database.find_table(session, database.table_name(schema, name))


def _there(database: Catalog, existing: TableSchema, rows: pa.Schema, table: str, target: StreamTarget) -> list[Column]:
    """Return the columns of a table that rows have a value for; the others get their default.

    Versions and rows that are compared have all of their columns; the load fills those of versions.
    """
    keys = _keys(target) or existing.primary_key
    versions, order_columns = target.write.mode == "scd2", target.write.order_by or ()
    columns = []
    for column in existing.columns:
        if versions and column.name in _OF_VERSIONS:
            continue
        if rows.names and column.name not in rows.names and column.name not in order_columns and not versions:
            continue
        inferred = declared_type(rows.field(column.name).type) if column.name in rows.names else Text()
        written = column_over(database, column, inferred, primary_key=column.name in keys)
        if written is None and not rows.names:
            continue
        if written is None:
            message = f"column {column.name!r} of {table} is {column.type}, which loads cannot write"
            hint = "leave it out with transform_sql=, or give the table a column of another type."
            raise PlanError(message, hint=hint)
        columns.append(written)
    theirs = [name for name in usable(c.name for c in existing.columns) if name not in FRAMEWORK_COLUMNS]
    if not columns and theirs != [UNKNOWN]:
        message = f"the rows have none of the columns of {table}"
        raise PlanError(message, hint=f"the table has: {', '.join(theirs)}.")
    if _may_create(target, database):
        known = {column.name for column in existing.columns}
        columns += [_new_column(field, target) for field in rows if field.name not in known]
    return columns


def _keys(target: StreamTarget) -> tuple[str, ...]:
    """Return the declared key columns of a target; versions require them as a key of the table."""
    return target.primary_key or (target.write.keys or () if target.write.mode == "scd2" else ())


def _new_column(field: pa.Field, target: StreamTarget) -> Column:
    key = field.name in _keys(target)
    return Column(declared_type(field.type), nullable=not key, primary_key=key, name=field.name)
