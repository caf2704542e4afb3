"""Servers that cannot be reached: a clear error that tells no secret, within the connect deadline."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest

from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.registry import open_database
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.errors import FlowError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

KINDS = ("postgres", "mysql")
CANARY = "c4n4ry-unreachable"
DEADLINE = 40
"""Seconds, far above any connect deadline and far below forever."""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Return a socket that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_port_is_told(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = port_of(server)
    assert "refused" in refusal(kind, f"127.0.0.1:{port}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_silent_port_is_given_up(kind: str, listener: socket.socket) -> None:
    assert "time" in refusal(kind, f"127.0.0.1:{port_of(listener)}").lower()


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_nobody_knows_is_told(kind: str) -> None:
    assert "nobody.invalid" in refusal(kind, "nobody.invalid:5")


def refusal(kind: str, address: str) -> str:
    """Return what is said about a server that cannot be reached."""
    url = f"{kind}://someone:{CANARY}@{address}/shop"
    database = open_database(connection_from_fields("shop", {"kind": kind, "url": url}))
    begun = time.monotonic()
    with pytest.raises((FlowError, *database.failures)) as caught:
        database.session()
    assert time.monotonic() - begun < DEADLINE
    text = safe_text(caught.value)
    assert CANARY not in text
    return text
