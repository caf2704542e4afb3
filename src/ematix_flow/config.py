"""Connections by name under their public names; what opens one is loaded at its first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.config.lookup import describe_connections as list_connections
from ematix_flow.connect.config.lookup import resolve_dsn, set_connection

if TYPE_CHECKING:
    from ematix_flow.engine.api.references import check_connection, connect

__all__ = ["check_connection", "connect", "list_connections", "resolve_dsn", "set_connection"]


def __getattr__(name: str) -> Any:
    if name in ("connect", "check_connection"):
        return getattr(importlib.import_module("ematix_flow.engine.api.references"), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
