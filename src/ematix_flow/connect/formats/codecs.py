"""Payload formats with schemas and what reads and writes them; a format is imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.connect.schema_registry.open import registry_of
from ematix_flow.errors import UnsupportedError, did_you_mean

if TYPE_CHECKING:
    from ematix_flow.connect.base.stream_source import StreamSource
    from ematix_flow.connect.formats.schema_decoders import SchemaDecoder, SchemaEncoder
    from ematix_flow.connect.schema_registry.base import Registry
    from ematix_flow.declare.connection.brokers import KafkaConnection

CODECS = {
    "avro": ("ematix_flow.connect.formats.avro", "AvroDecoder", "AvroEncoder"),
    "protobuf": ("ematix_flow.connect.formats.protobuf", "ProtobufDecoder", "ProtobufEncoder"),
}
"""Payload format -> module, what reads it and what writes it."""


def schema_decoder(source: StreamSource, column_kinds: tuple[tuple[str, str], ...] = ()) -> SchemaDecoder:
    """Return what reads the payloads of a source; `column_kinds` are names of columns with their declared kinds."""
    if source.registry is None:
        message = f"source {source.name!r} has payloads of {source.payload_format}, but no schema registry"
        raise UnsupportedError(message, hint="streams of Kafka have one.")
    return decoder_of(source.payload_format, source.registry, source.name, column_kinds)


def decoder_of(
    payload_format: str, registry: Registry, name: str, column_kinds: tuple[tuple[str, str], ...] = ()
) -> SchemaDecoder:
    """Return what reads payloads of a format whose schemas a registry has; `name` is the connection's."""
    module, decoder, _ = _codec(payload_format, name)
    return cast("SchemaDecoder", _named(module, decoder)(registry, column_kinds))


def schema_encoder(connection: KafkaConnection, topic: str) -> SchemaEncoder:
    """Return what writes payloads for a topic of a connection whose references are filled in."""
    module, _, encoder = _codec(connection.payload_format or "json", connection.name)
    registry = registry_of(connection)
    return cast("SchemaEncoder", _named(module, encoder)(registry, registry.subject_of(topic)))


def _codec(payload_format: str, name: str) -> tuple[str, str, str]:
    if payload_format not in CODECS:
        message = f"connection {name!r} has payloads of {payload_format}, which have no schema"
        raise UnsupportedError(message, hint=did_you_mean(payload_format, CODECS))
    return CODECS[payload_format]


def _named(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)
