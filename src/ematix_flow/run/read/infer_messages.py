"""Messages as rows with the types that their payloads show, for those who know no columns before: SQL, brokers, new tables."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.connect.base.stream_source import (
    MESSAGE_OFFSET,
    MOST_FIELDS,
    PAYLOAD,
    UNREADABLE,
    VALUE,
    MessagePartition,
    format_payload,
)
from ematix_flow.connect.types.arrow import REJECTS
from ematix_flow.connect.types.reject_rows import SHAPED, bytes_of
from ematix_flow.declare.table.schema import check_name
from ematix_flow.errors import DeclareError
from ematix_flow.plan.columns import POSITION
from ematix_flow.run.read.arrival import Arrival, in_order, order_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


_LARGEST = float(1 << 63)
"""Where numbers begin that may be whole ones of more than 64 bits."""

WIDE = pa.decimal128(38, 0)
"""The type of whole numbers of which one has more than 64 bits."""

UnreadMessage: TypeAlias = tuple[str, str, bytes, dict[str, Any]]
"""What is wrong with a message that is no row, its position, its payload, and what was requested of it besides that."""

TOGETHER = 4
"""Partitions that are read at the same time."""


@dataclass(frozen=True, slots=True)
class TypedRows:
    """The rows of some messages, and the messages that are none."""

    rows: pa.Table
    rejects: pa.Table | None = None
    positions: pa.ChunkedArray | None = None
    """Where each row was read, as far as that is known."""

    def positioned(self, rows: pa.Table) -> pa.Table:
        """Return rows that were made of these, one of each, with the column of where they were read, if that is known."""
        known = self.positions is not None and len(self.positions) == rows.num_rows
        return rows.append_column(POSITION, self.positions) if known else rows

    @property
    def count(self) -> int:
        """Return how many messages these are."""
        return int(self.rows.num_rows) + (int(self.rejects.num_rows) if self.rejects is not None else 0)


def typed_rows(
    partitions: Sequence[MessagePartition],
    read: Callable[[bytes], dict[str, Any] | str],
    metadata_columns: Sequence[str],
    line: str = "",
) -> TypedRows:
    """Return the rows of partitions: `read` returns the values of a payload, or what is wrong with it.

    Where `line` names the column of the line that a message is in, the rows come in the order of the stream.
    """
    with ThreadPoolExecutor(TOGETHER, "flow-messages") as pool:
        decoded = pool.map(
            lambda one: list(_decoded_batches(one[1], read, Arrival(one[0], line), metadata_columns)),
            enumerate(partitions),
        )
        batches = [batch for batch_list in decoded for batch in batch_list]
    values = [row for rows, _, _ in batches for row in rows]
    names = list(dict.fromkeys(name for row in values for name in row))
    more = [name for name in metadata_columns if name not in names]
    columns = {name: column_of([row.get(name) for row in values]) for name in names}
    columns |= {
        name: pa.chunked_array([metadata.column(name) for _, metadata, _ in batches]) for name in more if batches
    }
    bad = [row for _, _, wrong in batches for row in wrong]
    rows = pa.table(columns)
    positions = pa.chunked_array([metadata.column(MESSAGE_OFFSET) for _, metadata, _ in batches], pa.string())
    if line and rows.num_columns:
        order = pa.concat_tables([metadata.select(order_of(line)) for _, metadata, _ in batches])
        rows, positions = (
            in_order(rows, order),
            in_order(pa.table({MESSAGE_OFFSET: positions}), order).column(MESSAGE_OFFSET),
        )
    return TypedRows(rows, rejects_of(bad) if bad else None, positions)


def rows_of_payloads(
    messages: Sequence[tuple[bytes, str]],
    read: Callable[[bytes], dict[str, Any] | str],
    metadata: Mapping[str, pa.Array] | None = None,
) -> TypedRows:
    """Return the rows of payloads that are at hand, each with the position it came from, and with more columns."""
    return typed_rows([partition_of(messages, metadata)], read, tuple(metadata or ()))


def partition_of(
    messages: Sequence[tuple[bytes, str]], metadata: Mapping[str, pa.Array] | None = None
) -> MessagePartition:
    """Return payloads that are at hand, each with the position it came from, as a partition in memory."""
    table = pa.table(
        {
            VALUE: pa.array([payload for payload, _ in messages], pa.binary()),
            MESSAGE_OFFSET: pa.array([position for _, position in messages], pa.string()),
            **(metadata or {}),
        }
    )
    return MessagePartition("", len(messages), lambda: iter((table,)))


def json_payload(payload: bytes) -> dict[str, Any] | str:
    """Return the values of a JSON object."""
    try:
        value = orjson.loads(payload)
        # Whole numbers of more than 64 bits are rounded there.
        if not _rounded(value):
            return _row(value)
    except (ValueError, RecursionError):
        pass
    return _exact_payload(payload)


def _exact_payload(payload: bytes) -> dict[str, Any] | str:
    """Return the values of a JSON object as Python's own reader has them, or what it says is wrong."""
    try:
        value = json.loads(payload.decode(), parse_constant=_constant, parse_float=_finite)
        if b"\\ud" in payload or b"\\uD" in payload:
            _json(value).encode()
    except UnicodeEncodeError:
        return "malformed JSON: half of a surrogate pair"
    except (ValueError, RecursionError) as error:
        return f"malformed JSON: {error}"
    return _row(value)


def _row(value: Any) -> dict[str, Any] | str:
    if not isinstance(value, dict):
        return "not a JSON object"
    return value if len(value) <= MOST_FIELDS else f"has {len(value)} values, more than the {MOST_FIELDS} of a row"


def _rounded(value: Any) -> bool:
    """Return whether a number within a value may stand for a whole one of more than 64 bits."""
    kind = type(value)
    if kind is float:
        return not -_LARGEST < value < _LARGEST
    if kind is dict:
        value = value.values()
    elif kind is not list:
        return False
    for one in value:
        kind = type(one)
        if kind is float:
            if not -_LARGEST < one < _LARGEST:
                return True
        elif (kind is dict or kind is list) and _rounded(one):
            return True
    return False


def rejected_row(payload: bytes) -> dict[str, Any] | str:
    """Return the values of a row that a reject keeps instead of a message."""
    values = json_payload(payload)
    if isinstance(values, str):
        return values
    known = {name: bytes_of(value) for name, value in values.items() if name != SHAPED}
    return {name: values[name] if value is None else value for name, value in known.items()}


def _constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:40]} is too large a number")
    return value


def nameable(read: Callable[[bytes], dict[str, Any] | str]) -> Callable[[bytes], dict[str, Any] | str]:
    """Return a reader for tables that are made of messages: a message with a name that no column has is no row."""

    def row_of(payload: bytes) -> dict[str, Any] | str:
        row = read(payload)
        return row if isinstance(row, str) else _unnameable(tuple(row)) or row

    return row_of


@lru_cache(maxsize=256)
def _unnameable(names: tuple[str, ...]) -> str | None:
    """Return what is wrong with the names of a message."""
    try:
        for name in names:
            check_name("column", name, None)
    except DeclareError as error:
        return error.what
    if len({name.lower() for name in names}) < len(names):
        return "two of its names differ only in case"
    return None


def raw_payload(payload: bytes) -> dict[str, Any] | str:
    """Return the bytes themselves as the one value."""
    return {VALUE: payload}


def documents(table: pa.Table) -> pa.Table:
    """Return rows with lists, structs and maps as JSON, as columns of tables hold them."""
    for number, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            texts = [None if value is None else _json(value) for value in table.column(number).to_pylist()]
            table = table.set_column(number, field.name, pa.array(texts, pa.string()))
    return table


def _decoded_batches(
    partition: MessagePartition,
    read: Callable[[bytes], dict[str, Any] | str],
    arrival: Arrival,
    metadata_columns: Sequence[str],
) -> Iterator[tuple[list[dict[str, Any]], pa.Table, list[UnreadMessage]]]:
    """Return rows, the metadata columns of their messages, and the messages that are no rows."""
    for raw in partition.read():
        messages = arrival.numbered(raw) if arrival.line else raw
        there = messages.filter(pc.is_valid(messages.column(VALUE)))
        payloads, positions = there.column(VALUE).to_pylist(), there.column(MESSAGE_OFFSET).to_pylist()
        decoded = [read(payload) for payload in payloads]
        good = [not isinstance(one, str) for one in decoded]
        wrong = [
            (one, position, payload, {name: there.column(name)[number].as_py() for name in metadata_columns})
            for number, (one, position, payload) in enumerate(zip(decoded, positions, payloads, strict=True))
            if isinstance(one, str)
        ]
        metadata = there if not wrong else there.filter(pa.array(good))
        yield [one for one in decoded if not isinstance(one, str)], metadata, wrong


def column_of(values: list[Any], *, allow_null: bool = False) -> pa.Array:
    """Return values in the type they share: whole and broken numbers are numbers, anything else that differs is text."""
    try:
        array = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        kinds = {type(value) for value in values if value is not None}
        if kinds == {int}:
            with suppress(pa.ArrowInvalid):
                return pa.array(values, WIDE)
        if kinds <= {int, float}:
            with suppress(OverflowError):
                return pa.array([None if value is None else float(value) for value in values], pa.float64())
        return pa.array([text_of(value) for value in values])
    if pa.types.is_floating(array.type) and any(isinstance(value, bool) for value in values):
        # Arrow takes truth behind a broken number for 0 or 1, and before one for an error.
        return pa.array([text_of(value) for value in values])
    return array if allow_null or not pa.types.is_null(array.type) else array.cast(pa.string())


def text_of(value: Any) -> str | None:
    """Return a value of a column of text: what is no text is written as JSON."""
    return value if value is None or isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def rejects_of(bad: Sequence[UnreadMessage]) -> pa.Table:
    """Return messages that are no rows as a table of rejects."""
    rows = [
        {
            "reason": reason,
            "column_name": UNREADABLE,
            "source_position": position,
            "row_json": _json(metadata | {PAYLOAD: format_payload(payload)}),
        }
        for reason, position, payload, metadata in bad
    ]
    return pa.Table.from_pylist(rows, schema=REJECTS)
