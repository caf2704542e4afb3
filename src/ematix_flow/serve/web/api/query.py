"""Routes of the SQL lab: what can be queried, its tables, and queries that only read."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, ConfigDict, Field

from ematix_flow.engine.query import DEFAULT_ROWS, MOST_ROWS
from ematix_flow.errors import UnknownNameError
from ematix_flow.serve.web.answers import PlainJSON, Shared, Who, require
from ematix_flow.serve.web.identity import Viewer
from ematix_flow.serve.web.names import NAME
from ematix_flow.serve.web.settings import ADMIN, QUERY, READ
from ematix_flow.serve.web.state import WebState

router = APIRouter(prefix="/api", tags=["query"])


class NewQuery(BaseModel):
    """A query over one datasource."""

    model_config = ConfigDict(extra="forbid")

    datasource_id: str
    sql: Annotated[str, Field(min_length=1, max_length=100_000)]
    max_rows: Annotated[int, Field(ge=1, le=MOST_ROWS)] = DEFAULT_ROWS


def limit_queries(shared: WebState, viewer: Viewer) -> None:
    """Refuse a person who queries too often."""
    wait = shared.query_limit.wait_for(viewer.identity or "")
    if wait:
        raise HTTPException(429, "too many queries", headers={"Retry-After": str(int(wait) + 1)})


@router.get("/datasources", summary="What can be queried", **require(READ))
def datasources(shared: Shared) -> PlainJSON:
    """Return the names of the databases that this page may query."""
    return PlainJSON({"datasources": shared.queries.sources.entries()})


@router.get(f"/datasources/{NAME}/schemas", summary="The schemas of a database", **require(READ))
def schemas(name: str, shared: Shared) -> PlainJSON:
    """Return the schemas that have tables."""
    tables = shared.queries.sources.tables(name)
    return PlainJSON({"schemas": sorted({schema for schema, _ in tables})})


@router.get(f"/datasources/{NAME}/schemas/{{schema}}/tables", summary="The tables of a schema", **require(READ))
def tables(name: str, schema: str, shared: Shared) -> PlainJSON:
    """Return the tables and views of a schema."""
    listed = [table for its_schema, table in shared.queries.sources.tables(name) if its_schema == schema]
    return PlainJSON({"tables": [{"name": table, "kind": "table"} for table in listed]})


@router.get(
    f"/datasources/{NAME}/schemas/{{schema}}/tables/{{table}}/columns",
    summary="The columns of a table",
    **require(READ),
)
def columns(name: str, schema: str, table: str, shared: Shared) -> PlainJSON:
    """Return the columns of a table with their types."""
    return PlainJSON({"columns": shared.queries.sources.columns(name, schema, table)})


@router.post("/query", summary="Run a query that only reads", **require(QUERY))
def query(body: NewQuery, shared: Shared, viewer: Who) -> PlainJSON:
    """Return the rows of one SELECT, WITH or EXPLAIN, within a time and a number of rows."""
    limit_queries(shared, viewer)
    return PlainJSON(shared.queries.run(body.datasource_id, body.sql, body.max_rows))


@router.post("/query/async", summary="Run a query in the background", **require(QUERY))
def query_later(body: NewQuery, shared: Shared, viewer: Who) -> PlainJSON:
    """Start a query and return the id of its job."""
    limit_queries(shared, viewer)
    queries = shared.queries
    queries.sources.open(body.datasource_id)
    job = queries.jobs.start(
        "query", body.datasource_id, lambda: queries.run(body.datasource_id, body.sql, body.max_rows)
    )
    return PlainJSON({"job_id": job.id, "status": job.status}, status_code=202)


@router.get("/query/jobs/{job_id}", summary="What became of a query in the background", **require(READ))
def query_job(job_id: str, shared: Shared) -> PlainJSON:
    """Return pending, running, done with the rows, or error."""
    job = shared.queries.jobs.find(job_id)
    if job is None:
        raise UnknownNameError(f"there is no query job {job_id!r}")
    return PlainJSON({"job_id": job.id, "status": job.status, "result": job.result, "error": job.error})


@router.post("/cache/clear", summary="Forget results of queries", **require(ADMIN))
def clear_cache(shared: Shared) -> PlainJSON:
    """Drop every cached result."""
    return PlainJSON({"cleared": shared.queries.forget()})
