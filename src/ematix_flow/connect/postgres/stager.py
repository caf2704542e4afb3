"""The staging tables of a load on PostgreSQL as SQL text, and what the commit must find in them; it runs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.base.stage import ATTEMPT
from ematix_flow.connect.postgres import types
from ematix_flow.connect.types.identifiers import listed, quoted, text
from ematix_flow.errors import StagingLostError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ematix_flow.connect.base.stage import StageColumn, StageSpec
    from ematix_flow.records import TaskReport

STAGE_SCHEMA = "ematix_flow_stage"
REJECT_COLUMNS = ("reason", "column_name", "source_position", "row_json")
ANALYZE_ROWS = 10_000
"""Staged rows from which the planner gets statistics: without them it expects a handful and loops."""

STAGES_SQL = (
    "SELECT c.relname, extract(epoch FROM clock_timestamp())::float8 "
    "- obj_description(c.oid, 'pg_class')::float8 FROM pg_class c "
    f"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{STAGE_SCHEMA}' AND c.relkind = 'r' "
    r"AND obj_description(c.oid, 'pg_class') ~ '^\d+(\.\d+)?$' ORDER BY 2 DESC"
)
"""Lists staging tables that we made with their age; the comment on each holds its birth by the database's clock."""


def rows_table(name: str) -> str:
    """Return the SQL name of the table that holds staged rows."""
    return f"{quoted(STAGE_SCHEMA)}.{quoted(name)}"


def rejects_name(name: str) -> str:
    """Return the name of the table that holds rejects."""
    return f"{name}_r"


def rejects_table(name: str) -> str:
    """Return the SQL name of the table that holds rejects."""
    return rows_table(rejects_name(name))


def attempt_column(spec: StageSpec) -> str:
    """Return the column of the attempt under a name that no staged column has."""
    name, names = ATTEMPT, {column.name for column in spec.columns}
    while name in names:
        name += "_"
    return name


def create_sql(spec: StageSpec) -> str:
    """Return the statements that create both tables; sent as one message they are one transaction."""
    attempt = quoted(attempt_column(spec))
    rows = "".join(f"{quoted(c.name)} {types.stage_type(c.type)}{_not_null(spec, c)}, " for c in spec.columns)
    rejects = "".join(f"{name} TEXT, " for name in REJECT_COLUMNS)
    # No other session reads these tables, and they are gone before a vacuum would pay.
    options = "WITH (autovacuum_enabled = off)"
    born = "extract(epoch FROM clock_timestamp())::text"
    return (
        f"CREATE UNLOGGED TABLE {rows_table(spec.name)} ({rows}{attempt} BIGINT) {options}; "
        f"CREATE UNLOGGED TABLE {rejects_table(spec.name)} ({rejects}{attempt} BIGINT) {options}; "
        f"DO $flow$ BEGIN EXECUTE format('COMMENT ON TABLE %I.%I IS %L', "
        f"'{STAGE_SCHEMA}', {text(spec.name)}, {born}); END $flow$"
    )


def _not_null(spec: StageSpec, column: StageColumn) -> str:
    return " NOT NULL" if column.name in spec.required else ""


def named(spec: StageSpec, reports: Iterable[TaskReport]) -> str:
    """Return the condition for rows of exactly the named attempts."""
    attempts = ", ".join(str(int(report.attempt)) for report in reports)
    return f"{quoted(attempt_column(spec))} IN ({attempts})" if attempts else "FALSE"


def counts_sql(spec: StageSpec, reports: Sequence[TaskReport]) -> str:
    """Return the query for the rows and rejects of each named attempt."""
    attempt, condition = quoted(attempt_column(spec)), named(spec, reports)
    tables = (("rows", rows_table(spec.name)), ("rejects", rejects_table(spec.name)))
    return " UNION ALL ".join(
        f"SELECT '{what}', {attempt}, count(*) FROM {table} WHERE {condition} GROUP BY {attempt}"
        for what, table in tables
    )


def compare(spec: StageSpec, reports: Sequence[TaskReport], counted: Mapping[tuple[str, int], int]) -> None:
    """Refuse a staging that does not hold what its tasks reported."""
    expected: dict[tuple[str, int], int] = {}
    for report in reports:
        for what, rows in (("rows", report.rows), ("rejects", report.rejected)):
            expected[what, report.attempt] = expected.get((what, report.attempt), 0) + rows
    for (what, attempt), rows in expected.items():
        there = counted.get((what, attempt), 0)
        if there != rows:
            message = f"staging {spec.name} has {there} {what} of attempt {attempt}, {rows} were staged"
            hint = "it was changed from outside, or the server crashed and emptied it; run the load again."
            raise StagingLostError(message, hint=hint)


def analyze_sql(spec: StageSpec) -> str:
    """Return the statement that informs the planner how many rows each attempt has, and about their keys."""
    keys = [column.name for column in spec.columns if column.in_key]
    return f"ANALYZE {rows_table(spec.name)} ({listed([attempt_column(spec), *keys])})"


def staged_sql(spec: StageSpec, reports: Sequence[TaskReport]) -> str:
    """Return the relation of staged rows in the types that a commit works with."""
    columns = ", ".join(types.staged_value(column, quoted(column.name)) for column in spec.columns)
    return f"(SELECT {columns} FROM {rows_table(spec.name)} WHERE {named(spec, reports)})"


def rejects_sql(spec: StageSpec, reports: Sequence[TaskReport]) -> str:
    """Return the relation of rejects."""
    return f"(SELECT {', '.join(REJECT_COLUMNS)} FROM {rejects_table(spec.name)} WHERE {named(spec, reports)})"
