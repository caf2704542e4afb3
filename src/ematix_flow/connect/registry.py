"""Kinds and the systems behind them; a system is imported when a connection of its kind is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ematix_flow.connect import delta, duckdb, files, iceberg, kafka, kinesis, mysql, postgres, pubsub, rabbitmq, sqlite
from ematix_flow.connect.base.system import DATABASE, FOLDER, LAKE
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.errors import UnsupportedError

if TYPE_CHECKING:
    from ematix_flow.connect.base.database import Database
    from ematix_flow.connect.base.sink import Sink
    from ematix_flow.connect.base.stream_source import StreamSource
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.connect.files.source import Files
    from ematix_flow.connect.lake.source import LakeSource
    from ematix_flow.declare.connection.registry import Connection

SYSTEMS = {
    record.kind: record
    for package in (duckdb, sqlite, postgres, mysql, files, delta, iceberg, kafka, rabbitmq, pubsub, kinesis)
    for record in package.SYSTEMS
}
"""Every kind of connection that loads and streams can use."""

DATABASES = tuple(kind for kind, record in SYSTEMS.items() if record.family == DATABASE)
FILES = tuple(kind for kind, record in SYSTEMS.items() if record.family == FOLDER)
LAKES = tuple(kind for kind, record in SYSTEMS.items() if record.family == LAKE)
STREAMS = tuple(kind for kind, record in SYSTEMS.items() if record.stream_source)
SINKS = tuple(kind for kind, record in SYSTEMS.items() if record.sink)
SOURCES = tuple(kind for kind, record in SYSTEMS.items() if record.source)
TARGETS = tuple(kind for kind, record in SYSTEMS.items() if record.target)


def open_stream(reference: str | Connection, query: str, stream: str = "") -> StreamSource:
    """Return the source of a stream on a connection, for the stream of this name; no connection is made yet."""
    connection = resolve_connection(reference)
    if connection.kind not in STREAMS:
        message = f"connection {connection.name!r} is {connection.kind}, which streams cannot read"
        raise UnsupportedError(message, hint=f"a stream can read: {', '.join(STREAMS)}.")
    record = SYSTEMS[connection.kind]
    source = cast("StreamSource", record.load(record.stream_source)(connection, query))
    if stream:
        source.read_for(stream)
    return source


def open_sink(connection: Connection, destination: str, guarantee: str) -> Sink:
    """Return the topic or queue of a connection that messages are sent to; no connection is made yet."""
    record = SYSTEMS[connection.kind]
    return cast("Sink", record.load(record.sink)(connection, destination, guarantee))


def open_system(reference: str | Connection | None) -> Database | Files | LakeSource:
    """Return the system behind a connection or a connection's name; no connection is made yet."""
    return system_of(resolve_connection("default" if reference is None else reference))


def system_of(connection: Connection) -> Database | Files | LakeSource:
    """Return the system for a connection as it is; a preview may hand in one whose references are not filled in."""
    if connection.kind not in SOURCES:
        message = f"connection {connection.name!r} is {connection.kind}, which batch pipelines cannot use"
        raise UnsupportedError(message, hint=f"batch pipelines can use: {', '.join(SOURCES)}.")
    record = SYSTEMS[connection.kind]
    return cast("Database | Files | LakeSource", record.load(record.source)(connection))


def open_database(reference: str | Connection | None) -> Database:
    """Return the database behind a connection; other systems are refused."""
    connection = resolve_connection("default" if reference is None else reference)
    if connection.kind not in DATABASES:
        message = f"connection {connection.name!r} is {connection.kind}, not a database"
        raise UnsupportedError(message, hint=f"databases are: {', '.join(DATABASES)}.")
    record = SYSTEMS[connection.kind]
    return cast("Database", record.load(record.source)(connection))


def open_target(reference: str | Connection | None, table: tuple[str, str] = ("", "")) -> TargetSystem:
    """Return the system behind a connection that a load writes to; lake tables are opened one by one, by their name."""
    return target_of(resolve_connection("default" if reference is None else reference), table)


def target_of(connection: Connection, table: tuple[str, str] = ("", "")) -> TargetSystem:
    """Return the target for a connection as it is."""
    if connection.kind not in TARGETS:
        message = f"connection {connection.name!r} is {connection.kind}, which batch pipelines cannot write to"
        raise UnsupportedError(message, hint=f"a target can be: {', '.join(TARGETS)}.")
    record = SYSTEMS[connection.kind]
    arguments = (table,) if record.family == LAKE else ()
    return cast("TargetSystem", record.load(record.target)(connection, *arguments))


def kinds_with(mode: str) -> tuple[str, ...]:
    """Return the kinds of targets that can do a mode."""
    return tuple(kind for kind in TARGETS if mode in SYSTEMS[kind].capabilities.modes)


def kinds_that_answer() -> tuple[str, ...]:
    """Return the kinds of targets whose rows can be queried."""
    return tuple(kind for kind in TARGETS if SYSTEMS[kind].capabilities.answers_sql)


def kinds_with_partitions() -> tuple[str, ...]:
    """Return the kinds of targets whose tables can be divided."""
    return tuple(kind for kind in TARGETS if SYSTEMS[kind].capabilities.partition_transforms is not None)
