"""The SQL of a stream as Spark's: read in the dialect it was written in, refused where Spark cannot keep what it means."""

from __future__ import annotations

from sqlglot import ParseError, TokenError, UnsupportedError, exp, parse
from sqlglot.errors import ErrorLevel

from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.dialect.refusal import refusal, written_at
from ematix_flow.plan.sql.dialect.translate import READ_AS, translate

SOURCE = "source"
"""The name of the batch."""


def spark_sql(text: str, dialect: str, aggregates: frozenset[str] = frozenset()) -> str:
    """Return a query as Spark's SQL, with calls for what only types decide (`with_types`); aggregates of the user are called with the list of their group's rows.

    Spark has aggregates in Python too, but not together with its own in one query.
    """
    query = _read(text, dialect)
    for call in list(query.find_all(exp.Anonymous)):
        if str(call.this).lower() in {name.lower() for name in aggregates}:
            call.set("expressions", [_collected(call.expressions)])
    translate(query, dialect, text)
    try:
        return query.sql(dialect="spark", unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:
        where = written_at(_untranslated(query), text)
        raise refusal(dialect, where, str(error).splitlines()[0], "write it with dialect='spark'.") from None


def _untranslated(query: exp.Query) -> exp.Expr:
    """Return the smallest part of a query that has no rendering in Spark SQL."""
    for node in reversed(list(query.walk())):
        try:
            node.sql(dialect="spark", unsupported_level=ErrorLevel.RAISE)
        except UnsupportedError:
            return node
    return query


def _collected(arguments: list[exp.Expr]) -> exp.Expr:
    """Return the rows of a group as one list; a struct keeps what a list would leave out: NULL."""
    pairs = [part for number, one in enumerate(arguments) for part in (exp.Literal.string(f"a{number}"), one)]
    struct = exp.Anonymous(this="named_struct", expressions=pairs)
    return exp.Anonymous(this="collect_list", expressions=[struct])


def mentioned(text: str, dialect: str) -> frozenset[str]:
    """Return the names of all columns that a query mentions."""
    return frozenset(column.name for column in _read(text, dialect).find_all(exp.Column))


def tables_in(text: str, dialect: str) -> frozenset[str]:
    """Return the names of the tables that a query reads and does not define itself."""
    query = _read(text, dialect)
    own = {cte.alias_or_name for cte in query.find_all(exp.CTE)}
    return frozenset(table.name for table in query.find_all(exp.Table)) - own


def row_by_row(text: str, dialect: str, aggregates: frozenset[str] = frozenset()) -> bool:
    """Return whether every row of the result comes from one row of the batch, so that a bad one can be identified."""
    query = _read(text, dialect)
    together = (exp.AggFunc, exp.Group, exp.Distinct, exp.Window, exp.Limit, exp.Order, exp.SetOperation, exp.Having)
    if query.find(*together) is not None:
        return False
    called = {str(call.this).lower() for call in query.find_all(exp.Anonymous)}
    return not called & {name.lower() for name in aggregates}


def _read(text: str, dialect: str) -> exp.Query:
    try:
        statements = [statement for statement in parse(text, dialect=READ_AS[dialect]) if statement is not None]
    except (ParseError, TokenError) as error:
        first = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
        where = f", line {first['line']}, column {first['col']}" if first.get("line") else ""
        message = f"the SQL of the stream cannot be read as {dialect}{where}"
        raise PlanError(message, hint=str(first.get("description") or error).splitlines()[0]) from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise PlanError("the SQL of a stream is one SELECT statement")
    return statements[0]
