"""Reads a query of MySQL as Arrow batches, in one snapshot; what MySQL alters in a SELECT is an error here."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pymysql.constants import FIELD_TYPE as CODE

from ematix_flow.connect.mysql.protocol import RowStream
from ematix_flow.connect.mysql.session import MySQLSession, connect
from ematix_flow.connect.mysql.types import arrow_type
from ematix_flow.connect.types.unread import Unread, marked_batch
from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ematix_flow.connect.mysql.protocol import ColumnData, Field, Wire
    from ematix_flow.connect.mysql.session import MySQLSettings

ALTERED_VALUE_CODES = frozenset({1260, 1264, 1265, 1292, 1301, 1365, 1366, 1406, 1411, 1441})
"""Warnings of a SELECT that an INSERT would refuse: a value was cut, or became NULL or zero."""


def read_rows(settings: MySQLSettings, name: str, sql: str) -> Iterator[pa.RecordBatch]:
    """Stream the rows of a query."""
    # A run that is stopped interrupts the sessions that it has opened.
    session = MySQLSession(connect(settings, name), lambda: connect(settings, name))
    wire = session.wire
    try:
        wire.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        wire.query("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        stream = RowStream(wire, sql)
        for columns, _ in stream.chunks():
            yield batch_of(stream.fields, columns)
        if stream.warnings:
            _refuse_altered(wire)
        wire.close()
    finally:
        # Rows that no caller reads any more would have to be read to the end otherwise.
        wire.break_off()


def batch_of(fields: Sequence[Field], columns: Sequence[ColumnData]) -> pa.RecordBatch:
    """Return a chunk as a batch; a row with a date that does not exist is marked as failed."""
    arrays, unread = [], []
    for field, column in zip(fields, columns, strict=True):
        array, texts = _array(field, column)
        arrays.append(array)
        if texts is not None:
            unread.append(Unread(field.name, texts, "{!r} is no day of the calendar"))
    return marked_batch([field.name for field in fields], arrays, unread)


def _array(field: Field, column: ColumnData) -> tuple[pa.Array, pa.Array | None]:
    """Return the values in the type of `arrow_type`, and the texts of those that it cannot carry."""
    valid = None if column.nulls is None else pa.py_buffer(np.packbits(~column.nulls, bitorder="little"))
    buffers = [valid, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    raw = pa.Array.from_buffers(pa.binary(), len(column.offsets) - 1, buffers)
    target_type = arrow_type(field)
    if target_type == pa.binary():
        return raw, None
    if field.code == CODE.BIT:
        numbers = [None if bits is None else int.from_bytes(bits, "big") for bits in raw.to_pylist()]
        return pc.cast(pa.array(numbers, pa.uint64()), target_type), None
    # The cast checks that it is UTF-8.
    text = pc.cast(raw, pa.string())
    if target_type == pa.string():
        return text, None
    if not pa.types.is_temporal(target_type):
        return pc.cast(text, target_type), None
    try:
        return _temporal(text, target_type), None
    except pa.ArrowInvalid:
        return _valid_temporal(text, target_type)


def _temporal(text: pa.Array, target_type: pa.DataType) -> pa.Array:
    return pc.cast(pc.cast(text, pa.timestamp("us")) if pa.types.is_timestamp(target_type) else text, target_type)


def _valid_temporal(text: pa.Array, target_type: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Leave out days such as 0000-00-00 and 2020-02-30, which MySQL can hold."""
    parse = datetime.fromisoformat if pa.types.is_timestamp(target_type) else date.fromisoformat
    good: list[str | None] = []
    others: list[str | None] = []
    for value in text.to_pylist():
        try:
            parse(value or "2000-01-01")
        except ValueError:
            good.append(None)
            others.append(value)
        else:
            good.append(value)
            others.append(None)
    return _temporal(pa.array(good, pa.string()), target_type), pa.array(others, pa.string())


def _refuse_altered(wire: Wire) -> None:
    altered = [str(text) for _, code, text in wire.rows("SHOW WARNINGS") if int(code) in ALTERED_VALUE_CODES]
    if altered:
        message = f"the source query bends values: {altered[0]}"
        raise RunError(message, hint="MySQL only warns about it in a SELECT; fix the expression in the query.")
