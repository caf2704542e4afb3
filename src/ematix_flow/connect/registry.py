"""Kinds and the systems behind them; a system is imported when a connection of its kind is opened."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.errors import MissingExtraError, UnsupportedError

if TYPE_CHECKING:
    from ematix_flow.connect.base.database import Database
    from ematix_flow.connect.base.sink import Sink
    from ematix_flow.connect.base.stream_source import StreamSource
    from ematix_flow.connect.files.source import Files
    from ematix_flow.connect.lake.source import LakeSource
    from ematix_flow.declare.connection.registry import Connection

DATABASES = {
    "duckdb": ("ematix_flow.connect.duckdb.database", "DuckDB"),
    "sqlite": ("ematix_flow.connect.sqlite.database", "SQLite"),
    "postgres": ("ematix_flow.connect.postgres.database", "Postgres"),
    "mysql": ("ematix_flow.connect.mysql.database", "MySQL"),
}
"""Kind -> module and class of the database."""

FILE_TABLES = {
    "object_store_local": ("ematix_flow.connect.files.table", "FileTables"),
    "object_store_s3": ("ematix_flow.connect.files.s3", "S3Tables"),
    "object_store_gcs": ("ematix_flow.connect.files.gcs", "GcsTables"),
    "object_store_azure": ("ematix_flow.connect.files.azure", "AzureTables"),
}
"""Kind -> module and class of a target that is a folder of files."""

LAKES = {
    "delta_local": ("ematix_flow.connect.delta.table", "Delta"),
    "delta_s3": ("ematix_flow.connect.delta.table", "DeltaS3"),
    "iceberg": ("ematix_flow.connect.iceberg.table", "Iceberg"),
}
"""Kind -> module and class of a lake table."""

LAKE_SOURCES = {
    "delta_local": ("ematix_flow.connect.delta.table", "DeltaSource"),
    "delta_s3": ("ematix_flow.connect.delta.table", "DeltaS3Source"),
    "iceberg": ("ematix_flow.connect.iceberg.table", "IcebergSource"),
}
"""Kind -> module and class of the lake tables that are read."""

FILES = {
    "object_store_local": ("ematix_flow.connect.files.source", "Files"),
    "object_store_s3": ("ematix_flow.connect.files.s3", "S3Files"),
    "object_store_gcs": ("ematix_flow.connect.files.gcs", "GcsFiles"),
    "object_store_azure": ("ematix_flow.connect.files.azure", "AzureFiles"),
}
"""Kind -> module and class of the file system."""


STREAMS = {
    "kafka": ("ematix_flow.connect.kafka.source", "KafkaSource"),
    "rabbitmq": ("ematix_flow.connect.rabbitmq.source", "RabbitMQSource"),
    "pubsub": ("ematix_flow.connect.pubsub.source", "PubSubSource"),
    "kinesis": ("ematix_flow.connect.kinesis.source", "KinesisSource"),
    "object_store_local": ("ematix_flow.connect.files.stream_source", "FileStream"),
    "object_store_s3": ("ematix_flow.connect.files.object_stream_source", "S3FileStream"),
    "object_store_gcs": ("ematix_flow.connect.files.object_stream_source", "GcsFileStream"),
    "object_store_azure": ("ematix_flow.connect.files.object_stream_source", "AzureFileStream"),
    "delta_local": ("ematix_flow.connect.delta.stream_source", "DeltaStream"),
    "delta_s3": ("ematix_flow.connect.delta.stream_source", "DeltaS3Stream"),
    "iceberg": ("ematix_flow.connect.iceberg.stream_source", "IcebergStream"),
}
"""Kind -> module and class of what a stream reads."""


def open_stream(reference: str | Connection, query: str) -> StreamSource:
    """Give the source of a stream on a connection; no connection is made yet."""
    connection = resolve_connection(reference)
    if connection.kind not in STREAMS:
        message = f"connection {connection.name!r} is {connection.kind}, which streams cannot read"
        raise UnsupportedError(message, hint=f"a stream can read: {', '.join(STREAMS)}.")
    return cast("StreamSource", _load(*STREAMS[connection.kind])(connection, query))


SINKS = {
    "kafka": ("ematix_flow.connect.kafka.sink", "KafkaSink"),
    "rabbitmq": ("ematix_flow.connect.rabbitmq.sink", "RabbitMQSink"),
    "pubsub": ("ematix_flow.connect.pubsub.sink", "PubSubSink"),
    "kinesis": ("ematix_flow.connect.kinesis.sink", "KinesisSink"),
}
"""Kind -> module and class of a target that takes messages."""


def open_sink(connection: Connection, place: str, guarantee: str) -> Sink:
    """Give the topic or queue of a connection that messages are sent to; no connection is made yet."""
    return cast("Sink", _load(*SINKS[connection.kind])(connection, place, guarantee))


def open_system(reference: str | Connection | None) -> Database | Files | LakeSource:
    """Give the system behind a connection or a connection's name; no connection is made yet."""
    return system_of(resolve_connection("default" if reference is None else reference))


def system_of(connection: Connection) -> Database | Files | LakeSource:
    """Give the system for a connection as it is; a preview may hand in one whose references are not filled in."""
    known = {**DATABASES, **FILES, **LAKE_SOURCES}
    if connection.kind not in known:
        message = f"connection {connection.name!r} is {connection.kind}, which batch pipelines cannot use"
        raise UnsupportedError(message, hint=f"batch pipelines can use: {', '.join(known)}.")
    return cast("Database | Files | LakeSource", _load(*known[connection.kind])(connection))


def open_database(reference: str | Connection | None) -> Database:
    """Give the database behind a connection; other systems are refused."""
    connection = resolve_connection("default" if reference is None else reference)
    if connection.kind not in DATABASES:
        message = f"connection {connection.name!r} is {connection.kind}, not a database"
        raise UnsupportedError(message, hint=f"databases are: {', '.join(DATABASES)}.")
    return cast("Database", _load(*DATABASES[connection.kind])(connection))


def open_target(reference: str | Connection | None, table: tuple[str, str] = ("", "")) -> Database:
    """Give the system behind a connection that a load writes to; lake tables are opened one by one, by their name."""
    return target_of(resolve_connection("default" if reference is None else reference), table)


def target_of(connection: Connection, table: tuple[str, str] = ("", "")) -> Database:
    """Give the target for a connection as it is."""
    if connection.kind in LAKES:
        return cast("Database", _load(*LAKES[connection.kind])(connection, table))
    known = {**DATABASES, **FILE_TABLES}
    if connection.kind not in known:
        message = f"connection {connection.name!r} is {connection.kind}, which batch pipelines cannot write to"
        raise UnsupportedError(message, hint=f"a target can be: {', '.join({**known, **LAKES})}.")
    return cast("Database", _load(*known[connection.kind])(connection))


def kinds_with(mode: str) -> tuple[str, ...]:
    """Give the kinds of targets that can do a mode, as far as they are installed."""
    kinds = []
    for kind, place in {**DATABASES, **FILE_TABLES, **LAKES}.items():
        with suppress(MissingExtraError):
            if mode in _load(*place).capabilities.modes:
                kinds.append(kind)
    return tuple(kinds)


def kinds_that_answer() -> tuple[str, ...]:
    """Give the kinds of targets that can be asked about their rows, as far as they are installed."""
    kinds = []
    for kind, place in {**DATABASES, **FILE_TABLES, **LAKES}.items():
        with suppress(MissingExtraError):
            if _load(*place).capabilities.answers_sql:
                kinds.append(kind)
    return tuple(kinds)


def kinds_with_partitions() -> tuple[str, ...]:
    """Give the kinds of targets whose tables can be divided."""
    return tuple(kind for kind, place in LAKES.items() if _load(*place).partition_transforms is not None)


def _load(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        message = f"{name} needs the package {error.name!r}, which is not installed"
        raise MissingExtraError(message, hint='pip install "ematix-flow-spark[all]"') from None
