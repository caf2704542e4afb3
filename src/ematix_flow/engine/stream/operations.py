"""Dead letters and positions of streams as plain data, for `ematix_flow._core`; other modules do the work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.ledger import parse_instant
from ematix_flow.connect.base.combined_source import source_in
from ematix_flow.connect.base.stream_source import payload_of
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.stream.decorator import load_stream
from ematix_flow.declare.stream.handle import StreamHandle
from ematix_flow.declare.stream.stream import Stream
from ematix_flow.engine.stream import dead_letters
from ematix_flow.engine.stream.control import move_stream
from ematix_flow.engine.stream.dead_letters import Selection
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.errors import DeclareError

if TYPE_CHECKING:
    from ematix_flow.commit.rejects import Reject

ALL = {"kind": "all"}


def dlq_stats(pipeline: Any) -> dict[str, Any]:
    """Return how many dead letters a stream has, by status and by stage."""
    stream = stream_of(pipeline)
    counted = dead_letters.stats(stream)
    waiting = dead_letters.waiting(stream)
    return {
        "pipeline": stream.name,
        "depth": {"pending": len(waiting), "parked": counted["parked"]},
        "by_stage": dict(Counter(dead_letter.stage for dead_letter in waiting)),
        "replayed": counted["replayed"],
    }


def dlq_records(pipeline: Any, status: str | None = "pending", limit: int = 100) -> list[dict[str, Any]]:
    """Return dead letters, newest first; those of a dead-letter topic are pending too; without a status, return all."""
    stream = stream_of(pipeline)
    statuses = dead_letters.WAITING if status == "pending" else (status,)
    rejects = [dead_letter for one in statuses for dead_letter in dead_letters.records(stream, status=one, limit=limit)]
    rejects.sort(key=lambda dead_letter: (dead_letter.rejected_at, dead_letter.reject_id), reverse=True)
    return [_dead_letter_dict(stream, dead_letter) for dead_letter in rejects[:limit]]


def dlq_record_by_id(pipeline: Any, record_id: str) -> dict[str, Any]:
    """Return one dead letter."""
    stream = stream_of(pipeline)
    return _dead_letter_dict(stream, dead_letters.record_by_id(stream, record_id))


def dlq_replay(
    pipeline: Any, selection: Mapping[str, Any] | None = None, max_attempts: int | None = None
) -> dict[str, Any]:
    """Send dead letters through the stream again and return what became of them."""
    stream = stream_of(pipeline)
    if max_attempts is not None:
        if max_attempts < 1:
            raise DeclareError(f"max_attempts is {max_attempts}, and a message is tried at least once")
        stream = replace(stream, dlq_max_attempts=max_attempts)
    return dead_letters.replay(stream, Selection.of(dict(ALL if selection is None else selection)))


def dlq_park(pipeline: Any, selection: Mapping[str, Any]) -> dict[str, Any]:
    """Set dead letters aside and return how many there were."""
    return {"parked": dead_letters.park(stream_of(pipeline), Selection.of(dict(selection)))}


def dlq_purge(pipeline: Any, selection: Mapping[str, Any]) -> dict[str, Any]:
    """Remove dead letters and return how many there were."""
    return {"purged": dead_letters.purge(stream_of(pipeline), Selection.of(dict(selection)))}


def stream_rewind(pipeline: Any, to: Any, *, confirm_state_reset: bool = False) -> dict[str, Any]:
    """Move all targets of a stream to an instant, a position or a name, and return where they were and are."""
    stream = stream_of(pipeline)
    if stream.is_stateful and not confirm_state_reset:
        message = f"stream {stream.name!r} remembers rows between batches"
        raise DeclareError(message, hint="agree with confirm_state_reset=True that they are forgotten.")
    moved = move_stream(stream, _where(to), StreamOptions(), healthy=True)
    sources = [{"target": one.target, "before": one.before, "after": one.after} for one in moved]
    return {"pipeline": stream.name, "state_cleared": stream.is_stateful, "sources": sources}


def stream_of(pipeline: Any) -> Stream:
    """Return the stream of a reference: a declared one by name or handle, or one of a TOML file by its path."""
    if isinstance(pipeline, Stream):
        return pipeline
    if isinstance(pipeline, StreamHandle):
        return pipeline.stream
    text = str(pipeline)
    return load_stream(text) if text.endswith(".toml") else PROJECT.stream(text)


def _where(to: Any) -> str:
    """Return a target of a rewind as the name, instant or position that the engine understands."""
    if isinstance(to, str):
        return to
    kind = to.get("kind") if isinstance(to, Mapping) else None
    match kind:
        case "timestamp":
            return datetime.fromtimestamp(int(to["ms"]) / 1000, UTC).isoformat()
        case "offset":
            return bytes(to["bytes"]).decode()
    message = f"{to!r} is no place to rewind to"
    hint = '{"kind": "timestamp", "ms": N}, {"kind": "offset", "bytes": [...]} with a position as JSON, or a word.'
    raise DeclareError(message, hint=hint)


def _dead_letter_dict(stream: Stream, dead_letter: Reject) -> dict[str, Any]:
    return {
        "id": dead_letter.reject_id,
        "status": dead_letter.status,
        "stage": dead_letter.stage,
        "error": dead_letter.reason,
        "source_id": source_in(dead_letter.source_position) or stream.sources[0].id,
        "offset": dead_letter.source_position,
        "failed_at": int(parse_instant(dead_letter.rejected_at).timestamp() * 1000),
        "attempt": dead_letter.attempt or 1,
        "payload_format": "json",
        "payload": payload_of(dead_letter.row_json),
        "target": dead_letter.target_name,
    }
