"""A range of a stream as partitions that can be staged: the engine that stages messages reads and decodes them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.connect.base.event_time import timed_partitions
from ematix_flow.connect.base.stream_source import MESSAGE_OFFSET, PAYLOAD, VALUE, format_payloads, from_text
from ematix_flow.plan.columns import CORRUPT, LINES, POSITION
from ematix_flow.run.read.arrival import Arrival, order_of
from ematix_flow.run.read.file_partitions import FilePartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.base.stream_source import MessagePartition, StreamSource
    from ematix_flow.connect.formats.decoders import Decoder
    from ematix_flow.plan.steps import OffsetRange

METADATA_TYPES = {"text": pa.string(), "integer": pa.int64(), "timestamp_tz": pa.timestamp("us", tz="UTC")}
"""Types of the columns that messages have besides their payload."""


@dataclass(frozen=True, slots=True)
class MessageRange:
    """The messages between two positions, and how they become rows."""

    source: StreamSource
    offsets: OffsetRange
    decoder: Decoder
    metadata_columns: tuple[str, ...] = ()
    """Columns that are requested besides those of the payload."""
    ordered: bool = False
    """Whether rows have columns for their position in the stream."""

    @property
    def order(self) -> tuple[str, ...]:
        """Return the columns of a row's position."""
        return order_of(self._line) if self.ordered else ()

    @property
    def _line(self) -> str:
        """Return the column of the line, where there are rows of several that need an order among each other."""
        one = self.source.has_one_line(from_text(self.offsets.begin), from_text(self.offsets.end))
        return self.source.line if self.ordered and not one else ""

    @property
    def columns(self) -> tuple[SourceColumn, ...]:
        """Return the columns of the rows; fields of a payload go before the metadata columns of its message."""
        return (*self.decoder.columns, *self._more())

    def _more(self) -> tuple[SourceColumn, ...]:
        own = self.decoder.schema.names
        return tuple(c for c in self.source.columns if c.name in self.metadata_columns and c.name not in own)

    @property
    def schema(self) -> pa.Schema:
        """Return the layout of the tables that partitions return."""
        text_columns = [PAYLOAD, CORRUPT, POSITION] if self.decoder.format in LINES else [POSITION]
        more = [pa.field(column.name, METADATA_TYPES[column.family]) for column in self._more()]
        more += [pa.field(name, pa.int64()) for name in self.order]
        return pa.schema(
            [*self.decoder.schema, *more, *(pa.field(text_column, pa.string()) for text_column in text_columns)]
        )

    def partitions(self) -> list[FilePartition]:
        """Return the partitions; each can be read again and returns the same rows."""
        begin, end = from_text(self.offsets.begin), from_text(self.offsets.end)
        line = self._line
        more = [column.name for column in self._more()]
        names = list(dict.fromkeys([*more, *([line] if line else []), *self.decoder.metadata]))
        read = partial(_rows, decoder=self.decoder, schema=self.schema)
        return [
            FilePartition(
                partition.label, partition.size, partial(read, partition, (number, line) if self.ordered else None)
            )
            for number, partition in enumerate(timed_partitions(self.source, begin, end, names, cut=not line))
        ]


def metadata_arrays(columns: Sequence[SourceColumn], rows: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
    """Return those columns of messages that any of some stored rows has, in their types."""
    return {
        column.name: pa.array([_as_text(row.get(column.name)) for row in rows]).cast(METADATA_TYPES[column.family])
        for column in columns
        if any(column.name in row for row in rows)
    }


def _as_text(value: Any) -> str | None:
    return None if value is None else str(value)


def _rows(
    partition: MessagePartition, arrival_key: tuple[int, str] | None, decoder: Decoder, schema: pa.Schema
) -> Iterator[pa.Table]:
    """Return the messages of a partition as rows; an unreadable payload is marked, a missing one is no row."""
    arrival = Arrival(*arrival_key) if arrival_key is not None else None
    for read in partition.read():
        messages = read if arrival is None else arrival.numbered(read)
        there = messages.filter(pc.is_valid(messages.column(VALUE))) if decoder.tombstones else messages
        if not there.num_rows:
            continue
        decoded = decoder.decode_messages(there)
        if decoded.messages is not None and decoded.messages != list(range(there.num_rows)):
            there = there.take(pa.array(decoded.messages, pa.int64()))
        payloads = there.column(VALUE)
        columns = dict(zip(decoder.schema.names, decoded.columns, strict=True))
        columns[CORRUPT] = pa.array(decoded.wrong, pa.string())
        always = decoder.replays_messages
        columns[PAYLOAD] = format_payloads(payloads) if always else _rejected_payloads(payloads, decoded.wrong)
        columns[POSITION] = there.column(MESSAGE_OFFSET)
        arrays = [columns[field.name] if field.name in columns else there.column(field.name) for field in schema]
        yield pa.table([_as(array, field.type) for array, field in zip(arrays, schema, strict=True)], schema=schema)


def _rejected_payloads(payloads: pa.ChunkedArray, wrong: Sequence[str | None]) -> pa.ChunkedArray | pa.Array:
    """Return the payloads of messages that could not be read."""
    if not any(wrong):
        return pa.nulls(len(wrong), pa.string())
    is_wrong = pa.array([bool(error) for error in wrong])
    return format_payloads(pc.if_else(is_wrong, pc.fill_null(payloads, b""), pa.scalar(None, pa.binary())))


def _as(array: pa.Array, target_type: pa.DataType) -> pa.Array:
    return array if array.type == target_type else pc.cast(array, target_type)
