"""Routes about streams: where they stand, their dead letters, and moving them to another position."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.report.declared import stream_declaration
from ematix_flow.engine.report.pipelines import PipelineQuery, pipeline_summaries
from ematix_flow.engine.schedule.actions import record_action
from ematix_flow.engine.schedule.status import running_now
from ematix_flow.engine.stream.control import stream_status
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.recorded_replay import recorded_replay
from ematix_flow.serve.web.answers import Conflict, PlainJSON, Shared, Who, require
from ematix_flow.serve.web.names import NAME
from ematix_flow.serve.web.settings import READ, WRITE
from ematix_flow.serve.web.state import WebState

router = APIRouter(prefix="/api/streams", tags=["streams"])

PREVIEW = 4096
SCANNED = 10_000
"""Dead letters that are counted by their time."""
_MINUTES = (1, 5, 15, 60)


class Replay(BaseModel):
    """Which dead letters go through the stream again."""

    model_config = ConfigDict(extra="forbid")

    selection: dict[str, Any] | None = None
    max_attempts: int | None = None


class Selected(BaseModel):
    """Which dead letters are meant; there is no default."""

    model_config = ConfigDict(extra="forbid")

    selection: dict[str, Any]


class Rewind(BaseModel):
    """Where a stream goes on."""

    model_config = ConfigDict(extra="forbid")

    to: str | dict[str, Any]
    confirm_state_reset: bool = False


@router.get("", summary="Streams, with what they last wrote about themselves", **require(READ))
def streams(shared: Shared) -> PlainJSON:
    """Return every stream with its state, rates and lag."""
    return PlainJSON({"streams": stream_summaries(shared)})


def stream_summaries(shared: WebState) -> list[dict[str, Any]]:
    """Return the streams as plain data."""
    summaries = pipeline_summaries(shared.log, SYSTEM_CLOCK.now(), PipelineQuery(kind="streaming"))
    return [one | stream_declaration(PROJECT.streams[one["name"]]) for one in summaries]


@router.get(f"/{NAME}", summary="One stream: declaration and positions", **require(READ))
def stream(name: str) -> PlainJSON:
    """Return the position of every target of a stream, and what waits for it; the source is asked now."""
    declared = PROJECT.stream(name)
    targets = [one.to_dict() for one in stream_status(declared, StreamOptions())]
    return PlainJSON({"name": name, "declaration": stream_declaration(declared), "targets": targets})


@router.get(f"/{NAME}/dlq", summary="How many dead letters there are", **require(READ))
def dead_letters(name: str, shared: Shared) -> PlainJSON:
    """Return the dead letters of a stream by status, stage and age."""
    return PlainJSON(dead_letter_counts(shared, name))


def dead_letter_counts(shared: WebState, name: str) -> dict[str, Any]:
    """Return counts as plain data."""
    stats = shared.dead_letters.dlq_stats(PROJECT.stream(name))
    records = shared.dead_letters.dlq_records(PROJECT.stream(name), status=None, limit=SCANNED)
    now = SYSTEM_CLOCK.now().timestamp() * 1000
    arrivals = {
        f"last_{minutes}m": sum(record["failed_at"] >= now - minutes * 60_000 for record in records)
        for minutes in _MINUTES
    }
    known = {key: stats[key] for key in ("pipeline", "depth", "by_stage")}
    return {**known, "arrivals": arrivals, "scanned": len(records), "truncated": len(records) >= SCANNED}


@router.get(f"/{NAME}/dlq/records", summary="Dead letters", **require(READ))
def records(
    name: str,
    shared: Shared,
    status: Literal["pending", "parked", "replayed", "all"] = "pending",
    page: Annotated[int, Query(ge=1, le=10_000)] = 1,
    page_size: Annotated[int, Query(ge=1, le=500)] = 50,
) -> PlainJSON:
    """Return one page of dead letters, newest first, with the beginning of each message."""
    return PlainJSON(dead_letter_page(shared, name, status, page, page_size))


def dead_letter_page(shared: WebState, name: str, status: str, page: int, page_size: int) -> dict[str, Any]:
    """Return one page of dead letters as plain data."""
    chosen = None if status == "all" else status
    listed = shared.dead_letters.dlq_records(PROJECT.stream(name), status=chosen, limit=page * page_size + 1)
    some = listed[(page - 1) * page_size : page * page_size]
    entries = [_entry(name, record) for record in some]
    more = len(listed) > page * page_size
    return {"pipeline": name, "status": status, "page": page, "page_size": page_size, "more": more, "records": entries}


def _entry(name: str, record: dict[str, Any]) -> dict[str, Any]:
    payload: bytes = record["payload"] if isinstance(record["payload"], bytes) else str(record["payload"]).encode()
    offset = "" if record["offset"] is None else str(record["offset"])
    return {
        "id": record["id"],
        "status": record["status"],
        "stage": record["stage"],
        "error": record["error"],
        "source_id": record["source_id"],
        "offset_base64": base64.b64encode(offset.encode()).decode(),
        "event_ts": None,
        "failed_at": record["failed_at"],
        "attempt": record["attempt"],
        "payload_format": record["payload_format"],
        "payload_preview": payload[:PREVIEW].decode("utf-8", "replace"),
        "payload_size": len(payload),
        "payload_truncated": len(payload) > PREVIEW,
        "download": f"/api/streams/{quote(name, safe='')}/dlq/records/{quote(str(record['id']), safe='')}/payload",
    }


@router.get(f"/{NAME}/dlq/records/{{record_id}}/payload", summary="The message of a dead letter", **require(READ))
def payload(name: str, record_id: str, shared: Shared) -> Response:
    """Return the message as it came, as a file to be saved."""
    record = shared.dead_letters.dlq_record_by_id(PROJECT.stream(name), record_id)
    content = record["payload"] if isinstance(record["payload"], bytes) else str(record["payload"]).encode()
    headers = {"Content-Disposition": 'attachment; filename="message.bin"'}
    return Response(content, media_type="application/octet-stream", headers=headers)


@router.post(f"/{NAME}/dlq/replay", summary="Send dead letters through the stream again", **require(WRITE))
def replay(name: str, shared: Shared, viewer: Who, body: Replay | None = None) -> PlainJSON:
    """Replay dead letters and return what became of them; what fails again is stored again."""
    body = body or Replay()
    declared = PROJECT.stream(name)
    record_action(shared.log, "replay", name, viewer.identity or "")
    run_id, report = recorded_replay(
        shared.log,
        declared,
        lambda: shared.dead_letters.dlq_replay(declared, body.selection, body.max_attempts),
    )
    return PlainJSON({"run_id": run_id, "report": report})


@router.post(f"/{NAME}/dlq/park", summary="Set dead letters aside", **require(WRITE))
def park(name: str, body: Selected, shared: Shared, viewer: Who) -> PlainJSON:
    """Set dead letters aside, so that a replay of all leaves them."""
    parked = shared.dead_letters.dlq_park(PROJECT.stream(name), body.selection)
    record_action(shared.log, "park", name, viewer.identity or "", note=str(parked))
    return PlainJSON(parked)


@router.post(f"/{NAME}/dlq/purge", summary="Remove dead letters", **require(WRITE))
def purge(name: str, body: Selected, shared: Shared, viewer: Who) -> PlainJSON:
    """Remove dead letters for good."""
    purged = shared.dead_letters.dlq_purge(PROJECT.stream(name), body.selection)
    record_action(shared.log, "purge", name, viewer.identity or "", note=str(purged))
    return PlainJSON(purged)


@router.post(f"/{NAME}/rewind", summary="Let a stream go on elsewhere", **require(WRITE))
def rewind(name: str, body: Rewind, shared: Shared, viewer: Who) -> PlainJSON:
    """Move every target of a stream that does not run to an instant, a position or a name."""
    declared = PROJECT.stream(name)
    if name in running_now(shared.log):
        raise Conflict(f"stream {name!r} is running", hint="stop it first; a running stream would end with an error.")
    moved = shared.dead_letters.stream_rewind(declared, body.to, confirm_state_reset=body.confirm_state_reset)
    record_action(shared.log, "rewind", name, viewer.identity or "", note=str(body.to))
    return PlainJSON(moved)
