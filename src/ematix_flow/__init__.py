"""Declarative data pipelines in Python that run on Spark; these are the public names, nothing else.

A name is loaded when it is first asked for: `flow --help` imports this package too and needs none of them.
"""

import importlib
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from ematix_flow import _core, config, connect, connections
    from ematix_flow.declare.connection import (
        BigQueryConnection,
        Connection,
        DeltaLocalConnection,
        DeltaS3Connection,
        DuckDBConnection,
        GlueSchemaRegistryConnection,
        IcebergConnection,
        KafkaConnection,
        KinesisConnection,
        MySQLConnection,
        ObjectStoreLocalConnection,
        ObjectStoreS3Connection,
        PostgresConnection,
        PubSubConnection,
        RabbitMQConnection,
        RedshiftConnection,
        SchemaRegistryConnection,
        SnowflakeConnection,
        SQLiteConnection,
        get_connection,
        register_connection,
        registered_connections,
    )
    from ematix_flow.declare.decorators import ematix
    from ematix_flow.declare.maintenance import Maintenance
    from ematix_flow.declare.pipeline import Source
    from ematix_flow.declare.table import Column, ManagedTable, natural_key, nullable, pk
    from ematix_flow.declare.target import Target
    from ematix_flow.declare.types import (
        JSON,
        JSONB,
        UUID,
        BigInt,
        Boolean,
        Bytes,
        Date,
        Double,
        Float,
        Integer,
        Numeric,
        SmallInt,
        String,
        Text,
        Timestamp,
        TimestampTZ,
    )

__version__ = "0.1.0"

_LATER = ("connect", "_core", "config", "connections", "pipeline", "testing")
"""Public modules; some of them load the engine."""

_PLACES = {
    name: module
    for module, names in {
        "declare.connection": (
            "BigQueryConnection",
            "Connection",
            "DeltaLocalConnection",
            "DeltaS3Connection",
            "DuckDBConnection",
            "GlueSchemaRegistryConnection",
            "IcebergConnection",
            "KafkaConnection",
            "KinesisConnection",
            "MySQLConnection",
            "ObjectStoreLocalConnection",
            "ObjectStoreS3Connection",
            "PostgresConnection",
            "PubSubConnection",
            "RabbitMQConnection",
            "RedshiftConnection",
            "SchemaRegistryConnection",
            "SnowflakeConnection",
            "SQLiteConnection",
            "get_connection",
            "register_connection",
            "registered_connections",
        ),
        "declare.decorators": ("ematix",),
        "declare.maintenance": ("Maintenance",),
        "declare.pipeline": ("Source",),
        "declare.table": ("Column", "ManagedTable", "natural_key", "nullable", "pk"),
        "declare.target": ("Target",),
        "declare.types": (
            "JSON",
            "JSONB",
            "UUID",
            "BigInt",
            "Boolean",
            "Bytes",
            "Date",
            "Double",
            "Float",
            "Integer",
            "Numeric",
            "SmallInt",
            "String",
            "Text",
            "Timestamp",
            "TimestampTZ",
        ),
    }.items()
    for name in names
}
"""Public name -> the module below this one that defines it."""

__all__ = [
    "JSON",
    "JSONB",
    "UUID",
    "Annotated",
    "BigInt",
    "BigQueryConnection",
    "Boolean",
    "Bytes",
    "Column",
    "Connection",
    "Date",
    "DeltaLocalConnection",
    "DeltaS3Connection",
    "Double",
    "DuckDBConnection",
    "Float",
    "GlueSchemaRegistryConnection",
    "IcebergConnection",
    "Integer",
    "KafkaConnection",
    "KinesisConnection",
    "Maintenance",
    "ManagedTable",
    "MySQLConnection",
    "Numeric",
    "ObjectStoreLocalConnection",
    "ObjectStoreS3Connection",
    "PostgresConnection",
    "PubSubConnection",
    "RabbitMQConnection",
    "RedshiftConnection",
    "SQLiteConnection",
    "SchemaRegistryConnection",
    "SmallInt",
    "SnowflakeConnection",
    "Source",
    "String",
    "Target",
    "Text",
    "Timestamp",
    "TimestampTZ",
    "__version__",
    "_core",
    "config",
    "connect",
    "connections",
    "ematix",
    "get_connection",
    "natural_key",
    "nullable",
    "pk",
    "register_connection",
    "registered_connections",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return importlib.import_module(f"ematix_flow.{name}")
    if name not in _PLACES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = globals()[name] = getattr(importlib.import_module(f"ematix_flow.{_PLACES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
