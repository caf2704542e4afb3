"""Opens a session of a warehouse; its client library is loaded then."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.errors import DeclareError

if TYPE_CHECKING:
    from ematix_flow.connect.warehouse.session import WarehouseSession
    from ematix_flow.declare.connection.base import Connection
    from ematix_flow.declare.connection.registry import BigQueryConnection, RedshiftConnection, SnowflakeConnection


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
