"""Rows into a relation of Redshift: by INSERT of many rows, or by COPY of Parquet parts in a bucket."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.storage.location import as_prefix
from ematix_flow.connect.storage.s3.client import S3Location
from ematix_flow.connect.storage.s3.store import S3Store
from ematix_flow.connect.types.identifiers import text
from ematix_flow.errors import DeclareError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from psycopg import ClientCursor, Connection

    from ematix_flow.declare.connection.registry import RedshiftConnection

STATEMENT_CHARACTERS = 4 * 1024 * 1024
"""How long an INSERT may become; Redshift takes statements of 16 MB."""

STATEMENT_ROWS = 5_000
_SCHEME = "s3://"


def insert_rows(connection: Connection[Any], relation: str, batches: Iterable[pa.RecordBatch]) -> int:
    """Insert rows with as few statements as their length allows, and return their number."""
    count = 0
    with connection.cursor() as cursor:
        statement = _Insert(cursor, relation)  # type: ignore[arg-type]  # the connection makes client cursors
        for batch in batches:
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                statement.add(row)
            count += batch.num_rows
        statement.send()
    return count


class _Insert:
    """One statement that grows until it is sent."""

    def __init__(self, cursor: ClientCursor[Any], relation: str) -> None:
        self._cursor = cursor
        self._relation = relation
        self._values: list[str] = []
        self._length = 0

    def add(self, row: tuple[Any, ...]) -> None:
        """Add a row, and send the statement where it is long enough."""
        template = f"({', '.join(['%s'] * len(row))})"
        values = self._cursor.mogrify(template.encode(), row)
        self._values.append(values)
        self._length += len(values)
        if self._length >= STATEMENT_CHARACTERS or len(self._values) >= STATEMENT_ROWS:
            self.send()

    def send(self) -> None:
        """Send what there is."""
        if self._values:
            self._cursor.execute(f"INSERT INTO {self._relation} VALUES {', '.join(self._values)}".encode())
            self._values, self._length = [], 0


def staging_store(connection: RedshiftConnection) -> S3Store:
    """Return the folder of a bucket that parts are written to, with the keys that the AWS libraries find."""
    written = str(connection.s3_staging_dir)
    bucket, _, prefix = written.removeprefix(_SCHEME).partition("/")
    if not written.startswith(_SCHEME) or not bucket or not connection.iam_role:
        message = f"redshift connection {connection.name!r} needs s3_staging_dir='s3://bucket/folder' with iam_role"
        raise DeclareError(message, hint="leave s3_staging_dir out, and rows are inserted.", origin=connection.origin)
    return S3Store(S3Location(bucket, as_prefix(prefix)))


class StagedParts:
    """The parts of one attempt: a folder of their own, so that those of an attempt that died are never loaded."""

    def __init__(self, store: S3Store, token: str) -> None:
        self._store = store
        self._folder = f"{token[:24]}/{uuid.uuid4().hex}/"

    def write(self, parts: Iterable[tuple[bytes, int]]) -> int:
        """Write the parts and return the number of rows."""
        count = 0
        for number, (data, rows) in enumerate(parts):
            self._store.write(f"{self._folder}part-{number:05}.parquet", data)
            count += rows
        return count

    def copy_sql(self, relation: str, iam_role: str) -> str:
        """Return the statement that loads them; columns are taken in their order."""
        address = self._store.address(self._folder)
        return f"COPY {relation} FROM {text(address)} IAM_ROLE {text(iam_role)} FORMAT AS PARQUET"

    def remove(self) -> None:
        """Remove them; what a bucket does not let go of is left to its own rules."""
        with suppress(Exception):
            self._store.remove_below(self._folder)
