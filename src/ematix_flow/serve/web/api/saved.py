"""Routes about what people save: queries, charts over them, dashboards of charts, and alerts on a value."""

from __future__ import annotations

import operator
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from ematix_flow.engine.query import DEFAULT_ROWS
from ematix_flow.engine.schedule.actions import record_action
from ematix_flow.errors import DeclareError, FlowError
from ematix_flow.serve.web.answers import PlainJSON, Shared, Who, require
from ematix_flow.serve.web.api.query import limit_queries
from ematix_flow.serve.web.settings import QUERY, READ, WRITE
from ematix_flow.serve.web.state import WebState

router = APIRouter(prefix="/api", tags=["saved"])

Name = Annotated[str, Field(min_length=1, max_length=200)]
Sql = Annotated[str, Field(min_length=1, max_length=100_000)]
_OPERATORS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne}  # fmt: skip


class SavedQuery(BaseModel):
    """A query with a name."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    datasource_id: str
    sql: Sql
    description: str = ""


class Chart(BaseModel):
    """A picture of a saved query."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    query_id: str
    kind: Literal["bar", "line", "table", "number"] = "bar"
    x: str = ""
    y: str = ""


class Dashboard(BaseModel):
    """Charts on one page, in this order."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    charts: list[str] = Field(default_factory=list, max_length=50)


class Alert(BaseModel):
    """A condition on the first row of a saved query."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    query_id: str
    column: str
    op: Literal[">", ">=", "<", "<=", "==", "!="] = ">"
    threshold: Annotated[float, Field(allow_inf_nan=False)]


def _add_routes(path: str, kind: str, model: type[BaseModel], one: str) -> None:
    """Add the routes that list, save, show, change and remove what is saved of one kind."""

    def listed(shared: Shared) -> PlainJSON:
        return PlainJSON({kind: shared.store.all(kind)})

    def add(body: Any, shared: Shared, viewer: Who) -> PlainJSON:
        _check(shared, body)
        saved = shared.store.add(kind, viewer.identity or "", body.model_dump())
        record_action(shared.log, "save", body.name, viewer.identity or "", note=one)
        return PlainJSON(saved, status_code=201)

    def get(key: str, shared: Shared) -> PlainJSON:
        return PlainJSON(shared.store.get(kind, key))

    def change(key: str, body: Any, shared: Shared, viewer: Who) -> PlainJSON:
        _check(shared, body)
        saved = shared.store.change(kind, key, body.model_dump())
        record_action(shared.log, "change", body.name, viewer.identity or "", note=one)
        return PlainJSON(saved)

    def drop(key: str, shared: Shared, viewer: Who) -> PlainJSON:
        name = str(shared.store.get(kind, key)["name"])
        shared.store.drop(kind, key)
        record_action(shared.log, "remove", name, viewer.identity or "", note=one)
        return PlainJSON({"removed": key})

    for function in (add, change):
        function.__annotations__["body"] = model  # which the schema and the check of a request are built from
    router.get(f"/{path}", summary=f"Every saved {one}", name=f"list_{kind}", **require(READ))(listed)
    router.post(f"/{path}", summary=f"Save a {one}", name=f"add_{kind}", status_code=201, **require(WRITE))(add)
    router.get(f"/{path}/{{key}}", summary=f"One saved {one}", name=f"get_{kind}", **require(READ))(get)
    router.put(f"/{path}/{{key}}", summary=f"Change a {one}", name=f"change_{kind}", **require(WRITE))(change)
    router.delete(f"/{path}/{{key}}", summary=f"Remove a {one}", name=f"drop_{kind}", **require(WRITE))(drop)


def _check(shared: WebState, body: BaseModel) -> None:
    """Refuse what names something that is not saved."""
    if isinstance(body, Chart | Alert):
        shared.store.get("saved_queries", body.query_id)
    if isinstance(body, Dashboard):
        for chart in body.charts:
            shared.store.get("charts", chart)
    if isinstance(body, SavedQuery):
        shared.queries.sources.open(body.datasource_id)


def run_chart(shared: WebState, chart: dict[str, Any]) -> dict[str, Any]:
    """Return a chart with the rows of its query, or with why it has none."""
    try:
        saved = shared.store.get("saved_queries", chart["query_id"])
        return {"chart": chart, **shared.queries.run(saved["datasource_id"], saved["sql"], DEFAULT_ROWS)}
    except FlowError as error:
        return {"chart": chart, "error": error.what}


@router.post("/charts/{key}/query", summary="The rows of a chart", **require(QUERY))
def query_chart(key: str, shared: Shared, viewer: Who) -> PlainJSON:
    """Return a chart with the rows of its query."""
    limit_queries(shared, viewer)
    return PlainJSON(run_chart(shared, shared.store.get("charts", key)))


@router.post("/dashboards/{key}/query", summary="The rows of all charts of a dashboard", **require(QUERY))
def query_dashboard(key: str, shared: Shared, viewer: Who) -> PlainJSON:
    """Return a dashboard with the rows of its charts; one that fails says why and stops no other."""
    limit_queries(shared, viewer)
    dashboard = shared.store.get("dashboards", key)
    known = {chart["id"]: chart for chart in shared.store.all("charts")}
    charts = [run_chart(shared, known[chart]) for chart in dashboard["charts"] if chart in known]
    return PlainJSON({"dashboard": dashboard, "charts": charts})


@router.post("/alerts/{key}/check", summary="Whether an alert's condition holds", **require(QUERY))
def check_alert(key: str, shared: Shared, viewer: Who) -> PlainJSON:
    """Run the query of an alert and compare the first row's value with the threshold."""
    limit_queries(shared, viewer)
    alert = shared.store.get("alerts", key)
    saved = shared.store.get("saved_queries", alert["query_id"])
    result = shared.queries.run(saved["datasource_id"], saved["sql"], 1)
    names = [column["name"] for column in result["columns"]]
    if alert["column"] not in names:
        raise DeclareError(f"the query has no column {alert['column']!r}")
    value = result["rows"][0][names.index(alert["column"])] if result["rows"] else None
    try:
        triggered = value is not None and _OPERATORS[alert["op"]](float(value), alert["threshold"])
    except (TypeError, ValueError):
        raise DeclareError(f"the value {value!r} is no number") from None
    return PlainJSON({"alert": alert, "value": value, "triggered": bool(triggered)})


_add_routes("saved-queries", "saved_queries", SavedQuery, "query")
_add_routes("charts", "charts", Chart, "chart")
_add_routes("dashboards", "dashboards", Dashboard, "dashboard")
_add_routes("alerts", "alerts", Alert, "alert")
