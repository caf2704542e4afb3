"""What tests of schema registries share: a registry, messages made by hand, and a gate that asks for a login."""

from __future__ import annotations

import io
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import fastavro

from ematix_flow.connect.schema_registry.base import AVRO
from ematix_flow.connect.schema_registry.open import registry_of
from ematix_flow.declare.connection.brokers import KafkaConnection, SchemaRegistryConnection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.schema_registry.base import Registry


def registry_at(url: str, **more: Any) -> Registry:
    """Return the registry at an address."""
    registry = SchemaRegistryConnection("schemas", url, **more)
    return registry_of(
        KafkaConnection("events", bootstrap_servers="b", payload_format="avro", schema_registry=registry)
    )


def record(*fields: Any, name: str = "Row") -> str:
    """Return the schema of a record whose fields are names and types."""
    given = [{"name": one[0], "type": one[1], **(one[2] if len(one) > 2 else {})} for one in fields]
    return json.dumps({"type": "record", "name": name, "fields": given})


def avro_messages(registry: Registry, subject: str, schema: str, rows: Sequence[dict[str, Any]]) -> list[bytes]:
    """Register a schema and return rows as its messages, written by fastavro alone."""
    known = registry.register(subject, AVRO, schema)
    parsed = fastavro.parse_schema(json.loads(schema))
    messages = []
    for row in rows:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, parsed, row)
        messages.append(b"\0" + int(known.id).to_bytes(4, "big") + body.getvalue())
    return messages


class Gate(ThreadingHTTPServer):
    """Answers everything in the same way, and remembers the logins it saw."""

    daemon_threads = True

    def __init__(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.answer = (status, json.dumps(body).encode(), headers or {})
        self.logins: list[str | None] = []
        Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        """Return the address."""
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer."""
        gate = self.server
        assert isinstance(gate, Gate)
        gate.logins.append(self.headers.get("Authorization"))
        status, body, headers = gate.answer
        self.send_response_only(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
