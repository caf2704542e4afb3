"""The streams of a replication: one for each table that the source has now, with the columns that the table has there."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.change_log.source import ChangeLogSource
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.registry import open_database, open_stream
from ematix_flow.connect.types.reflected import mirrored_type
from ematix_flow.declare.connection.change_logs import MySQLCDCConnection, PostgresCDCConnection
from ematix_flow.declare.connection.databases import MySQLConnection, PostgresConnection
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import TimestampTZ
from ematix_flow.errors import FlowError, PlanError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ematix_flow.connect.base.columns import TableSchema
    from ematix_flow.connect.base.database import Database
    from ematix_flow.connect.change_log.tables import TableId
    from ematix_flow.declare.connection.base import Connection
    from ematix_flow.declare.stream.replication import Replication
    from ematix_flow.declare.stream.stream import Stream

LOG = "append"

_FOLDING = ("sqlite", "duckdb")
"""Kinds of targets to which names that differ in case are one."""


def streams_of(replication: Replication) -> list[Stream]:
    """Return a stream for every table that is there; a table without a primary key is refused."""
    try:
        log, database = _sides(replication)
        with closing(_opened(log, replication)) as source:
            tables, unlogged = source.tables(), source.unlogged_columns()
        if not tables:
            message = f"{replication.tables!r} names no table of {source.name!r}"
            raise PlanError(message, hint="create one, or name others.")
        _refuse_shared(replication, tables)
        return [_stream(replication, log, database, table, unlogged.get(table, frozenset())) for table in tables]
    except FlowError as error:
        raise error.at(replication.origin) from None


def _refuse_shared(replication: Replication, tables: Sequence[TableId]) -> None:
    """Refuse two tables with one mirror, in which each would overwrite the rows of the other."""
    mirrors: dict[tuple[str, str], TableId] = {}
    folds = resolve_connection(replication.into).kind in _FOLDING
    for table in tables:
        mirror = _mirror_name(replication, table)
        known = (mirror[0].casefold(), mirror[1].casefold()) if folds else mirror
        if known in mirrors:
            message = f"{mirrors[known]} and {table} would both be mirrored into {'.'.join(mirror)}"
            hint = "leave schema= out, so that each goes into the schema of its own, or declare two replications."
            raise PlanError(message, hint=hint)
        mirrors[known] = table


def stream_name(replication: Replication, table: TableId) -> str:
    """Return the name of the stream that mirrors a table."""
    return f"{replication.name}.{table}"


def _sides(replication: Replication) -> tuple[Connection, Database]:
    """Return the source as a log that is read and as a database that is queried; a connection of either kind gives both."""
    connection = resolve_connection(replication.source)
    match connection:
        case PostgresConnection(name=name, url=url):
            return PostgresCDCConnection(name, url=url, origin=connection.origin), open_database(connection)
        case MySQLConnection(name=name, url=url):
            return MySQLCDCConnection(name, url=url, origin=connection.origin), open_database(connection)
        case PostgresCDCConnection(name=name, url=url):
            return connection, open_database(PostgresConnection(name, url=url, origin=connection.origin))
        case MySQLCDCConnection(name=name, url=url):
            return connection, open_database(MySQLConnection(name, url=url, origin=connection.origin))
    message = f"connection {connection.name!r} is {connection.kind}, which has no log of changes"
    raise UnsupportedError(message, hint="a replication reads postgres, postgres_cdc, mysql and mysql_cdc.")


def _opened(log: Connection, replication: Replication) -> ChangeLogSource:
    source = open_stream(log, replication.tables, replication.name)
    assert isinstance(source, ChangeLogSource)  # noqa: S101 - both kinds of connections have such a source
    return source


def _stream(
    replication: Replication,
    log: Connection,
    database: Database,
    table: TableId,
    unlogged: Collection[str] = (),
) -> Stream:
    keywords: dict[str, Any] = {
        "name": stream_name(replication, table),
        "source": log,
        "source_query": str(table),
        "target_connection": replication.into,
        "target_table": _mirror(replication, database, table, unlogged),
        "cdc": replication.cdc,
        "transform_on_error": replication.transform_on_error,
    }
    if replication.mode != "scd1":
        keywords["mode"] = replication.mode
    if replication.mode == LOG:
        keywords["target_primary_key"] = _schema(database, table).primary_key
    stream = stream_from_keywords(keywords, replication.origin)
    # What the source has now is not what a mirror of earlier days has: its own policy decides about the difference.
    return replace(stream, targets=tuple(replace(target, as_it_is=True) for target in stream.targets))


def _mirror(replication: Replication, database: Database, table: TableId, unlogged: Collection[str]) -> Table:
    """Return the table that mirrors what the log has of one, with a column for deleted rows; types that no target has become texts."""
    existing, columns, soft = _schema(database, table), [], replication.cdc.soft_column
    _refuse_unlogged_key(table, existing, unlogged)
    for column in existing.columns:
        if column.name in unlogged:
            continue
        is_key = column.name in existing.primary_key and replication.mode != LOG  # which has many rows of a key
        columns.append(
            Column(mirrored_type(database, column), nullable=not is_key, primary_key=is_key, name=column.name)
        )
    if soft is not None and soft not in {column.name for column in columns}:
        columns.append(Column(TimestampTZ(), nullable=True, name=soft))
    return Table(*_mirror_name(replication, table), tuple(columns))


def _refuse_unlogged_key(table: TableId, existing: TableSchema, unlogged: Collection[str]) -> None:
    """Refuse a table of whose key the log lacks a part: rows that differ only there would overwrite each other."""
    lacking = [name for name in existing.primary_key if name in unlogged]
    if lacking:
        message = f"the log of {table} does not have {', '.join(lacking)} of its primary key, which the server computes"
        raise PlanError(message, hint="leave the table out: name the others in tables=.")


def _mirror_name(replication: Replication, table: TableId) -> tuple[str, str]:
    return replication.schema or table.schema, table.name


def _schema(database: Database, table: TableId) -> TableSchema:
    with closing(database.session()) as session:
        existing = database.find_table(session, database.table_name(table.schema, table.name))
    if existing is None or not existing.primary_key:
        message = f"table {table} has no primary key, by which the rows of a mirror are known"
        raise PlanError(message, hint="give it one, or leave it out: name the others in tables=.")
    return existing
