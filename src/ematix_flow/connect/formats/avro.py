"""Messages of Avro with their schema in a registry, read and written by fastavro."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from ematix_flow.connect.formats.avro_schema import added, derived, types_of
from ematix_flow.connect.formats.schema_decoders import SchemaDecoder, SchemaEncoder, require_module, with_values
from ematix_flow.connect.formats.values import text_of
from ematix_flow.connect.schema_registry.base import AVRO
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    import pyarrow as pa

    from ematix_flow.connect.formats.schema_decoders import Reader
    from ematix_flow.connect.schema_registry.base import Schema

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local times of Avro have no zone
_NANOS = 1000

_BROKEN = (EOFError, ValueError, LookupError, ArithmeticError, TypeError, AttributeError, RecursionError, MemoryError)
"""What fastavro raises for bytes that are no record of their schema."""


@dataclass(frozen=True, slots=True)
class AvroDecoder(SchemaDecoder):
    """Records of Avro."""

    format: ClassVar[str] = "avro"
    kind: ClassVar[str] = AVRO

    def reader(self, schema: Schema) -> Reader:
        """Return what reads records of one schema."""
        return _reader(schema)


@lru_cache(maxsize=256)
def _reader(schema: Schema) -> Reader:
    fastavro = _fastavro()
    try:
        parsed = _parsed(schema)
    except _BROKEN as error:
        error_text = f"schema {schema.id} cannot be used: {error}"
        return lambda _: error_text

    def read(body: bytes) -> dict[str, Any] | str:
        stream = io.BytesIO(body)
        try:
            record = fastavro.schemaless_reader(stream, parsed, None)
        except _BROKEN as error:
            return f"not a record of schema {schema.id}: {str(error) or 'it ends too early'}"
        left = len(body) - stream.tell()
        if left:
            return f"not a record of schema {schema.id}: {quantity(left, 'byte')} left over"
        return record if isinstance(record, dict) else f"schema {schema.id} is not of a record"

    return read


def _parsed(schema: Schema) -> Any:
    fastavro = _fastavro()
    named: dict[str, Any] = {}
    for _, text in schema.imports:
        fastavro.parse_schema(json.loads(text), named_schemas=named)
    return fastavro.parse_schema(json.loads(schema.text), named_schemas=named)


@lru_cache(maxsize=1)
def _fastavro() -> Any:
    """Return fastavro, taught the types of newer versions of Avro."""
    fastavro = require_module("fastavro", "avro")
    readers = require_module("fastavro.read", "avro").LOGICAL_READERS
    readers.setdefault("long-timestamp-nanos", lambda at, *_: _from_nanos(at).replace(tzinfo=UTC))
    readers.setdefault("long-local-timestamp-nanos", lambda at, *_: _from_nanos(at))
    readers.setdefault("fixed-uuid", lambda value, *_: UUID(bytes=value))
    return fastavro


def _from_nanos(nanos: int) -> datetime:
    return _EPOCH + timedelta(microseconds=nanos // _NANOS)


@dataclass(frozen=True, slots=True)
class AvroEncoder(SchemaEncoder):
    """Records of Avro for a subject."""

    format: ClassVar[str] = "avro"

    def encode(self, rows: pa.Table) -> list[bytes]:
        """Return a message for each row; columns that the newest schema lacks become optional fields of a newer one."""
        if not rows.num_rows:
            return []
        schema = self._schema(rows)
        parsed = _writing(schema)
        types = types_of(parsed)
        names = [name for name in rows.column_names if name in types]
        write = _fastavro().schemaless_writer
        messages = []
        for row in rows.select(names).to_pylist():
            body = io.BytesIO()
            try:
                write(body, parsed, {name: _encodable(value, types[name]) for name, value in row.items()})
            except _BROKEN as error:
                raise self.unfit(error) from None
            messages.append(self.registry.framed(schema.id, body.getvalue()))
        return messages

    def _schema(self, rows: pa.Table) -> Schema:
        """Return the schema that rows are written with."""
        columns = with_values(rows)
        latest = self.registry.latest(self.subject)
        if latest is None:
            self.refuse_to_register()
            return self.registry.register(self.subject, AVRO, derived(columns, self.subject))
        types = types_of(_writing(latest))
        missing = [field for field in columns if field.name not in types]
        if not missing:
            return latest
        if latest.imports or not self.registry.auto_register:
            self.refuse_missing([field.name for field in missing])
        return self.registry.register(self.subject, AVRO, added(latest.text, missing))


@lru_cache(maxsize=256)
def _writing(schema: Schema) -> Any:
    return _parsed(schema)


def _encodable(value: Any, types: tuple[str, ...]) -> Any:
    """Return a value as fastavro writes it: an instant without a zone is UTC, and a text takes what has a text."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    if value is None or isinstance(value, str) or set(types) - {"null"} != {"string"}:
        return value
    return text_of(value)
