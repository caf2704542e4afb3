"""Renders templates: everything that comes from data is escaped, and times are marked up for the viewer's own zone."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from ematix_flow.connect.config.redact import redacted, redacted_json
from ematix_flow.serve.web.answers import state_of, viewer_in
from ematix_flow.serve.web.pages import charts

FOLDER = Path(__file__).resolve().parent.parent
STATIC = FOLDER / "static"

PAGES = (
    ("/", "Overview"), ("/pipelines", "Pipelines"), ("/runs", "Runs"), ("/workflows", "Workflows"),
    ("/streams", "Streams"), ("/plans", "Plan & diff"), ("/quality", "Quality"), ("/backfills", "Backfill"),
    ("/connections", "Connections"), ("/sql", "SQL lab"), ("/engine", "Engine"), ("/actions", "Actions"),
)  # fmt: skip
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


@cache
def environment() -> Environment:
    """Return the templates of this package."""
    env = Environment(loader=FileSystemLoader(FOLDER / "templates"), autoescape=True, undefined=StrictUndefined,
                      trim_blocks=True, lstrip_blocks=True)  # fmt: skip
    env.filters |= {
        "when": when,
        "duration": duration,
        "number": number,
        "segment": lambda text: quote(str(text), safe=""),
        "pretty": lambda value: redacted_json(value, indent=2),
        "percent": lambda value: "" if value is None else f"{value:.0%}",
    }
    env.globals |= {
        "run_bars": charts.run_bars,
        "history_chart": charts.history_chart,
        "timeline": charts.timeline,
        "graph_picture": charts.graph_picture,
    }
    return env


def render(request: Request, template: str, *, http_status: int = 200, **facts: Any) -> HTMLResponse:
    """Return a page; known secrets in what it shows are replaced."""
    viewer, shared = viewer_in(request), state_of(request)
    page = (
        environment()
        .get_template(template)
        .render(
            **redacted(facts),
            viewer=viewer,
            settings=shared.settings,
            project=shared.log.project.name or "",
            run_log=shared.log.display_address,
            pages=PAGES,
            path=request.url.path,
            can_write=viewer.may("write"),
            can_query=viewer.may("query"),
        )
    )
    return HTMLResponse(page, status_code=http_status)


def error_page(request: Request, status: int, content: dict[str, Any]) -> HTMLResponse:
    """Return a page that says what went wrong."""
    known = {"hint": content.get("hint"), "at": content.get("at")}
    return render(request, "error.html", http_status=status, code=status, detail=content["detail"], **known)


def when(text: str | datetime | None) -> Markup:
    """Return an instant as an element that the page shows in the viewer's zone, with UTC on hover."""
    if not text:
        return Markup("")
    at = text if isinstance(text, datetime) else datetime.fromisoformat(text)
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    shown = f"{at:%Y-%m-%d %H:%M:%S}"
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(at.isoformat(), shown, f"{shown}Z")


def duration(milliseconds: float | None) -> str:
    """Return a length of time for people."""
    if milliseconds is None:
        return ""
    seconds = milliseconds / 1000
    if seconds < 1:
        return f"{milliseconds:.0f} ms"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)} min {int(seconds % _MINUTE)} s"
    if seconds < _DAY:
        return f"{int(seconds // _HOUR)} h {int(seconds % _HOUR // _MINUTE)} min"
    return f"{int(seconds // _DAY)} d {int(seconds % _DAY // _HOUR)} h"


def number(value: float | None) -> str:
    """Return a number with separators."""
    return "" if value is None else f"{value:,}"
