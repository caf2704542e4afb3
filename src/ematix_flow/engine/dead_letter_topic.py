"""Copies of dead letters for a topic: written after the commit that keeps them, and again after a crash in between."""

from __future__ import annotations

import uuid
from contextlib import closing
from typing import TYPE_CHECKING, cast

from ematix_flow.commit.ledger import Ledger, parse_instant, transaction
from ematix_flow.connect.kafka_dead_letters import DeadLetter, send
from ematix_flow.connect.resolve import resolve_connection
from ematix_flow.connect.stream import payload_of
from ematix_flow.engine.rejecting import list_rejects
from ematix_flow.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import pyarrow as pa

    from ematix_flow.connect.base import Database
    from ematix_flow.declare.connection_streams import KafkaConnection
    from ematix_flow.declare.pipeline import Pipeline
    from ematix_flow.declare.stream import Stream
    from ematix_flow.engine.rejecting import Reject

SENT = "sent"
"""Status of a dead letter that its topic has."""

AT_ONCE = 10_000


def wants_topic(stream: Stream) -> bool:
    """Say whether dead letters go to a topic, or refuse what cannot be."""
    source = resolve_connection(stream.sources[0].connection)
    if stream.dead_letter_topic is None or stream.dlq_store == "table":
        if stream.dlq_store == "topic":
            message = f"stream {stream.name!r} says dlq_store='topic' and no dead_letter_topic="
            raise PlanError(message, origin=stream.origin)
        return False
    if source.kind != "kafka":
        message = f"dead_letter_topic= of stream {stream.name!r} needs a Kafka source, and it reads {source.kind}"
        raise PlanError(message, hint="drop it: dead letters are kept in the target.", origin=stream.origin)
    return True


def forward(stream: Stream, pipeline: Pipeline, database: Database) -> int:
    """Copy dead letters that wait into the topic and note that it has them; gives how many there were."""
    letters = list_rejects(pipeline, status="pending", limit=AT_ONCE)
    if not letters:
        return 0
    _send(stream, [_letter(stream, letter) for letter in letters])
    ledger = Ledger(database)
    with closing(database.session()) as session, transaction(session):
        ledger.settle_rejects(session, [letter.reject_id for letter in letters], SENT)
    return len(letters)


def send_rejects(stream: Stream, rejects: pa.Table, now: datetime) -> None:
    """Write messages that no table keeps into the topic, before the batch that they belong to counts as done.

    A batch that is tried again writes them again, under the same ids.
    """
    letters = [
        DeadLetter(
            id=str(uuid.uuid5(uuid.NAMESPACE_OID, f"{stream.name}\x1f{row['source_position']}\x1f{row['row_json']}")),
            pipeline=stream.name,
            stage="transform",
            error=row["reason"],
            source_id=stream.sources[0].id,
            place=row["source_position"] or "",
            failed_at_ms=int(now.timestamp() * 1000),
            attempt=1,
            payload_format=_format(stream),
            payload=payload_of(row["row_json"]),
        )
        for row in rejects.to_pylist()
    ]
    _send(stream, letters)


def _send(stream: Stream, letters: Sequence[DeadLetter]) -> None:
    connection = resolve_connection(stream.sources[0].connection)
    send(cast("KafkaConnection", connection), str(stream.dead_letter_topic), letters)


def _format(stream: Stream) -> str:
    return getattr(resolve_connection(stream.sources[0].connection), "payload_format", None) or "json"


def _letter(stream: Stream, reject: Reject) -> DeadLetter:
    raw = reject.column_name == "line" or reject.reason.startswith("transform: ")
    return DeadLetter(
        id=reject.reject_id,
        pipeline=stream.name,
        stage="transform" if raw else "write",
        error=reject.reason if reject.column_name in (None, "line") else f"{reject.column_name}: {reject.reason}",
        source_id=stream.sources[0].id,
        place=reject.source_position or "",
        failed_at_ms=int(parse_instant(reject.rejected_at).timestamp() * 1000),
        attempt=reject.attempt or 1,
        payload_format=_format(stream),
        payload=payload_of(reject.row_json),
    )
