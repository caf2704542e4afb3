"""Rows and payloads as messages for a broker: those that need no change keep every byte, the others are encoded anew."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.sink import OutgoingMessage
from ematix_flow.connect.base.stream_source import MESSAGE_OFFSET, VALUE
from ematix_flow.connect.formats.encoders import JSON
from ematix_flow.connect.formats.json_lines import object_of, written
from ematix_flow.errors import RunError, did_you_mean
from ematix_flow.run.read.infer_messages import TOGETHER, rejects_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.stream_source import MessagePartition
    from ematix_flow.connect.formats.encoders import Encoder
    from ematix_flow.run.read.infer_messages import TypedRows, UnreadMessage


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The messages of a range, and those of its source that are none."""

    messages: list[OutgoingMessage]
    rejects: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Ids:
    """Assigns a message the same id whenever the same message is read again."""

    scope: str

    def of(self, position: str) -> str:
        """Return the id of what was made of the message at a position."""
        return hashlib.blake2b(f"{self.scope}\x1f{position}".encode(), digest_size=16).hexdigest()


def encoded(
    typed_rows: TypedRows,
    encoder: Encoder,
    key: str | None,
    ids: Ids,
    message_range: str = "",
    hidden: Sequence[str] = (),
) -> Outgoing:
    """Return rows as messages, without the hidden columns.

    Rows without a position have ids from the range and their number in it.
    """
    rows, names = typed_rows.rows, typed_rows.rows.column_names
    if key is not None and key not in names and rows.num_rows:
        message = f"rows have no column {key!r}, which is the key of their messages"
        raise RunError(message, hint=did_you_mean(key, [name for name in names if name != MESSAGE_OFFSET]))
    count = rows.num_rows
    positions = (
        rows.column(MESSAGE_OFFSET).to_pylist()
        if MESSAGE_OFFSET in names
        else [f"{message_range}\x1f{n}" for n in range(count)]
    )
    keys = [key_of(value) for value in rows.column(key).to_pylist()] if key in names else [None] * count
    visible = rows.select([name for name in names if name not in (MESSAGE_OFFSET, *hidden)])
    payloads = encoder.encode(visible) if visible.num_columns or encoder.format != JSON else [b"{}"] * count
    triples = zip(payloads, positions, keys, strict=True)
    return Outgoing(
        [OutgoingMessage(payload, ids.of(position), one) for payload, position, one in triples], typed_rows.rejects
    )


def passed_on(partitions: Sequence[MessagePartition], key: str | None, ids: Ids, *, objects: bool) -> Outgoing:
    """Return payloads as they are, where they are objects of JSON without their NULL fields.

    A message without a payload is passed on with its key, as a deletion of it; without a key it has no meaning.
    """
    change = _object if objects else _bytes
    with ThreadPoolExecutor(TOGETHER, "flow-messages") as pool:
        batches = list(pool.map(lambda partition: list(_changed(partition, change, key)), partitions))
    changed = [one for batch in batches for one in batch]
    bad: list[UnreadMessage] = [
        (one.wrong, one.position, one.payload or b"", {}) for one in changed if one.wrong is not None
    ]
    good = [one for one in changed if one.wrong is None and not (one.payload is None and one.key is None)]
    messages = [OutgoingMessage(one.payload, ids.of(one.position), one.key) for one in good]
    return Outgoing(messages, rejects_of(bad) if bad else None)


@dataclass(slots=True)
class _ChangedMessage:
    """A message of the source on its way through."""

    payload: bytes | None
    key: bytes | None
    wrong: str | None
    position: str = ""


def _changed(
    partition: MessagePartition, change: Callable[[bytes | None, str | None], _ChangedMessage], key: str | None
) -> Iterator[_ChangedMessage]:
    for messages in partition.read():
        key_values = messages.column(key).to_pylist() if key in messages.column_names else None
        payloads, positions = messages.column(VALUE).to_pylist(), messages.column(MESSAGE_OFFSET).to_pylist()
        for n, (payload, position) in enumerate(zip(payloads, positions, strict=True)):
            message = change(payload, key)
            message.position = position
            if key_values is not None and message.key is None:
                message.key = key_of(key_values[n])
            yield message


def _bytes(payload: bytes | None, _: str | None) -> _ChangedMessage:
    return _ChangedMessage(payload, None, None)


def _object(payload: bytes | None, key: str | None) -> _ChangedMessage:
    """Return an object without its NULL fields, and the value of the field that is the key."""
    if payload is None:
        return _ChangedMessage(None, None, None)
    row = object_of(payload)
    if isinstance(row, str):
        return _ChangedMessage(payload, None, row)
    try:
        value = row.get(key) if key is not None else None
        known = value.encode() if isinstance(value, str) else None if value is None else written(value).encode()
        if None not in row.values():
            return _ChangedMessage(payload, known, None)
        left = {name: value for name, value in row.items() if value is not None}
        return _ChangedMessage(written(left).encode(), known, None)
    except UnicodeEncodeError:
        return _ChangedMessage(payload, None, f"(half of a surrogate pair) {payload.decode()}")


def key_of(value: Any) -> bytes | None:
    """Return a value as the key of a message: bytes as they are, text as UTF-8, anything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)).encode()
