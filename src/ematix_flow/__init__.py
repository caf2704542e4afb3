"""Declarative data pipelines in Python that run on Spark; these are the public names, nothing else."""

import importlib
from typing import TYPE_CHECKING, Annotated, Any

from ematix_flow import connect
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

if TYPE_CHECKING:
    from ematix_flow import _core, config, connections

__version__ = "0.1.0"

_LATER = ("_core", "config", "connections", "pipeline", "testing")
"""Modules that are loaded when they are first asked for: some of them load the engine."""

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
    if name not in _LATER:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return importlib.import_module(f"ematix_flow.{name}")
