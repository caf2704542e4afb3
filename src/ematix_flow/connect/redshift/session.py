"""A connection to Redshift by PostgreSQL's protocol: queries, staged rows and transactions."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa

from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.postgres.session import is_transient
from ematix_flow.connect.redshift.reader import read_query
from ematix_flow.connect.redshift.stager import StagedParts, insert_rows, staging_store
from ematix_flow.connect.redshift.types import columns_sql
from ematix_flow.connect.types.identifiers import quoted
from ematix_flow.connect.warehouse.rows import in_common_types, parquet_parts
from ematix_flow.connect.warehouse.session import Staged, WarehouseSession
from ematix_flow.errors import RunError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ematix_flow.declare.connection.registry import RedshiftConnection

_LINK: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 4,
    "application_name": "ematix-flow",
    # Redshift calls it UNICODE otherwise, which the driver does not know.
    "client_encoding": "utf8",
}


class RedshiftSession(WarehouseSession):
    """One connection to a Redshift database."""

    kind = "redshift"

    def __init__(self, connection: RedshiftConnection) -> None:
        self._name = connection.name
        self._declared = connection
        self._parts: StagedParts | None = None
        with self._translated():
            self._connection = psycopg.connect(
                connection.to_postgres_url(),
                autocommit=True,
                prepare_threshold=None,
                cursor_factory=psycopg.ClientCursor,
                **_LINK,
            )

    def read(self, sql: str) -> pa.RecordBatchReader:
        """Return the rows of a query by a cursor of the server."""
        with self._translated():
            schema, batches = read_query(self._connection, sql)
        return pa.RecordBatchReader.from_batches(schema, self._batches(batches))

    def _batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self._translated():
            yield from batches

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        with self._translated(), self._connection.cursor() as cursor:
            cursor.execute(sql.encode())
            return cursor.fetchall() if cursor.description is not None else []

    def columns_sql(self, schema: pa.Schema) -> str:
        """Return the columns of CREATE TABLE."""
        return columns_sql(schema)

    def stage(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], token: str) -> Staged:
        """Write rows to a temporary table, with parts in a bucket where the connection names one."""
        # A table of this session: it is gone with the connection, whatever happens.
        relation = quoted(f"_flow_stage_{token[:24]}")
        self.query(f"CREATE TEMPORARY TABLE {relation} ({columns_sql(schema)})")
        rows = in_common_types(batches, schema)
        if not self._declared.s3_staging_dir:
            with self._translated():
                return Staged(relation, insert_rows(self._connection, relation, rows))
        self._parts = StagedParts(staging_store(self._declared), token)
        count = self._parts.write(parquet_parts(rows, schema))
        if count:
            self.query(self._parts.copy_sql(relation, str(self._declared.iam_role)))
        return Staged(relation, count)

    def close(self) -> None:
        """End the connection, and with it the temporary table; remove the parts."""
        self._connection.close()
        if self._parts is not None:
            self._parts.remove()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Report what the driver reports, without secrets, as an error that may pass or one that does not."""
        try:
            yield
        except psycopg.Error as error:
            kind = TransientError if is_transient(error) else RunError
            raise kind(f"redshift connection {self._name!r}: {safe_text(error)}") from None
