"""Kafka."""

from __future__ import annotations

from typing import Any


def client_settings(connection: Any) -> dict[str, Any]:
    return {"bootstrap.servers": connection.bootstrap_servers}
