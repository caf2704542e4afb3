"""What a pipeline's function gave as its source, as a value; nothing is read here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.types.frames import arrow_table, is_frame
from ematix_flow.declare.pipeline.pipeline import Source, connection_reference
from ematix_flow.errors import DeclareError, DeclareTypeError
from ematix_flow.plan.sql.render import listed, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.connect.base.columns import TableName
    from ematix_flow.declare.connection.registry import Connection

FILE_KINDS = ("object_store_local", "object_store_s3", "object_store_gcs", "object_store_azure")


LAKE_KINDS = ("delta_local", "delta_s3", "iceberg")


@dataclass(frozen=True, slots=True)
class SourceValue:
    """The source of one run: SQL on a connection, files below one, or rows in memory."""

    connection: str | Connection | None
    sql: str = ""
    table: tuple[str, str] | None = None
    columns: tuple[str, ...] | None = None
    path: str = ""
    frame: Any = None
    result: Mapping[str, Any] | None = None
    """A dict that the function returned instead of a source; it is handed back and nothing is loaded."""
    options: Mapping[str, Any] = field(default_factory=dict)
    connections: Mapping[str, str | Connection] = field(default_factory=dict)
    """The connections of a query over several of them, by their aliases in it."""
    shaped: bool = False
    """Whether the rows in memory went through the pipeline before, and are in the shape of the target."""


def source_value(
    returned: Any, connection: str | Connection | None, source_table: str | None, kind: str
) -> SourceValue:
    """Return the source for what the function returned; `kind` is the kind of the source connection."""
    if isinstance(returned, dict):
        return SourceValue(connection, result=returned)
    if isinstance(returned, Source):
        return _from_source(returned)
    if returned is None and source_table is not None:
        schema, _, name = source_table.rpartition(".")
        if kind in FILE_KINDS:
            return SourceValue(connection, path=source_table)
        return SourceValue(connection, table=(schema, name))
    if isinstance(returned, str):
        if kind in FILE_KINDS and not _is_query(returned):
            return SourceValue(connection, path=returned)
        if kind in LAKE_KINDS and not _is_query(returned):
            return SourceValue(connection, table=_lake_table(returned))
        return SourceValue(connection, sql=_checked_query(returned, "the pipeline's function returned"))
    if is_frame(returned):
        # Once: what a frame is made of may be read a single time, or be computed anew each time.
        return SourceValue(connection, frame=arrow_table(returned))
    message = f"the pipeline's function returned {type(returned).__name__}"
    hint = "return SQL text, a Source, a DataFrame (Spark, pandas, polars, pyarrow or any other), or None with source_table=."
    raise DeclareTypeError(message, hint=hint)


def _from_source(source: Source) -> SourceValue:
    if source.connections:
        query = _checked_query(source.query or "", "the Source has")
        return SourceValue(None, sql=query, connections=source.connections)
    connection = connection_reference("Source(connection)", source.connection)
    if source.query is not None:
        return SourceValue(connection, sql=_checked_query(source.query, "the Source has"), options=source.options)
    if source.table is not None:
        return SourceValue(connection, table=source.table, columns=source.columns, options=source.options)
    return SourceValue(connection, path=source.path or "", options=source.options)


def _checked_query(text: str, who: str) -> str:
    query = text.strip().rstrip(";")
    if not query.strip():
        message = f"{who} empty text instead of a query"
        raise DeclareError(message, hint="return a SELECT, or None together with source_table=.")
    return query


def _is_query(text: str) -> bool:
    tokens = text.lstrip().split(None, 1)
    return bool(tokens) and tokens[0].lower() in ("select", "with", "from", "values", "(")


def _lake_table(text: str) -> tuple[str, str]:
    """Return schema and name of a table of a lake by its folder, `schema/name`, or by its name, `schema.name`."""
    named = text.strip().strip("/")
    parts = named.split("/") if "/" in named else named.split(".")
    if len(parts) > 2 or not all(parts) or any(character in named for character in "*?["):  # noqa: PLR2004 - schema and name
        message = f"the pipeline's function returned {text!r}, which is no table of a lake"
        raise DeclareError(message, hint="return the folder of one table, such as 'shop/orders', or a SELECT.")
    return ("", parts[0]) if len(parts) == 1 else (parts[0], parts[1])


def table_query(table_name: TableName, columns: tuple[str, ...] | None) -> str:
    """Return canonical SQL for a source table; a column map is applied by the shape."""
    table = f"{quoted(table_name.schema)}.{quoted(table_name.name)}" if table_name.schema else quoted(table_name.name)
    return f"SELECT {listed(columns) if columns else '*'} FROM {table}"
