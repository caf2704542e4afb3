"""Declarative data pipelines in Python that run on Spark; these are the public names, nothing else.

A name is loaded when it is first asked for: `flow --help` imports this package too and needs none of them.
"""

import importlib
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from ematix_flow import _core, config, connect, connections, streaming
    from ematix_flow.declare.cdc import CDC
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
    from ematix_flow.declare.stateful import Aggregation, Join, Window
    from ematix_flow.declare.stream_options import Lookup, StateStore, Watermark
    from ematix_flow.declare.streaming import run_pipeline, run_streaming_pipeline
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
    from ematix_flow.declare.udf import PythonAggregateUdfHandle, PythonScalarUdfHandle, udaf, udf
    from ematix_flow.declare.workflow import AllOf, AnyOf, TriggerOp
    from ematix_flow.run.udf_batch import apply_udaf_to_batch, apply_udf_to_batch

__version__ = "0.1.0"

_LATER = ("connect", "_core", "config", "connections", "pipeline", "quality", "streaming", "testing")
"""Public modules; some of them load the engine."""

_PLACES = {
    name: module
    for module, names in {
        "declare.cdc": ("CDC",),
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
        "declare.stateful": ("Aggregation", "Join", "Window"),
        "declare.stream_options": ("Lookup", "StateStore", "Watermark"),
        "declare.streaming": ("run_pipeline", "run_streaming_pipeline"),
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
        "declare.udf": ("PythonAggregateUdfHandle", "PythonScalarUdfHandle", "udaf", "udf"),
        "declare.workflow": ("AllOf", "AnyOf", "TriggerOp"),
        "run.udf_batch": ("apply_udaf_to_batch", "apply_udf_to_batch"),
    }.items()
    for name in names
}
"""Public name -> the module below this one that defines it."""

__all__ = [
    "CDC",
    "JSON",
    "JSONB",
    "UUID",
    "Aggregation",
    "AllOf",
    "Annotated",
    "AnyOf",
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
    "Join",
    "KafkaConnection",
    "KinesisConnection",
    "Lookup",
    "Maintenance",
    "ManagedTable",
    "MySQLConnection",
    "Numeric",
    "ObjectStoreLocalConnection",
    "ObjectStoreS3Connection",
    "PostgresConnection",
    "PubSubConnection",
    "PythonAggregateUdfHandle",
    "PythonScalarUdfHandle",
    "RabbitMQConnection",
    "RedshiftConnection",
    "SQLiteConnection",
    "SchemaRegistryConnection",
    "SmallInt",
    "SnowflakeConnection",
    "Source",
    "StateStore",
    "String",
    "Target",
    "Text",
    "Timestamp",
    "TimestampTZ",
    "TriggerOp",
    "Watermark",
    "Window",
    "__version__",
    "_core",
    "apply_udaf_to_batch",
    "apply_udf_to_batch",
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
    "run_pipeline",
    "run_streaming_pipeline",
    "streaming",
    "udaf",
    "udf",
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
