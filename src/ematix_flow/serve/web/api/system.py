"""Routes about the page itself and its surroundings: health, who is asking, connections, the engine, events, actions."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import StreamingResponse

from ematix_flow.connect.config.lookup import find_connection, list_connections
from ematix_flow.engine.doctor import check_health, machine_health
from ematix_flow.engine.schedule.actions import record_action
from ematix_flow.engine.schedule.manual import actions_of
from ematix_flow.engine.spark.warm import engines
from ematix_flow.serve.web.answers import PlainJSON, Shared, Who, require
from ematix_flow.serve.web.events import MOST_READERS
from ematix_flow.serve.web.names import NAME
from ematix_flow.serve.web.settings import READ, WRITE

router = APIRouter(prefix="/api", tags=["system"])


@router.get("/health", summary="Whether the page answers")
def health() -> PlainJSON:
    """Return that the page answers; this route needs no login."""
    return PlainJSON({"status": "ok"})


@router.get("/me", summary="Who is asking, and what they may do")
def me(viewer: Who, shared: Shared) -> PlainJSON:
    """Return the identity, role and permissions of the request."""
    settings = shared.settings
    return PlainJSON(
        {
            "authenticated": viewer.identity is not None and (settings.token is not None or settings.rbac is not None),
            "identity": viewer.identity,
            "role": viewer.role,
            "permissions": list(viewer.permissions),
            "rbac_enabled": settings.rbac is not None,
            "read_only": settings.read_only,
        }
    )


def connection_entries() -> list[dict[str, Any]]:
    """Return the connections as `flow connections list` prints them; nothing in them is secret."""
    return [
        {"name": name, "kind": one.kind, "place": one.config_source, "shown": one.display_text}
        for name, one in list_connections().items()
    ]


@router.get("/connections", summary="Connections, without secrets", **require(READ))
def connections() -> PlainJSON:
    """Return every connection that a name means, and where it is written."""
    return PlainJSON({"connections": connection_entries()})


@router.post(f"/connections/{NAME}/check", summary="Whether a connection answers", **require(WRITE))
def check(name: str, viewer: Who, shared: Shared) -> PlainJSON:
    """Open a connection, and return whether it answers and how quickly."""
    find_connection(name)
    report = check_health(name)
    record_action(shared.log, "check", name, viewer.identity or "", note=report.status)
    return PlainJSON(report.to_dict())


@router.get("/engine", summary="The warm engine and this machine", **require(READ))
def engine() -> PlainJSON:
    """Return the warm engines of this user, and the health of Python, Java, Spark, the run log and the scheduler."""
    return PlainJSON(engine_facts())


def engine_facts() -> dict[str, Any]:
    """Return the engines and the health of this machine."""
    return {
        "engines": [one.to_dict() for one in engines()],
        "machine": [report.to_dict() for report in machine_health()],
    }


@router.get("/actions", summary="What operators requested and did", **require(READ))
def actions(shared: Shared, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> PlainJSON:
    """Return the newest actions, with who did them and what became of them."""
    return PlainJSON({"actions": [asdict(action) for action in actions_of(shared.log, limit)]})


@router.get("/events", summary="What changes, as server-sent events", **require(READ))
async def events(shared: Shared) -> Any:
    """Return a stream that names runs, pipelines and actions as they change."""
    if len(shared.events.readers) >= MOST_READERS:
        return PlainJSON({"detail": "too many pages are open"}, status_code=503)
    return StreamingResponse(shared.events.subscribe(), media_type="text/event-stream")
