"""Connections by name under their public names; nothing is defined here."""

from __future__ import annotations

from ematix_flow.connect.resolve import resolve_dsn, set_connection
from ematix_flow.connect.resolve import shown_connections as list_connections

__all__ = ["list_connections", "resolve_dsn", "set_connection"]
