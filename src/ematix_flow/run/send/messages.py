"""Rows and payloads as messages for a broker: those that need no change keep every byte, the others are encoded anew."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.sink import Message
from ematix_flow.connect.base.stream_source import PLACE, VALUE
from ematix_flow.connect.formats.encoders import JSON
from ematix_flow.connect.formats.json_lines import object_of, written
from ematix_flow.errors import RunError, did_you_mean
from ematix_flow.run.read.infer_messages import TOGETHER, rejects_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.stream_source import MessagePiece
    from ematix_flow.connect.formats.encoders import Encoder
    from ematix_flow.run.read.infer_messages import TypedRows


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The messages of a stretch, and those of its source that are none."""

    messages: list[Message]
    rejects: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Ids:
    """Gives a message an id that it gets again whenever the same message is read again."""

    way: str

    def of(self, place: str) -> str:
        """Return the id of what was made of the message at a place."""
        return hashlib.blake2b(f"{self.way}\x1f{place}".encode(), digest_size=16).hexdigest()


def encoded(
    found: TypedRows, encoder: Encoder, key: str | None, ids: Ids, message_range: str = "", hidden: Sequence[str] = ()
) -> Outgoing:
    """Return rows as messages, without the hidden columns.

    Rows that no longer know their place have ids from the stretch and their number in it.
    """
    rows, names = found.rows, found.rows.column_names
    if key is not None and key not in names and rows.num_rows:
        message = f"rows have no column {key!r}, which is the key of their messages"
        raise RunError(message, hint=did_you_mean(key, [name for name in names if name != PLACE]))
    count = rows.num_rows
    places = rows.column(PLACE).to_pylist() if PLACE in names else [f"{message_range}\x1f{n}" for n in range(count)]
    keys = [key_of(value) for value in rows.column(key).to_pylist()] if key in names else [None] * count
    shown = rows.select([name for name in names if name not in (PLACE, *hidden)])
    payloads = encoder.encode(shown) if shown.num_columns or encoder.format != JSON else [b"{}"] * count
    made = zip(payloads, places, keys, strict=True)
    return Outgoing([Message(payload, ids.of(place), one) for payload, place, one in made], found.rejects)


def passed_on(pieces: Sequence[MessagePiece], key: str | None, ids: Ids, *, objects: bool) -> Outgoing:
    """Return payloads as they are, where they are objects of JSON without their NULL fields.

    A message without a payload is passed on with its key, which it says is gone; without a key it says nothing.
    """
    change = _object if objects else _bytes
    with ThreadPoolExecutor(TOGETHER, "flow-messages") as pool:
        parts = list(pool.map(lambda piece: list(_changed(piece, change, key)), pieces))
    changed = [one for part in parts for one in part]
    bad = [(one.wrong, one.place, one.payload or b"") for one in changed if one.wrong is not None]
    good = [one for one in changed if one.wrong is None and not (one.payload is None and one.key is None)]
    messages = [Message(one.payload, ids.of(one.place), one.key) for one in good]
    return Outgoing(messages, rejects_of(bad) if bad else None)


@dataclass(slots=True)
class _Changed:
    """A message of the source on its way through."""

    payload: bytes | None
    key: bytes | None
    wrong: str | None
    place: str = ""


def _changed(
    piece: MessagePiece, change: Callable[[bytes | None, str | None], _Changed], key: str | None
) -> Iterator[_Changed]:
    for messages in piece.read():
        beside = messages.column(key).to_pylist() if key in messages.column_names else None
        payloads, places = messages.column(VALUE).to_pylist(), messages.column(PLACE).to_pylist()
        for n, (payload, place) in enumerate(zip(payloads, places, strict=True)):
            made = change(payload, key)
            made.place = place
            if beside is not None and made.key is None:
                made.key = key_of(beside[n])
            yield made


def _bytes(payload: bytes | None, _: str | None) -> _Changed:
    return _Changed(payload, None, None)


def _object(payload: bytes | None, key: str | None) -> _Changed:
    """Return an object without its NULL fields, and the value of the field that is the key."""
    if payload is None:
        return _Changed(None, None, None)
    row = object_of(payload)
    if isinstance(row, str):
        return _Changed(payload, None, row)
    try:
        value = row.get(key) if key is not None else None
        known = value.encode() if isinstance(value, str) else None if value is None else written(value).encode()
        if None not in row.values():
            return _Changed(payload, known, None)
        left = {name: value for name, value in row.items() if value is not None}
        return _Changed(written(left).encode(), known, None)
    except UnicodeEncodeError:
        return _Changed(payload, None, f"(half of a surrogate pair) {payload.decode()}")


def key_of(value: Any) -> bytes | None:
    """Return a value as the key of a message: bytes as they are, text as UTF-8, anything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)).encode()
