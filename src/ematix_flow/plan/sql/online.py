"""The online store of a feature view as SQL: the current values of every key, found by key; it executes nothing.

It is always what the versions say: where a database can look the current version up by an index, it is a view over it;
elsewhere it is a copy that the transaction of every load brings up to date.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.base.columns import TableName
from ematix_flow.plan.sql.render import listed, quoted, render, table_sql

if TYPE_CHECKING:
    from ematix_flow.declare.table.schema import Table

DIALECTS = ("postgres", "mysql", "sqlite", "duckdb")
"""Dialects of the databases that have an online store."""


@dataclass(frozen=True, slots=True)
class OnlineStore:
    """Where the current values are and how they get there; every statement is in the dialect of the database."""

    place: TableName
    columns: tuple[str, ...]
    index: tuple[str, ...]
    """What makes the versions themselves fast to look up; safe to repeat."""
    create: tuple[str, ...]
    drop: tuple[str, ...]
    refresh: tuple[str, ...] = ()
    """What brings the store up to date inside the transaction of a load; nothing where it is a view."""


def online_name(versions: TableName) -> TableName:
    """Return where the current values of a view are, by the table of its versions."""
    return TableName(versions.schema, f"{versions.name}__online", versions.catalog)


def online_store(table: Table, versions: TableName, dialect: str) -> OnlineStore:
    """Return the online store of the view whose versions are in this table."""
    name = versions.name
    place = online_name(versions)
    keys, columns = table.primary_key, table.column_names
    query = f"SELECT {listed(columns)} FROM {table_sql(versions)} WHERE {quoted('is_current')}"
    where = f" WHERE {quoted('is_current')}"
    by_key = _index(f"idx__{name}__current_keys", versions, keys, where=where)
    unique = _index(f"uq__{name}__online__keys", place, keys, unique=True)
    index: list[str] = []
    refresh: list[str] = []
    match dialect:
        case "postgres":
            index = [by_key]
            create = [f"CREATE MATERIALIZED VIEW {table_sql(place)} AS {query}", unique]
            drop = [f"DROP MATERIALIZED VIEW IF EXISTS {table_sql(place)}"]
            refresh = [f"REFRESH MATERIALIZED VIEW CONCURRENTLY {table_sql(place)}"]
        case "duckdb":
            create = [f"CREATE OR REPLACE TABLE {table_sql(place)} AS {query}", unique]
            drop = [f"DROP TABLE IF EXISTS {table_sql(place)}"]
            refresh = create
        case _:
            # The primary key of the versions begins with the keys, so MySQL finds them without an index of their own.
            index = [by_key] if dialect == "sqlite" else []
            create = [render(f"CREATE VIEW {table_sql(place)} AS {query}", dialect)]
            drop = [render(f"DROP VIEW IF EXISTS {table_sql(place)}", dialect)]
    return OnlineStore(place, columns, tuple(index), tuple(create), tuple(drop), tuple(refresh))


def _index(name: str, on: TableName, keys: tuple[str, ...], *, unique: bool = False, where: str = "") -> str:
    kind = "UNIQUE INDEX" if unique else "INDEX"
    return f"CREATE {kind} IF NOT EXISTS {quoted(name)} ON {table_sql(on)} ({listed(keys)}){where}"
