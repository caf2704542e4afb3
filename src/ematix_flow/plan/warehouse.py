"""The statements that make rows of a warehouse pipeline visible once: the token of the load is recorded with them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.warehouse.names import name_sql, text_sql
from ematix_flow.errors import DeclareError

if TYPE_CHECKING:
    from collections.abc import Sequence

LEDGER = "ematix_flow_loads"
"""The table next to the target that knows which loads it has."""

_LOCK = "lock"
"""The token of a row of the ledger that every load updates first, where a table cannot be locked."""

_TEXT = {"redshift": "VARCHAR(4096)", "snowflake": "VARCHAR", "bigquery": "STRING"}
_NUMBER = {"redshift": "BIGINT", "snowflake": "NUMBER(38, 0)", "bigquery": "INT64"}


@dataclass(frozen=True, slots=True)
class LoadFacts:
    """What is recorded of a load."""

    token: str
    pipeline: str
    rows_read: int
    rows_written: int
    watermark: str | None = None
    committed_at: str = ""
    """The time of this machine in UTC: CURRENT_TIMESTAMP of Redshift is none that a row can have."""


@dataclass(frozen=True, slots=True)
class WarehouseCommit:
    """One transaction, in this order."""

    lock: str
    """The first statement: from here on no other load of this ledger is between its check and its end."""
    recorded: str
    """Returns what is recorded under the token; a row means that the load is there."""
    write: tuple[str, ...]
    """What makes the rows visible and records the token."""


def table_sql(name: str, kind: str) -> str:
    """Return the name of a table in SQL."""
    parts = name.split(".")
    if not all(parts):
        message = f"table_name={name!r} has an empty part"
        raise DeclareError(message, hint="write table, schema.table or database.schema.table.")
    return ".".join(name_sql(part, kind) for part in parts)


def ledger_sql(table_name: str, kind: str) -> str:
    """Return the ledger of a table: in the same schema."""
    return table_sql(".".join([*table_name.split(".")[:-1], LEDGER]), kind)


def create_ledger_sql(table_name: str, kind: str) -> tuple[str, ...]:
    """Return the statements that create the ledger where there is none."""
    ledger, string, number = ledger_sql(table_name, kind), _TEXT[kind], _NUMBER[kind]
    columns = f"token {string}, pipeline {string}, rows_read {number}, rows_written {number}, watermark {string}"
    created = f"CREATE TABLE IF NOT EXISTS {ledger} ({columns}, committed_at TIMESTAMP)"
    if kind == "redshift":
        return (created,)
    missing = f"NOT EXISTS (SELECT 1 FROM {ledger} WHERE token = '{_LOCK}')"
    return (created, f"INSERT INTO {ledger} (token) SELECT '{_LOCK}' FROM (SELECT 1 AS one) AS t WHERE {missing}")


def _lock_sql(ledger: str, kind: str, committed_at: str) -> str:
    if kind == "redshift":  # where loads that only insert do not wait for each other
        return f"LOCK TABLE {ledger}"
    return f"UPDATE {ledger} SET committed_at = {committed_at} WHERE token = '{_LOCK}'"


def create_table_sql(table_name: str, kind: str, columns: str) -> str:
    """Return the statement that creates the target where there is none."""
    return f"CREATE TABLE IF NOT EXISTS {table_sql(table_name, kind)} ({columns})"


def recorded_sql(table_name: str, kind: str, token: str) -> str:
    """Return the query for what is recorded of a load."""
    columns = "rows_read, rows_written, watermark"
    return f"SELECT {columns} FROM {ledger_sql(table_name, kind)} WHERE token = {text_sql(token, kind)}"


def commit_of(table_name: str, kind: str, staged: str, columns: Sequence[str], facts: LoadFacts) -> WarehouseCommit:
    """Return the transaction of a load."""
    ledger, names = ledger_sql(table_name, kind), ", ".join(name_sql(name, kind) for name in columns)
    texts = (facts.token, facts.pipeline, facts.watermark, facts.committed_at)
    token, pipeline, watermark, at = ("NULL" if one is None else text_sql(one, kind) for one in texts)
    values = f"{token}, {pipeline}, {facts.rows_read}, {facts.rows_written}, {watermark}, {at}"
    fields = "token, pipeline, rows_read, rows_written, watermark, committed_at"
    return WarehouseCommit(
        lock=_lock_sql(ledger, kind, at),
        recorded=recorded_sql(table_name, kind, facts.token),
        write=(
            f"INSERT INTO {table_sql(table_name, kind)} ({names}) SELECT {names} FROM {staged}",
            f"INSERT INTO {ledger} ({fields}) VALUES ({values})",
        ),
    )


def source_sql(sql: str, kind: str, column: str | None, watermark: str | None) -> str:
    """Return the query of the source, for rows above the watermark where there is one."""
    query = sql.strip().rstrip(";")
    if column is None or watermark is None:
        return query
    value = json.loads(watermark, parse_float=Decimal)
    literal = text_sql(value, kind) if isinstance(value, str) else str(value)
    return f"SELECT * FROM (\n{query}\n) AS _flow_source WHERE {name_sql(column, kind)} > {literal}"


def watermark_text(value: Any) -> str:
    """Return a value as a watermark is stored: JSON, a number as a number and anything else as its text."""
    if isinstance(value, datetime):
        return json.dumps(value.isoformat(sep=" "))
    if isinstance(value, date):
        return json.dumps(value.isoformat())
    if isinstance(value, Decimal):
        return format(value, "f")
    return json.dumps(value if isinstance(value, int | float) and not isinstance(value, bool) else str(value))
