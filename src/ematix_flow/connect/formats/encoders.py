"""Rows as payloads of messages, in the format that the target's connection names; nothing is sent here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ematix_flow.declare.connection.brokers import KafkaConnection
from ematix_flow.errors import RunError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ematix_flow.declare.connection.registry import Connection

JSON, RAW = "json", "raw_bytes"


class Encoder(Protocol):
    """Turns rows into payloads."""

    format: ClassVar[str]

    def encode(self, rows: pa.Table) -> Sequence[bytes]:
        """Return the payload of each row."""


class JsonEncoder:
    """Objects of JSON; a NULL has no field."""

    format: ClassVar[str] = JSON

    def encode(self, rows: pa.Table) -> Sequence[bytes]:
        """Return each row as an object."""
        from ematix_flow.connect.formats.writers import json_objects

        usual = rows.cast(_usual(rows.schema))
        return [text.encode() for batch in usual.to_batches() for text in json_objects(batch).to_pylist()]


class RawEncoder:
    """The bytes of the only column."""

    format: ClassVar[str] = RAW

    def encode(self, rows: pa.Table) -> Sequence[bytes]:
        """Return the value of each row, text as UTF-8."""
        if rows.num_columns != 1:
            message = f"a payload of raw_bytes is one column, not {rows.num_columns}: {', '.join(rows.column_names)}"
            raise RunError(message, hint="select one column of bytes or text, or set payload_format to 'json'.")
        return [_bytes(value) for value in rows.column(0).to_pylist()]


def encoder_for(connection: Connection, destination: str, usual: str = JSON) -> Encoder:
    """Return what writes payloads for a topic of a connection; `usual` is the format where the connection names none."""
    payload_format = getattr(connection, "payload_format", None) or usual
    match payload_format:
        case "json":
            return JsonEncoder()
        case "raw_bytes":
            return RawEncoder()
        case "avro" | "protobuf" if isinstance(connection, KafkaConnection):
            from ematix_flow.connect.formats.codecs import schema_encoder

            return schema_encoder(connection, destination)
        case other:
            message = f"{destination!r} of connection {connection.name!r} has payloads of {other}, which cannot be written yet"
            raise UnsupportedError(message, hint="json and raw_bytes can.")


def _usual(schema: pa.Schema) -> pa.Schema:
    """Return the columns with instants in the one form that is written in JSON."""
    import pyarrow as pa

    def usual(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(kind):
            return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
        return kind

    return pa.schema([pa.field(field.name, usual(field.type)) for field in schema])


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    message = f"a payload of raw_bytes is bytes or text, not {type(value).__name__}"
    raise RunError(message, hint="cast the column to text.")
