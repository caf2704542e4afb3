"""Builds the application: state, routes, pages and the guard in front of them; it starts no server."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from ematix_flow.commit.analytics import AnalyticsStore
from ematix_flow.engine.query import Datasources
from ematix_flow.engine.stream import operations
from ematix_flow.serve.web.answers import PlainJSON, add_error_answers
from ematix_flow.serve.web.api import pipelines, plans, quality, query, runs, saved, streams, system, workflows
from ematix_flow.serve.web.events import EventHub
from ematix_flow.serve.web.guard import Guard
from ematix_flow.serve.web.pages import login, routes
from ematix_flow.serve.web.pages.render import STATIC, error_page
from ematix_flow.serve.web.queries import Queries, names_of
from ematix_flow.serve.web.state import WebState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ematix_flow.serve.web.settings import WebSettings

SUBJECTS = (system, runs, pipelines, workflows, streams, plans, quality, query, saved)


def build_app(settings: WebSettings, dead_letters: Any = None) -> FastAPI:
    """Return the application of a page."""
    from ematix_flow import __version__

    shared = WebState(
        settings,
        EventHub(settings.log),
        Queries(Datasources(settings.datasources, names_of("EMATIX_FLOW_QUERY_FUNCTIONS"))),
        AnalyticsStore(settings.analytics or settings.log.folder / "analytics.db"),
        dead_letters or operations,
    )

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
    for subject in SUBJECTS:
        app.include_router(subject.router)
    if settings.ui_folder is not None:
        app.mount("/", StaticFiles(directory=settings.ui_folder, html=True))
    else:
        app.include_router(login.router)
        app.include_router(routes.router)
        app.mount("/static", StaticFiles(directory=STATIC))
    add_error_answers(app, error_page)
    app.add_middleware(Guard, settings=settings, logins=shared.logins)
    return app
