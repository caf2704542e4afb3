"""A connection to Snowflake by its connector for Python: queries, staged rows and transactions."""

from __future__ import annotations

import base64
import importlib
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ematix_flow.connect.base.scratch import scratch_folder
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.snowflake.types import columns_sql, result_schema
from ematix_flow.connect.types.identifiers import quoted
from ematix_flow.connect.warehouse.rows import in_common_types, parquet_parts
from ematix_flow.connect.warehouse.session import Staged, WarehouseSession
from ematix_flow.errors import DeclareError, MissingExtraError, RunError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

    from ematix_flow.declare.connection.registry import SnowflakeConnection

LOGIN_SECONDS = 60
_PASSING = ("OperationalError", "InterfaceError", "ServiceUnavailableError", "GatewayTimeoutError")
"""Errors of the connector after which the same statement may succeed: the way to the service is broken."""


class SnowflakeSession(WarehouseSession):
    """One connection to a Snowflake account."""

    kind = "snowflake"

    def __init__(self, connection: SnowflakeConnection) -> None:
        self._name = connection.name
        self._library = _installed("snowflake.connector")
        with self._translated():
            self._connection = self._library.connect(**connect_arguments(connection))

    def read(self, sql: str) -> pa.RecordBatchReader:
        """Return the rows of a query, a chunk of the result at a time."""
        with self._translated():
            cursor = self._connection.cursor()
            cursor.execute(sql)
            schema = result_schema(cursor.description)
        return pa.RecordBatchReader.from_batches(schema, self._batches(cursor, schema))

    def _batches(self, cursor: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with self._translated():
            for table in cursor.fetch_arrow_batches():
                yield from table.cast(schema).to_batches()

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        with self._translated(), self._connection.cursor() as cursor:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

    def columns_sql(self, schema: pa.Schema) -> str:
        """Return the columns of CREATE TABLE."""
        return columns_sql(schema)

    def stage(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], token: str) -> Staged:
        """Copy Parquet files from a temporary stage into a temporary table; both are gone with the session."""
        relation, files = (quoted(f"_FLOW_{what}_{token[:24].upper()}") for what in ("ROWS", "FILES"))
        self.query(f"CREATE TEMPORARY TABLE {relation} ({columns_sql(schema)})")
        self.query(f"CREATE TEMPORARY STAGE {files}")
        count = 0
        with scratch_folder("snowflake") as folder:
            for number, (data, rows) in enumerate(parquet_parts(in_common_types(batches, schema), schema)):
                path = Path(folder) / f"part-{number:05}.parquet"
                path.write_bytes(data)
                self.query(f"PUT 'file://{path}' @{files} AUTO_COMPRESS = FALSE")
                path.unlink()
                count += rows
        if count:
            self.query(copy_sql(relation, files))
        [(copied,)] = self.query(f"SELECT COUNT(*) FROM {relation}")
        if copied != count:
            message = f"snowflake connection {self._name!r}: {copied} of {count} staged rows were copied"
            raise RunError(message)
        return Staged(relation, count)

    def close(self) -> None:
        """End the session, and with it the temporary table and stage."""
        with suppress(Exception):
            self._connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Report what the connector reports, without secrets, as an error that may pass or one that does not."""
        try:
            yield
        except self._library.errors.Error as error:
            kind = TransientError if type(error).__name__ in _PASSING else RunError
            raise kind(f"snowflake connection {self._name!r}: {safe_text(error)}") from None


def copy_sql(relation: str, files: str) -> str:
    """Return the statement that loads the files; a row that cannot be read stops it."""
    parquet = "(TYPE = PARQUET, USE_LOGICAL_TYPE = TRUE)"
    matching = "MATCH_BY_COLUMN_NAME = CASE_INSENSITIVE ON_ERROR = ABORT_STATEMENT"
    return f"COPY INTO {relation} FROM @{files} FILE_FORMAT = {parquet} {matching}"


def connect_arguments(connection: SnowflakeConnection) -> dict[str, Any]:
    """Return what the connector is called with; it holds the password or the key."""
    named = ("account", "user", "warehouse", "database", "schema", "role")
    arguments = {name: getattr(connection, name) for name in named if getattr(connection, name)}
    secret = (
        {"private_key": _key_bytes(connection)} if connection.private_key else {"password": str(connection.password)}
    )
    session = {"TIMEZONE": "UTC", "QUERY_TAG": "ematix-flow"}
    return {
        **arguments,
        **secret,
        "autocommit": True,
        "login_timeout": LOGIN_SECONDS,
        "application": "ematix_flow",
        "session_parameters": session,
    }


def _key_bytes(connection: SnowflakeConnection) -> bytes:
    """Return a key, written as PEM or as the base64 in it, as the connector takes it: DER."""
    lines = [line.strip() for line in str(connection.private_key).strip().splitlines()]
    body = "".join(line for line in lines if not line.startswith("-----"))
    if not any("ENCRYPTED" in line for line in lines):
        with suppress(ValueError):
            return base64.b64decode(body, validate=True)
    message = f"snowflake connection {connection.name!r} has a private_key that is no unencrypted PKCS#8 key"
    raise DeclareError(message, hint="give the text of the .p8 file.", origin=connection.origin)


def _installed(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError:
        message = "Snowflake needs the package snowflake-connector-python"
        raise MissingExtraError(message, hint="pip install 'ematix-flow-spark[snowflake]'.") from None
