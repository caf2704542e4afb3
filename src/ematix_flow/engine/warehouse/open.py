"""Opens a session of a warehouse; its client library is loaded then."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, cast

from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.errors import DeclareError

if TYPE_CHECKING:
    import pyarrow as pa

    from ematix_flow.connect.warehouse.session import WarehouseSession
    from ematix_flow.declare.connection.base import Connection
    from ematix_flow.declare.connection.registry import BigQueryConnection, RedshiftConnection, SnowflakeConnection


def read_warehouse(connection: Connection, sql: str) -> pa.Table:
    """Return the rows of a query of a warehouse, for a pipeline into another system; they are held in memory."""
    if not sql:
        message = f"connection {connection.name!r} is {connection.kind}, of which pipelines read queries"
        raise DeclareError(message, hint=f"return Source.{connection.kind}_query(connection, 'SELECT ...').")
    with closing(open_warehouse(connection, connection.kind)) as session:
        return session.read(sql).read_all()


def open_warehouse(reference: str | Connection, kind: str) -> WarehouseSession:
    """Return a session of the warehouse behind a connection of this kind."""
    connection = resolve_connection(reference)
    if connection.kind != kind:
        message = f"connection {connection.name!r} is {connection.kind}, and the pipeline says {kind!r}"
        raise DeclareError(message, hint="name the kind of the connection.")
    if kind == "bigquery":
        from ematix_flow.connect.bigquery.session import BigQuerySession

        return BigQuerySession(cast("BigQueryConnection", connection))
    if kind == "snowflake":
        from ematix_flow.connect.snowflake.session import SnowflakeSession

        return SnowflakeSession(cast("SnowflakeConnection", connection))
    from ematix_flow.connect.redshift.session import RedshiftSession

    return RedshiftSession(cast("RedshiftConnection", connection))
