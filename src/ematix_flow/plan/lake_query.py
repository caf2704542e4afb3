"""The query of a source that is made of lake tables, for Spark: every table by its location and at one version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import ParseError, exp, parse_one

from ematix_flow.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.plan.source import SourceValue

DIALECT = "spark"


def lake_query(
    value: SourceValue, relation: Callable[[str, str], tuple[str, ...]], newest: Callable[[str, str], str]
) -> str:
    """Return the query with its tables placed; those without a version are read as they are now, to the end of the load."""
    query = _parsed_query(value)
    named = {cte.alias for cte in query.find_all(exp.CTE)}
    for table in list(query.find_all(exp.Table)):
        if not table.name or (not table.db and table.name in named):
            continue
        schema, name = table.db, table.name
        version = table.args.get("version") or _version("VERSION", newest(schema, name))
        alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name, quoted=True))
        parts = [exp.to_identifier(part, quoted=True) for part in relation(schema, name)]
        placed = dict(zip(("this", "db", "catalog"), reversed(parts), strict=False))
        table.replace(exp.Table(**placed, version=version, alias=alias))
    return query.sql(dialect=DIALECT)


def _parsed_query(value: SourceValue) -> exp.Query:
    if value.table is not None:
        schema, name = value.table
        table = exp.Table(this=exp.to_identifier(name, quoted=True), db=exp.to_identifier(schema, quoted=True))
        for clause in ("version", "timestamp"):
            if clause in value.options:
                table.set("version", _version(clause.upper(), value.options[clause]))
        columns: list[exp.Expr] = [exp.column(exp.to_identifier(c, quoted=True)) for c in value.columns or ()]
        return exp.select(*(columns or [exp.Star()])).from_(table)
    try:
        query = parse_one(value.sql, dialect=DIALECT)
    except ParseError as error:
        message = f"the source query cannot be read: {error}"
        raise PlanError(message) from None
    if not isinstance(query, exp.Query):
        message = f"the source is not a query: {value.sql}"
        raise PlanError(message, hint="return one SELECT statement.")
    return query


def _version(clause: str, value: Any) -> exp.Version | None:
    if value in (None, ""):
        return None
    text = str(value)
    literal = exp.Literal.number(text) if text.isdecimal() else exp.Literal.string(text)
    return exp.Version(this=clause, kind="AS OF", expression=literal)
