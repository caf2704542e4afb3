"""Streams from topic to topic for tests, and what arrives at their ends."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from tests.services.topics import committed

if TYPE_CHECKING:
    from ematix_flow.declare.stream.stream import Stream


@dataclass(frozen=True)
class TopicFlow:
    """A stream between two topics of a broker, or from a folder into a topic."""

    address: str
    source: str
    target: str
    keywords: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    """Further settings of the connection."""
    folder: str = ""
    """Where files come from, whose name below is the source."""

    @property
    def stream(self) -> Stream:
        connection = {"kind": "kafka", "bootstrap_servers": self.address, **self.fields}
        events = connection_from_fields("events", connection)
        source = events
        if self.folder:
            source = connection_from_fields(
                "inbox", {"kind": "object_store_local", "path": self.folder, "format": "csv"}
            )
        given = {"name": f"from-{self.source}-to-{self.target}", "source": source, "source_query": self.source}
        return stream_from_keywords({**given, "target": events, "target_topic": self.target, **self.keywords}, None)

    def run(self, most: int | None = None) -> dict[str, Any]:
        """Send everything that is there, at most so many messages at a time."""
        return run_stream(self.stream, StreamOptions(available_now=True, most=most))

    def arrived(self) -> list[tuple[Any, Any]]:
        """Return key and payload of everything that a reader of committed messages sees."""
        messages = committed(self.address, self.target)
        return [(message.key(), json.loads(message.value())) for message in messages]
