"""Checks whether messages have come to a topic, stream or folder since a workflow's last check; it consumes none."""

from __future__ import annotations

from concurrent.futures import wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.background import in_background
from ematix_flow.connect.base.stream_source import LATEST, as_text, from_text
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.registry import open_stream
from ematix_flow.errors import TransientError, UnsupportedError
from ematix_flow.plan.explain.guarantees import QUEUES

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ematix_flow.declare.pipeline.pipeline import Source

WAIT_SECONDS = 5.0
"""Seconds that everything else waits for a check of messages; the result of a longer one is read next time."""

_PENDING_CHECKS: list[PendingCheck] = []
"""Checks that are under way."""


@dataclass(frozen=True, slots=True)
class TriggerResult:
    """Up to where messages were seen, and whether there were new ones."""

    position: str
    triggered: bool


@dataclass(frozen=True, slots=True, eq=False)
class PendingCheck:
    """A check of a source from a position on, under way in the background."""

    source: Source
    position: str
    future: Future[TriggerResult | None]


def new_messages(source: Source, position: str) -> TriggerResult | None:
    """Return what is new after a position in the source; None when nothing is.

    A workflow without an earlier check begins with the messages that come from now on.
    """
    before = next((check for check in _PENDING_CHECKS if check.source is source and check.position == position), None)
    check = before or PendingCheck(
        source, position, in_background(lambda: _read_new_messages(source, position), "messages")
    )
    if before is None:
        _PENDING_CHECKS.append(check)
    if not wait([check.future], WAIT_SECONDS if before is None else 0).done:
        message = f"{source.query or source.path} has not answered yet"
        raise TransientError(message)
    _PENDING_CHECKS.remove(check)
    return check.future.result()


def _read_new_messages(source: Source, position: str) -> TriggerResult | None:
    connection = resolve_connection(source.connection)
    if connection.kind in QUEUES:
        message = f"on_message= cannot watch {connection.kind} without consuming messages"
        hint = "kafka, kinesis and folders of files can be watched; for a queue, declare a stream that consumes it."
        raise UnsupportedError(message, hint=hint)
    opened = open_stream(connection, source.query or source.path or "")
    try:
        latest = opened.start(LATEST)
        if not position:
            return TriggerResult(as_text(latest), triggered=False)
        before = from_text(position)
        return TriggerResult(as_text(latest), triggered=True) if opened.distance(before, latest) else None
    finally:
        opened.close()
