"""Builds the application: state, routes, pages and the guard in front of them; it starts no server."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from ematix_flow.engine.stream import operations
from ematix_flow.serve.web.answers import PlainJSON, add_error_answers
from ematix_flow.serve.web.api import pipelines, runs, system, workflows
from ematix_flow.serve.web.events import EventHub
from ematix_flow.serve.web.guard import Guard
from ematix_flow.serve.web.state import WebState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ematix_flow.serve.web.settings import WebSettings

ROUTERS = (system.router, runs.router, pipelines.router, workflows.router)


def build_app(settings: WebSettings, dead_letters: Any = None) -> FastAPI:
    """Return the application of a page."""
    from ematix_flow import __version__

    shared = WebState(settings, EventHub(settings.log), dead_letters or operations)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        shared.stopping.set()
        await shared.events.close()

    app = FastAPI(
        title="ematix-flow",
        version=__version__,
        description="Runs, pipelines, streams and plans of a project; what the commands print as JSON.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        default_response_class=PlainJSON,
        lifespan=lifespan,
    )
    app.state.flow = shared
    for router in ROUTERS:
        app.include_router(router)
    add_error_answers(app)
    app.add_middleware(Guard, settings=settings, logins=shared.logins)
    return app
