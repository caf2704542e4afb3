"""Canonical SQL text in, a dialect's SQL text out; every identifier and literal of generated SQL is made here.

Programs are written once in PostgreSQL's SQL, parsed into sqlglot trees and rendered for the target's dialect.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from sqlglot import exp, parse_one

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from ematix_flow.connect.base.columns import TableName

CANONICAL = "postgres"
STAGED = "_flow_staged"
"""Placeholder of the relation of staged rows until the commit binds it."""

ZONELESS = ("mysql", "sqlite")
_NO_UUID = (*ZONELESS, "spark")
"""Dialects whose instants are stored as UTC text or UTC wall time."""


def quoted(name: str) -> str:
    """Return an identifier as canonical SQL."""
    return '"' + name.replace('"', '""') + '"'


def table_sql(table: TableName) -> str:
    """Return a table's name as canonical SQL."""
    return ".".join(quoted(part) for part in (table.catalog, table.schema, table.name) if part)


def text(value: str) -> str:
    """Return a text literal as canonical SQL."""
    return "'" + value.replace("'", "''") + "'"


def listed(names: Iterable[str], alias: str = "") -> str:
    """Return a list of columns, each under an alias if one is given."""
    prefix = f"{alias}." if alias else ""
    return ", ".join(prefix + quoted(name) for name in names)


def instant(at: datetime, dialect: str) -> str:
    """Return an instant as canonical SQL that means the same in every dialect."""
    if dialect == "sqlite":
        return text(at.strftime("%Y-%m-%d %H:%M:%S.%f+00:00"))
    if dialect == "mysql":
        return text(at.strftime("%Y-%m-%d %H:%M:%S.%f"))
    return f"CAST({text(at.strftime('%Y-%m-%d %H:%M:%S.%f+00:00'))} AS TIMESTAMPTZ)"


def identifier_value(value: str, dialect: str) -> str:
    """Return a UUID value as canonical SQL."""
    return text(value) if dialect in _NO_UUID else f"CAST({text(value)} AS UUID)"


def render(canonical: str, dialect: str, inserts: dict[str, str] | None = None) -> str:
    """Return the dialect's SQL for canonical SQL; `inserts` are dialect SQL put in place of marker calls."""
    rendered = parse_one(canonical, read=CANONICAL).sql(dialect=dialect)
    for marker, native in (inserts or {}).items():
        rendered = rendered.replace(f"{marker}()", native)
    return rendered


def bind_staged(rendered: str, dialect: str, relation: str) -> str:
    """Return a rendered statement with the staged relation put in; the alias in the statement stays."""
    return rendered.replace(exp.to_identifier(STAGED, quoted=True).sql(dialect=dialect), relation)


@lru_cache(maxsize=1024)
def native_name(table: TableName, dialect: str) -> str:
    """Return a table's name in the dialect's own quoting."""
    return parse_one(f"SELECT * FROM {table_sql(table)}", read=CANONICAL).find(exp.Table).sql(dialect=dialect)  # type: ignore[union-attr]


def native_column(name: str, dialect: str) -> str:
    """Return a column's name in the dialect's own quoting."""
    return exp.to_identifier(name, quoted=True).sql(dialect=dialect)
