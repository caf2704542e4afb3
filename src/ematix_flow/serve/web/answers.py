"""Responses of the JSON API: without secrets, and errors with their hint and the line of the declaration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, HTTPException, Query, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import JSONResponse, Response

from ematix_flow.connect.config.redact import redacted_json, safe_text
from ematix_flow.engine.query import QueryTimeoutError
from ematix_flow.errors import (
    ConnectionMissingError,
    FlowError,
    RunError,
    TransientError,
    UnknownNameError,
    UnsupportedError,
)
from ematix_flow.serve.cli.common.errors import failure_of
from ematix_flow.serve.web.guard import add_headers
from ematix_flow.serve.web.identity import Viewer
from ematix_flow.serve.web.jobs import TooManyJobsError
from ematix_flow.serve.web.state import WebState

if TYPE_CHECKING:
    from fastapi import FastAPI


class Conflict(RunError):  # noqa: N818 - an answer, not an error of the page
    """What is requested cannot be done while something else goes on."""


class PlainJSON(JSONResponse):
    """JSON in which known secrets are replaced."""

    def render(self, content: Any) -> bytes:
        """Return the text."""
        return redacted_json(content).encode()


def state_of(request: Request) -> WebState:
    """Return what all requests share."""
    state: WebState = request.app.state.flow
    return state


def viewer_in(request: Request) -> Viewer:
    """Return who sends a request."""
    viewer: Viewer = request.state.viewer
    return viewer


Shared = Annotated[WebState, Depends(state_of)]
Who = Annotated[Viewer, Depends(viewer_in)]
Offset = Annotated[int, Query(ge=0, le=2**63 - 1, description="How many to pass over.")]


def require(permission: str) -> dict[str, Any]:
    """Return the options of a route that needs a permission; the schema names it."""

    def check(request: Request) -> None:
        viewer = viewer_in(request)
        if not viewer.may(permission):
            role = viewer.role or "no role"
            raise HTTPException(403, f"{viewer.identity} is {role}, and this needs the permission {permission!r}")

    return {"dependencies": [Depends(check)], "openapi_extra": {"x-permission": permission}}


def status_of(error: FlowError) -> int:
    """Return the status code of an error."""
    match error:
        case UnknownNameError() | ConnectionMissingError():
            return 404
        case Conflict():
            return 409
        case QueryTimeoutError():
            return 504
        case TransientError():
            return 503
        case UnsupportedError():
            return 501
    return 400


ErrorPage = Callable[[Request, int, dict[str, Any]], Response]


def add_error_answers(app: FastAPI, page: ErrorPage) -> None:
    """Answer errors with what, hint and location: as JSON to programs, as a page to browsers."""

    def answer(
        request: Request, status: int, content: dict[str, Any], headers: Mapping[str, str] | None = None
    ) -> Response:
        if request.url.path.startswith("/api/") and request.url.path != "/api/docs":
            return PlainJSON(content, status_code=status, headers=headers)
        return page(request, status, content)

    def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, FlowError)  # noqa: S101 - registered for them
        failure = failure_of(error)
        content = {"detail": failure.error, "type": failure.error_type, "hint": failure.hint, "at": failure.at}
        return answer(request, status_of(error), content)

    def failed(request: Request, error: Exception) -> Response:
        text = f"{type(error).__name__}: {safe_text(error)}"
        response = answer(request, 500, {"detail": "the page has failed", "error": text[:500]})
        add_headers(response.headers, private=True)  # this one is sent outside of the guard
        return response

    def full(request: Request, _: Exception) -> Response:
        return answer(request, 429, {"detail": "too much is under way already"}, {"Retry-After": "5"})

    def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, StarletteHTTPException)  # noqa: S101 - registered for them
        return answer(request, error.status_code, {"detail": error.detail}, error.headers)

    def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for them
        return PlainJSON({"detail": jsonable_encoder(error.errors())}, status_code=422)

    app.add_exception_handler(FlowError, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(TooManyJobsError, full)
    app.add_exception_handler(StarletteHTTPException, http)
    app.add_exception_handler(Exception, failed)
