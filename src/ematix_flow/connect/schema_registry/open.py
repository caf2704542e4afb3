"""Opens the schema registry that a connection names; it is not contacted yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.schema_registry.confluent import confluent_registry, registry_at
from ematix_flow.declare.connection.brokers import GlueSchemaRegistryConnection, SchemaRegistryConnection
from ematix_flow.errors import UnsupportedError

if TYPE_CHECKING:
    from ematix_flow.connect.schema_registry.base import Registry
    from ematix_flow.declare.connection.brokers import KafkaConnection


def registry_of(connection: KafkaConnection) -> Registry:
    """Return the registry of a connection whose references are filled in; it is not contacted yet."""
    registry = connection.schema_registry
    if isinstance(registry, GlueSchemaRegistryConnection):
        from ematix_flow.connect.schema_registry.glue import glue_registry

        return glue_registry(registry)
    if isinstance(registry, SchemaRegistryConnection):
        return confluent_registry(registry)
    if connection.schema_registry_url:
        return registry_at(connection.schema_registry_url, None, register=True)
    message = f"connection {connection.name!r} has payloads of {connection.payload_format}, but no schema registry"
    raise UnsupportedError(message, hint="give schema_registry= a connection, or schema_registry_url= an address.")
