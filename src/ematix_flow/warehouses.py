"""The connections to cloud warehouses under their public names; nothing is defined here."""

from __future__ import annotations

from ematix_flow.declare.connection.registry import BigQueryConnection, RedshiftConnection, SnowflakeConnection

__all__ = ["BigQueryConnection", "RedshiftConnection", "SnowflakeConnection"]
