"""Messages of Protobuf with their schema in a registry, read and written with classes made from that schema."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.formats.protobuf_schema import SchemaTextError, compiled, derived
from ematix_flow.connect.formats.protobuf_values import values_of
from ematix_flow.connect.formats.schema_decoders import SchemaDecoder, SchemaEncoder, require_module, with_values
from ematix_flow.connect.formats.values import text_of, tree
from ematix_flow.connect.schema_registry.base import PROTOBUF

if TYPE_CHECKING:
    import pyarrow as pa

    from ematix_flow.connect.formats.protobuf_schema import Messages
    from ematix_flow.connect.formats.schema_decoders import Reader
    from ematix_flow.connect.schema_registry.base import Schema

DEEPEST = 100
"""Messages inside messages; protobuf reads no deeper."""


@dataclass(frozen=True, slots=True)
class ProtobufDecoder(SchemaDecoder):
    """Messages of Protobuf."""

    format: ClassVar[str] = "protobuf"
    kind: ClassVar[str] = PROTOBUF

    def reader(self, schema: Schema) -> Reader:
        """Return what reads messages of one schema."""
        return _reader(schema)


@lru_cache(maxsize=256)
def _reader(schema: Schema) -> Reader:
    try:
        messages = compiled(schema)
    except SchemaTextError as error:
        error_text = f"schema {schema.id} cannot be used: {error}"
        return lambda _: error_text
    broken = require_module("google.protobuf.message", "protobuf").DecodeError
    unknown = require_module("google.protobuf.unknown_fields", "protobuf").UnknownFieldSet

    def read(body: bytes) -> dict[str, Any] | str:
        try:
            message_class, start = _type_of(body, messages, schema)
            message = message_class()
            message.ParseFromString(body[start:])
            if len(unknown(message)):
                return f"not a message of schema {schema.id}: it has fields that the schema lacks"
            return values_of(message)
        except (broken, ValueError, IndexError, OverflowError) as error:
            return f"not a message of schema {schema.id}: {error}"

    return read


def _type_of(body: bytes, messages: Messages, schema: Schema) -> tuple[Any, int]:
    """Return the class of a message by what precedes its values, and where those begin."""
    if schema.by_order:
        number, at = _read_varint(body, 0)
        return messages.by_index(number), at
    path, at = _path(body)
    return messages.at(path), at


def _path(body: bytes) -> tuple[tuple[int, ...], int]:
    count, at = _read_varint(body, 0)
    if count == 0:
        return (0,), at
    if count % 2 or count > 2 * DEEPEST:
        raise ValueError("it does not say which message it is")
    path = []
    for _ in range(count // 2):
        number, at = _read_varint(body, at)
        if number % 2:
            raise ValueError("it does not say which message it is")
        path.append(number // 2)  # signs are the last bits
    return tuple(path), at


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends."""
    value = shift = 0
    while True:
        if at >= len(body) or shift > 28:  # noqa: PLR2004 - 32 bits
            raise ValueError("it does not say which message it is")
        value |= (body[at] & 0x7F) << shift
        shift += 7
        at += 1
        if body[at - 1] < 0x80:  # noqa: PLR2004 - the last byte has no such bit
            return value, at


def _encode_varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:  # noqa: PLR2004
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


@dataclass(frozen=True, slots=True)
class ProtobufEncoder(SchemaEncoder):
    """Messages of Protobuf for a subject."""

    format: ClassVar[str] = "protobuf"

    def encode(self, rows: pa.Table) -> list[bytes]:
        """Return a message for each row; a NULL is a field that is not set."""
        if not rows.num_rows:
            return []
        schema, message_class = self._schema(rows)
        head = _encode_varint(compiled(schema).index_of(message_class)) if schema.by_order else b"\0"
        fields = message_class.DESCRIPTOR.fields_by_name
        parse = require_module("google.protobuf.json_format", "protobuf")
        messages = []
        for row in rows.select([name for name in rows.column_names if name in fields]).to_pylist():
            values = {name: _json_value(value, fields[name]) for name, value in row.items() if value is not None}
            try:
                message = parse.ParseDict(values, message_class())
            except (parse.ParseError, ValueError, TypeError, OverflowError) as error:
                raise self.unfit(error) from None
            messages.append(self.registry.framed(schema.id, head + message.SerializeToString(deterministic=True)))
        return messages

    def _schema(self, rows: pa.Table) -> tuple[Schema, Any]:
        """Return the schema that rows are written with, and the class of its first message."""
        columns = with_values(rows)
        schema = self.registry.latest(self.subject)
        if schema is None:
            self.refuse_to_register()
            schema = self.registry.register(self.subject, PROTOBUF, derived(columns, self.subject))
        try:
            message_class = compiled(schema).at((0,))
        except (SchemaTextError, IndexError) as error:
            raise self.unfit(error) from None
        self.refuse_missing([name for name in columns.names if name not in message_class.DESCRIPTOR.fields_by_name])
        return schema, message_class


def _json_value(value: Any, field: Any) -> Any:
    """Return a value as the JSON of Protobuf has it; a text takes what has a text."""
    if field.type == field.TYPE_STRING and not field.is_repeated:
        return text_of(value)
    if field.message_type is not None and field.message_type.full_name == "google.protobuf.Timestamp":
        return text_of(value).removesuffix("Z") + "Z"
    return _named(tree(value))


def _named(value: Any) -> Any:
    """Return numbers as texts, which Protobuf reads as numbers to the last digit."""
    if isinstance(value, dict):
        return {key: _named(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_named(one) for one in value]
    return str(value) if isinstance(value, str) else value
