"""Rows of a query by a cursor of the server, so that memory holds some of them at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ematix_flow.connect.redshift.types import result_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import Connection, Cursor

FETCHED = 1_000
"""Rows of one FETCH; a cluster of one node gives no more."""

_NAME = "_flow_cursor"


def read_query(connection: Connection[Any], sql: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the types and the rows of a query, in a transaction of its own that ends with them."""
    cursor = connection.cursor()
    cursor.execute("BEGIN READ ONLY")
    cursor.execute(f"DECLARE {_NAME} CURSOR FOR {sql.strip().rstrip(';')}".encode())
    first = _fetched(cursor)
    schema = result_schema(cursor.description or ())
    return schema, _batches(cursor, first, schema)


def _batches(cursor: Cursor[Any], rows: list[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while rows:
        columns = zip(*rows, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        rows = _fetched(cursor)
    cursor.execute("COMMIT")


def _fetched(cursor: Cursor[Any]) -> list[tuple[Any, ...]]:
    cursor.execute(f"FETCH FORWARD {FETCHED} FROM {_NAME}".encode())
    return cursor.fetchall()
