"""Changes of rows as messages: JSON in the shape of Debezium's envelopes, and the columns that every message has besides.

A value is a fragment of JSON, so that a number has all the digits that the database wrote.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring
from typing import TYPE_CHECKING

from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.connect.base.event_time import EVENT_TIME, FIRST_MS, LAST_MS
from ematix_flow.connect.base.stream_source import FIELDS, MESSAGE_OFFSET, VALUE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

KEY, TABLE = "_key", "_table"

COLUMNS = (SourceColumn(KEY, "text"), SourceColumn(EVENT_TIME, "timestamp_tz"), SourceColumn(TABLE, "text"))
"""What a change has besides its envelope: the key of its row, the time of its transaction, and its table."""

CREATE, UPDATE, DELETE, READ, TRUNCATE = "c", "u", "d", "r", "t"

TOGETHER = 5_000
"""Messages that are handed over at a time."""


@dataclass(frozen=True, slots=True)
class Change:
    """One message."""

    payload: str
    key: str | None
    at_ms: int
    """When its transaction was committed, in milliseconds since 1970."""
    table: str
    location: str
    """By what the message is known in the log, as the inside of a JSON object."""


def json_text(value: str) -> str:
    """Return a text as JSON."""
    return encode_basestring(value)


def json_object(values: Mapping[str, str]) -> str:
    """Return fragments of JSON, by name, as an object."""
    return "{" + ",".join([f"{_name(name)}:{value}" for name, value in values.items()]) + "}"


@lru_cache(maxsize=4096)
def _name(name: str) -> str:
    return encode_basestring(name)


def envelope(
    operation: str,
    before: Mapping[str, str] | None,
    after: Mapping[str, str] | None,
    source: str,
    at_ms: int,
) -> str:
    """Return the envelope of a change; its time is that of the transaction, so that it is the same at every read."""
    old = "null" if before is None else json_object(before)
    new = "null" if after is None else json_object(after)
    return f'{{"before":{old},"after":{new},"source":{source},"op":"{operation}","ts_ms":{at_ms}}}'


def source_text(source: Mapping[str, object]) -> str:
    """Return the block of an envelope that says where a change comes from."""
    return json.dumps(source, ensure_ascii=False, separators=(",", ":"))


def epoch_block(epoch: int) -> dict[str, object]:
    """Return what that block says of an epoch; the first one goes without saying."""
    return {"epoch": epoch} if epoch else {}


def as_tables(changes: Iterable[Change], requested: Sequence[str]) -> Iterator[pa.Table]:
    """Return messages as a source of streams hands them over."""
    batch: list[Change] = []
    for change in changes:
        batch.append(change)
        if len(batch) >= TOGETHER:
            yield _table(batch, requested)
            batch = []
    if batch:
        yield _table(batch, requested)


@dataclass(frozen=True, slots=True)
class RowTemplate:
    """The text of messages that differ in the values of a row only, cut where these stand."""

    segments: tuple[str, ...]

    def filled(self, fragments: Sequence[pa.Array]) -> pa.Array:
        """Return a text for every row; the fragments of its values are given column by column."""
        import pyarrow.compute as pc

        first, *others = self.segments
        parts = [part for pair in zip(fragments, others, strict=True) for part in pair]
        return pc.binary_join_element_wise(first, *parts, "")


def envelope_template(operation: str, names: Sequence[str], source: str, at_ms: int) -> RowTemplate:
    """Return the envelopes of rows that are there."""
    return _cut(envelope(operation, None, _blanks(names), source, at_ms), names)


def object_template(names: Sequence[str]) -> RowTemplate:
    """Return objects of JSON."""
    return _cut(json_object(_blanks(names)), names)


def _blanks(names: Sequence[str]) -> dict[str, str]:
    # No name of a column has it: databases know no such character.
    return dict.fromkeys(names, "\0")


def _cut(text: str, names: Sequence[str]) -> RowTemplate:
    segments = text.split("\0")
    if len(segments) != len(names) + 1:
        message = f"the names of {len(names)} columns cannot be told from values"
        raise ValueError(message)
    return RowTemplate(tuple(segments))


@dataclass(frozen=True, slots=True)
class Rows:
    """The messages of some rows of one table and time."""

    payloads: pa.Array
    keys: pa.Array
    locations: pa.Array
    fields: pa.StructArray | None
    """The fields of the rows as they are in the payloads, where they are plain values; None where one is not."""
    table: str
    at_ms: int


def row_table(rows: Rows, requested: Sequence[str]) -> pa.Table:
    """Return the messages of rows as a source of streams hands them over."""
    import pyarrow as pa

    size, at_ms = len(rows.payloads), rows.at_ms
    at = pa.scalar(at_ms if FIRST_MS <= at_ms <= LAST_MS else None, pa.timestamp("ms", tz="UTC"))
    more = {
        "_key": rows.keys,
        "_table": pa.repeat(rows.table, size),
        "_event_ts": pa.repeat(at.cast(pa.timestamp("us", tz="UTC")), size),
    }
    columns = {VALUE: rows.payloads.cast(pa.binary()), MESSAGE_OFFSET: rows.locations}
    columns |= {} if rows.fields is None else {FIELDS: rows.fields}
    return pa.table(columns | {name: more[name] for name in requested if name in more})


def _table(batch: Sequence[Change], requested: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    columns = {
        VALUE: pa.array([change.payload.encode() for change in batch], pa.binary()),
        MESSAGE_OFFSET: pa.array(["{" + change.location + "}" for change in batch], pa.string()),
    }
    for name in requested:
        match name:
            case "_key":
                columns[name] = pa.array([change.key for change in batch], pa.string())
            case "_table":
                columns[name] = pa.array([change.table for change in batch], pa.string())
            case "_event_ts":
                times = [change.at_ms if FIRST_MS <= change.at_ms <= LAST_MS else None for change in batch]
                columns[name] = pa.array(times, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
    return pa.table(columns)
