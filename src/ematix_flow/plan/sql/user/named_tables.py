"""The tables that a user's query over files names, and the query over views of other names; the text itself stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import TokenError, TokenType, exp, tokenize

from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.user.query import read_query

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DIALECT = "spark"


def tables_named(sql: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return those of some tables that a query reads; of one that only Spark can read, those whose name is anywhere in it."""
    try:
        query = read_query(sql, DIALECT, DIALECT)
        own = {cte.alias_or_name.lower() for cte in query.find_all(exp.CTE)}
        named = {table.name.lower() for table in query.find_all(exp.Table) if not table.db} - own
    except PlanError:
        named = _identifiers(sql)
    return tuple(name for name in known if name.lower() in named)


def over_views(sql: str, views: Mapping[str, str]) -> str:
    """Return the query with each table of `views` replaced by another one.

    Sessions are shared, and so are names of views.
    """
    steps = ", ".join(f"{backticked(name)} AS (SELECT * FROM {backticked(view)})" for name, view in views.items())
    if not steps:
        return sql
    first, *tokens = tokenize(sql, read=DIALECT)
    if first.token_type is not TokenType.WITH:
        return f"WITH {steps} {sql}"
    last = tokens[0] if tokens[0].token_type is TokenType.RECURSIVE else first
    return f"{sql[: last.end + 1]} {steps}, {sql[last.end + 1 :]}"


def _identifiers(sql: str) -> set[str]:
    try:
        return {token.text.lower() for token in tokenize(sql, read=DIALECT)}
    except TokenError:
        return set(sql.lower().split())
