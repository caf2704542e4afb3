"""The SQL of a stream as Spark's: read in the dialect it was written in, refused where Spark has no word for it."""

from __future__ import annotations

from sqlglot import ParseError, TokenError, UnsupportedError, exp, parse
from sqlglot.errors import ErrorLevel

from ematix_flow.errors import PlanError

SOURCE = "source"
"""The name of the batch."""

_READ_AS = {"datafusion": "postgres", "duckdb": "duckdb", "spark": "spark"}
"""How each dialect is read; DataFusion follows PostgreSQL, and has some functions of its own."""

_RENAMED = {
    "make_array": "array",
    "array_length": "size",
    "list_value": "array",
    "arrow_typeof": "typeof",
    "to_timestamp_seconds": "timestamp_seconds",
    "to_timestamp_millis": "timestamp_millis",
    "to_timestamp_micros": "timestamp_micros",
    "random": "rand",
    "regexp_match": "regexp_extract",
    "struct": "named_struct",
    "character_length": "char_length",
}
_MISSING = ("arrow_cast", "date_bin", "approx_percentile_cont", "digest")
"""Functions that other engines have and Spark has not."""


def spark_sql(text: str, dialect: str, aggregates: frozenset[str] = frozenset()) -> str:
    """Return a query as Spark's SQL; aggregates of the user are called with the list of their group's rows.

    Spark has aggregates in Python too, but not together with its own in one query.
    """
    query = _read(text, dialect)
    for call in list(query.find_all(exp.Anonymous)):
        if str(call.this).lower() in {name.lower() for name in aggregates}:
            call.set("expressions", [_collected(call.expressions)])
    if dialect != "spark":
        for call in list(query.find_all(exp.Anonymous)):
            name = str(call.this).lower()
            if name in _MISSING:
                raise PlanError(
                    f"{call.this}() has no translation into Spark SQL", hint="write it with dialect='spark'."
                )
            if name in _RENAMED:
                call.set("this", _RENAMED[name])
    try:
        return query.sql(dialect="spark", unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:
        message = f"the SQL of the stream has no translation from {dialect} into Spark SQL"
        raise PlanError(message, hint=str(error).splitlines()[0]) from None


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
        statements = [statement for statement in parse(text, dialect=_READ_AS[dialect]) if statement is not None]
    except (ParseError, TokenError) as error:
        message = f"the SQL of the stream cannot be read as {dialect}"
        raise PlanError(message, hint=str(error).splitlines()[0]) from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise PlanError("the SQL of a stream is one SELECT statement")
    return statements[0]
