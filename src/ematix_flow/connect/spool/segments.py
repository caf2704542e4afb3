"""The files of a spool: batches of messages as Arrow behind a checked head; what was written is read, nothing is decided."""

from __future__ import annotations

import io
import json
import os
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.base.stream_source import MESSAGE_OFFSET, VALUE
from ematix_flow.errors import StreamLostError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

IDENTITY = "identity"
"""Column by which a message is known when it comes again; empty where the broker has none."""

IDENTITY_BYTES = 16

HEAD = struct.Struct("<4sQIQII")
"""Magic bytes, number of the first message, messages, bytes, checksum of the bytes, checksum of the head before it."""

_MAGIC = b"EFS1"
_HEAD_END = HEAD.size - 4
_LARGEST = 1 << 33
"""Bytes that no batch has; a length above it is no length."""


@dataclass(frozen=True, slots=True)
class SegmentBatch:
    """Where some messages that were written together are."""

    path: str
    first: int
    count: int
    offset: int
    length: int
    """Bytes with the head."""

    @property
    def end(self) -> int:
        """Return the number after the last message."""
        return self.first + self.count


def frame(first: int, messages: pa.Table) -> bytes:
    """Return the bytes of a batch."""
    import pyarrow as pa

    out = io.BytesIO()
    with pa.ipc.new_stream(out, messages.schema) as writer:
        writer.write_table(messages.combine_chunks())
    body = out.getbuffer()
    start = struct.pack("<4sQIQI", _MAGIC, first, messages.num_rows, len(body), zlib.crc32(body))
    return start + struct.pack("<I", zlib.crc32(start)) + body


def batches_in(path: str) -> Iterator[SegmentBatch]:
    """Return the batches of a file up to its end or to the first that is not whole; contents are not inspected."""
    with open(path, "rb") as file:  # noqa: PTH123 - a path that travels to readers is text
        size, offset = os.fstat(file.fileno()).st_size, 0
        while (header := _head(file.read(HEAD.size))) is not None:
            first, count, length, _ = header
            if offset + HEAD.size + length > size:
                return
            yield SegmentBatch(path, first, count, offset, HEAD.size + length)
            offset += HEAD.size + length
            file.seek(offset)


def whole(batch: SegmentBatch) -> bool:
    """Return whether the bytes of a batch are those that were written."""
    with open(batch.path, "rb") as file:  # noqa: PTH123
        file.seek(batch.offset)
        data = file.read(batch.length)
    header = _head(data[: HEAD.size])
    return header is not None and len(data) == batch.length and zlib.crc32(data[HEAD.size :]) == header[3]


def messages_of(batch: SegmentBatch) -> pa.Table:
    """Return the messages of a batch; one that is not what was written is refused."""
    import pyarrow as pa

    with open(batch.path, "rb") as file:  # noqa: PTH123
        file.seek(batch.offset)
        data = file.read(batch.length)
    header = _head(data[: HEAD.size])
    if header is None or zlib.crc32(data[HEAD.size :]) != header[3]:
        message = f"messages {batch.first} to {batch.end - 1} of the spool are damaged in {batch.path}"
        raise StreamLostError(message, hint="restore the file, or rewind the stream behind them.")
    return pa.ipc.open_stream(pa.py_buffer(data)[HEAD.size :]).read_all()


def later_batch(path: str, offset: int, first: int) -> bool:
    """Return whether behind a position that is not whole a batch begins that was written after it."""
    with open(path, "rb") as file:  # noqa: PTH123
        file.seek(offset)
        data = file.read()
    at = data.find(_MAGIC, 1)
    while at >= 0:
        header = _head(data[at : at + HEAD.size])
        if header is not None and header[0] > first:
            return True
        at = data.find(_MAGIC, at + 1)
    return False


def read_batches(
    batches: Sequence[SegmentBatch], begin: int, end: int, queue: tuple[str, str], column_names: Sequence[str]
) -> Iterator[pa.Table]:
    """Return the messages from one number up to another; the queue is its column and its name."""
    import pyarrow as pa

    head = json.dumps({queue[0].removeprefix("_"): queue[1]}, ensure_ascii=False)[:-1]
    for batch in batches:
        skipped, last = max(0, begin - batch.first), min(end, batch.end)
        messages = messages_of(batch).slice(skipped, max(0, last - batch.first - skipped))
        numbers = range(batch.first + skipped, last)
        message_offsets = [f'{head}, "number": {number}}}' for number in numbers]
        columns = {name: messages.column(name) for name in (VALUE, *column_names) if name != queue[0]}
        if queue[0] in column_names:
            columns[queue[0]] = pa.array([queue[1]] * messages.num_rows, pa.string())
        yield pa.table(columns | {MESSAGE_OFFSET: pa.array(message_offsets, pa.string())})


def _head(data: bytes) -> tuple[int, int, int, int] | None:
    """Return first number, count, bytes and checksum of what begins here, None where no batch does."""
    if len(data) < HEAD.size:
        return None
    magic, first, count, length, body, check = HEAD.unpack(data)
    known = magic == _MAGIC and zlib.crc32(data[:_HEAD_END]) == check and length < _LARGEST
    return (first, count, length, body) if known else None
