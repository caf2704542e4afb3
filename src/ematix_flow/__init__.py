"""Declarative data pipelines in Python that run on Spark; these are the public names, nothing else.

A name is loaded at its first use: `flow --help` imports this package too and needs none of them.
"""

import importlib
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from ematix_flow import _core, config, connect, connections, streaming
    from ematix_flow.declare.connection.registry import (
        BigQueryConnection,
        Connection,
        DeltaLocalConnection,
        DeltaS3Connection,
        DuckDBConnection,
        GlueSchemaRegistryConnection,
        IcebergConnection,
        KafkaConnection,
        KinesisConnection,
        MySQLCDCConnection,
        MySQLConnection,
        ObjectStoreLocalConnection,
        ObjectStoreS3Connection,
        PostgresCDCConnection,
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
    from ematix_flow.declare.pipeline.pipeline import Source
    from ematix_flow.declare.pipeline.targets import Target
    from ematix_flow.declare.schedule.workflow import AllOf, AnyOf, TriggerOp
    from ematix_flow.declare.stream.cdc import CDC
    from ematix_flow.declare.stream.decorator import run_pipeline, run_streaming_pipeline
    from ematix_flow.declare.stream.options import Lookup, StateStore, Watermark
    from ematix_flow.declare.stream.udf import PythonAggregateUdfHandle, PythonScalarUdfHandle, udaf, udf
    from ematix_flow.declare.stream.windows import Aggregation, Dedupe, Join, Window
    from ematix_flow.declare.table.class_body import Column, ManagedTable, natural_key, nullable, pk
    from ematix_flow.declare.table.maintenance import Maintenance
    from ematix_flow.declare.table.types import (
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
    from ematix_flow.run.transform.udf_batch import apply_udaf_to_batch, apply_udf_to_batch

__version__ = "0.1.0"

_LATER = ("connect", "_core", "config", "connections", "df", "pipeline", "quality", "spark", "streaming", "testing")
"""Public modules; some of them load the engine."""

_MODULE_OF = {
    name: module
    for module, names in {
        "declare.stream.cdc": ("CDC",),
        "declare.connection.registry": (
            "BigQueryConnection",
            "Connection",
            "DeltaLocalConnection",
            "DeltaS3Connection",
            "DuckDBConnection",
            "GlueSchemaRegistryConnection",
            "IcebergConnection",
            "KafkaConnection",
            "KinesisConnection",
            "MySQLCDCConnection",
            "MySQLConnection",
            "ObjectStoreLocalConnection",
            "ObjectStoreS3Connection",
            "PostgresCDCConnection",
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
        "declare.table.maintenance": ("Maintenance",),
        "declare.pipeline.pipeline": ("Source",),
        "declare.stream.windows": ("Aggregation", "Dedupe", "Join", "Window"),
        "declare.stream.options": ("Lookup", "StateStore", "Watermark"),
        "declare.stream.decorator": ("run_pipeline", "run_streaming_pipeline"),
        "declare.table.class_body": ("Column", "ManagedTable", "natural_key", "nullable", "pk"),
        "declare.pipeline.targets": ("Target",),
        "declare.table.types": (
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
        "declare.stream.udf": ("PythonAggregateUdfHandle", "PythonScalarUdfHandle", "udaf", "udf"),
        "declare.schedule.workflow": ("AllOf", "AnyOf", "TriggerOp"),
        "run.transform.udf_batch": ("apply_udaf_to_batch", "apply_udf_to_batch"),
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
    "Dedupe",
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
    "MySQLCDCConnection",
    "MySQLConnection",
    "Numeric",
    "ObjectStoreLocalConnection",
    "ObjectStoreS3Connection",
    "PostgresCDCConnection",
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
    if name not in _MODULE_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = globals()[name] = getattr(importlib.import_module(f"ematix_flow.{_MODULE_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
