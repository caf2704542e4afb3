"""Copies of dead letters for a topic: written after the commit that stores them, and again after a crash in between."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, TypedDict, cast

from ematix_flow.commit.ledger import parse_instant
from ematix_flow.commit.rejects import resolve_rejects
from ematix_flow.connect.base.combined_source import source_in
from ematix_flow.connect.base.stream_source import LATE, UNREADABLE, keeps_payload, payload_of
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.kafka.dead_letters import DeadLetter, send
from ematix_flow.engine.rejects import list_rejects
from ematix_flow.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from ematix_flow.commit.rejects import Reject
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.connection.brokers import KafkaConnection
    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.declare.stream.stream import Stream, StreamSourceDeclaration

SENT = "sent"
"""Status of a dead letter that its topic has."""

AT_ONCE = 10_000
"""Dead letters that are read at a time."""


def has_dead_letter_topic(stream: Stream) -> bool:
    """Return whether dead letters go to a topic, or refuse what cannot be."""
    if stream.dead_letter_topic is None or stream.dlq_store == "table":
        if stream.dlq_store == "topic":
            message = f"stream {stream.name!r} says dlq_store='topic' and no dead_letter_topic="
            raise PlanError(message, origin=stream.origin)
        return False
    kafka_source_of(stream)
    return True


def kafka_source_of(stream: Stream) -> StreamSourceDeclaration:
    """Return the source whose brokers have the dead-letter topic: the first of Kafka; a stream without one is refused."""
    kinds = [resolve_connection(source.connection).kind for source in stream.sources]
    for source, kind in zip(stream.sources, kinds, strict=True):
        if kind == "kafka":
            return source
    message = f"dead_letter_topic= of stream {stream.name!r} needs a Kafka source, and it reads {', '.join(kinds)}"
    raise PlanError(message, hint="drop it: dead letters are kept in the target.", origin=stream.origin)


def forward(stream: Stream, pipeline: Pipeline, database: TargetSystem) -> int:
    """Copy dead letters that wait into the topic and record that it has them; return how many there were."""
    count = 0
    while dead_letters := list_rejects(pipeline, status="pending", limit=AT_ONCE):
        _send(stream, [_fields_of_reject(reject) for reject in dead_letters])
        count += resolve_rejects(database, [dead_letter.reject_id for dead_letter in dead_letters], SENT)
    return count


def send_rejects(stream: Stream, rejects: pa.Table, now: datetime) -> None:
    """Write messages that no table stores into the topic, before the batch that they belong to counts as done.

    A batch that is tried again writes them again, under the same ids.
    """
    _send(stream, [_fields_of_row(stream, row, now) for row in rejects.to_pylist()])


def send_again(stream: Stream, rejects: Sequence[dict[str, Any]], attempts: Mapping[str, int], now: datetime) -> None:
    """Write messages that have failed again into the topic; `attempts` has by their offset how often that was."""
    dead_letters = [_fields_of_row(stream, row, now) for row in rejects]
    for dead_letter in dead_letters:
        dead_letter["attempt"] = attempts.get(dead_letter["place"], 1)
        dead_letter["id"] = f"{dead_letter['id']}:{dead_letter['attempt']}"
    if dead_letters:
        _send(stream, dead_letters)


def _send(stream: Stream, dead_letters: Sequence[_DeadLetterFields]) -> None:
    source = kafka_source_of(stream)
    connection = cast("KafkaConnection", resolve_connection(source.connection))
    payload_format = connection.payload_format or "json"
    letters = [
        DeadLetter(stream.name, source_in(dead_letter["place"]) or source.id, payload_format, **dead_letter)
        for dead_letter in dead_letters
    ]
    send(connection, str(stream.dead_letter_topic), letters)


class _DeadLetterFields(TypedDict):
    """The fields of one message."""

    id: str
    stage: str
    error: str
    place: str
    failed_at_ms: int
    attempt: int
    payload: bytes
    is_row: bool


def _fields_of_row(stream: Stream, row: dict[str, Any], now: datetime) -> _DeadLetterFields:
    position = row["source_position"]
    return {
        "id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{stream.name}\x1f{position}\x1f{row['row_json']}")),
        "stage": "late_data" if row["reason"].startswith(LATE) else "transform",
        "error": row["reason"],
        "place": position or "",
        "failed_at_ms": int(now.timestamp() * 1000),
        "attempt": 1,
        "payload": payload_of(row["row_json"]),
        "is_row": not keeps_payload(row["row_json"]),
    }


def _fields_of_reject(reject: Reject) -> _DeadLetterFields:
    about = reject.column_name not in (None, UNREADABLE)
    return {
        "id": reject.reject_id,
        "stage": reject.stage,
        "error": f"{reject.column_name}: {reject.reason}" if about else reject.reason,
        "place": reject.source_position or "",
        "failed_at_ms": int(parse_instant(reject.rejected_at).timestamp() * 1000),
        "attempt": reject.attempt or 1,
        "payload": payload_of(reject.row_json),
        "is_row": not keeps_payload(reject.row_json),
    }
