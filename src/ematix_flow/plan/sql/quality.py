"""Expectations as SQL over the staged rows: the condition of an offending row, and queries that count such rows.

In every condition the staged row is called `s`. A condition is true or false, never unknown: rows are set aside by it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ematix_flow.declare.pipeline.regex import has_lookaround
from ematix_flow.declare.quality import checks as q
from ematix_flow.errors import PlanError, UnsupportedError, did_you_mean
from ematix_flow.plan.sql.dialects import case, is_null, number, sql_func
from ematix_flow.plan.sql.render import STAGED, native_column, native_name
from ematix_flow.plan.sql.shape.literals import compared, literal
from ematix_flow.plan.sql.shape.regex import spelled
from ematix_flow.plan.sql.shape.value import SourceType
from ematix_flow.plan.sql.user.query import read_expression, read_query

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from ematix_flow.connect.base.columns import TableName
    from ematix_flow.declare.quality.checks import Expectation
    from ematix_flow.declare.table.schema import Table

ROWS = "rows"
"""What a query of the user calls the staged rows."""

SAMPLE = 5
QUERY = exp.Query
"""A query inside of a condition."""

_FAMILIES = {
    "small_int": SourceType.INTEGER,
    "integer": SourceType.INTEGER,
    "big_int": SourceType.INTEGER,
    "numeric": SourceType.DECIMAL,
    "float": SourceType.FLOAT,
    "double": SourceType.FLOAT,
    "boolean": SourceType.BOOLEAN,
    "text": SourceType.TEXT,
    "string": SourceType.TEXT,
    "date": SourceType.DATE,
    "timestamp": SourceType.TIMESTAMP,
    "timestamp_tz": SourceType.TIMESTAMP_TZ,
}


def violation(one: Expectation, table: Table, dialect: str, written_in: str) -> exp.Expr:
    """Return the condition of a row that does not satisfy an expectation about values; it may be unknown."""
    if one.kind == q.SQL:
        return exp.Not(this=exp.paren(condition_of(one, table, dialect, written_in)))
    column = exp.column(exp.to_identifier(one.columns[0], quoted=True), table="s")
    kind = table.column(one.columns[0]).type.kind
    match one.kind:
        case q.NOT_NULL:
            return is_null(column)
        case q.BETWEEN:
            return _outside(one, column, kind, dialect)
        case q.IS_IN:
            return _among(one, column, kind, dialect)
        case _:
            return _unmatched(one, column, dialect)


def condition_of(one: Expectation, table: Table, dialect: str, written_in: str) -> exp.Expr:
    """Return the user's condition, which uses the columns of one row."""
    tree = read_expression(one.text, written_in, dialect)
    if tree.find(exp.AggFunc, exp.Window):
        message = f"{one.name}: the condition speaks of several rows: {one.text}"
        raise PlanError(message, hint="write it as query(...), which returns the violating rows.")
    if not tree.find(QUERY):
        for name in columns_in(tree):
            if name.lower() not in {column.lower() for column in table.column_names}:
                message = f"{one.name}: the condition reads {name!r}, which is no column of {table.qualified_name}"
                raise PlanError(message, hint=did_you_mean(name, table.column_names))
    return tree


def columns_in(tree: exp.Expr) -> tuple[str, ...]:
    """Return the columns that a condition names, each once."""
    return tuple(dict.fromkeys(column.name for column in tree.find_all(exp.Column)))


def certain(condition: exp.Expr) -> exp.Expr:
    """Return a condition that is false where it was unknown."""
    return exp.EQ(this=case((condition, number(1)), otherwise=number(0)), expression=number(1))


def counted(condition: exp.Expr, dialect: str) -> str:
    """Return the aggregate that counts the rows of a condition."""
    return exp.Count(this=case((condition, number(1)))).sql(dialect=dialect)


def count_query(condition: str, dialect: str) -> str:
    """Return the query that counts the rows of a condition, where an aggregate cannot hold it."""
    return f"SELECT COUNT(*) FROM {staged(dialect)} AS s WHERE {condition}"


def sample_query(condition: str, columns: Sequence[str], dialect: str) -> str:
    """Return the query of a few offending rows."""
    names = ", ".join(f"s.{native_column(name, dialect)}" for name in columns)
    return f"SELECT {names} FROM {staged(dialect)} AS s WHERE {condition} LIMIT {SAMPLE}"


def repeated(columns: Sequence[str], dialect: str) -> tuple[str, str]:
    """Return the query that counts the rows which share their values in these columns, and the condition of such a row."""
    names = [native_column(name, dialect) for name in columns]
    filled = " AND ".join(f"g.{name} IS NOT NULL" for name in names)
    listed = ", ".join(f"g.{name}" for name in names)
    several = f"FROM {staged(dialect)} AS g WHERE {filled} GROUP BY {listed} HAVING COUNT(*) > 1"
    query = f"SELECT COALESCE(SUM(n), 0) FROM (SELECT COUNT(*) AS n {several}) AS d"
    same = " AND ".join(f"d.{name} = s.{name}" for name in names)
    return query, f"EXISTS (SELECT 1 FROM (SELECT {listed} {several}) AS d WHERE {same})"


def unrelated(one: Expectation, table_name: TableName, dialect: str) -> tuple[str, str]:
    """Return the query that counts the rows whose value another table lacks, and the condition of such a row."""
    assert one.other is not None  # noqa: S101 - the kind says so
    mine = exp.column(exp.to_identifier(one.columns[0], quoted=True), table="s")
    theirs = exp.column(exp.to_identifier(one.other[2], quoted=True), table="o")
    same = exp.EQ(this=theirs, expression=mine.copy()).sql(dialect=dialect)
    match_exists = f"EXISTS (SELECT 1 FROM {native_name(table_name, dialect)} AS o WHERE {same})"
    condition = f"{mine.sql(dialect=dialect)} IS NOT NULL AND NOT {match_exists}"
    return count_query(condition, dialect), condition


def recent(one: Expectation, table: Table, since: datetime, alias: str, dialect: str) -> exp.Expr:
    """Return the condition that a row is not older than an instant."""
    column = exp.column(exp.to_identifier(one.columns[0], quoted=True), table=alias)
    limit = literal(since, _FAMILIES[table.column(one.columns[0]).type.kind], dialect)
    return exp.GTE(this=column, expression=limit)


def any_recent(table_name: TableName, condition: exp.Expr, dialect: str) -> str:
    """Return the query that returns 1 when a table has such a row, else 0."""
    where = f"FROM {native_name(table_name, dialect)} AS t WHERE {condition.sql(dialect=dialect)} LIMIT 1"
    return f"SELECT COUNT(*) FROM (SELECT 1 AS found {where}) AS f"


def over_rows(text: str, columns: Sequence[str], written_in: str, dialect: str) -> tuple[str, tuple[str, ...]]:
    """Return a query of the user over these columns of the staged rows as `rows`, and the names of its columns."""
    tree = read_query(text, written_in, dialect)
    mine = [table for table in tree.find_all(exp.Table) if table.name.lower() == ROWS and not table.db]
    if not mine:
        message = f"the query does not read the table {ROWS!r}, which is the load: {text}"
        raise PlanError(message)
    selected = [exp.column(exp.to_identifier(name, quoted=True)) for name in columns]
    staged_rows = exp.Table(
        this=exp.to_identifier(STAGED, quoted=True), alias=exp.TableAlias(this=exp.to_identifier("s"))
    )
    load = exp.select(*selected).from_(staged_rows)
    for table in mine:
        called = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(ROWS, quoted=True))
        table.replace(exp.Subquery(this=load.copy(), alias=called.copy()))
    names = tuple(name for one in tree.named_selects for name in (columns if one == "*" else (one,)))
    return tree.sql(dialect=dialect), names


def staged(dialect: str) -> str:
    """Return the placeholder of the staged rows until the commit binds it."""
    return native_column(STAGED, dialect)


def _outside(one: Expectation, column: exp.Expr, kind: str, dialect: str) -> exp.Expr:
    ends: list[exp.Expr] = []
    if one.low is not None:
        ends.append(_compared(one, exp.LT, column, one.low, kind, dialect))
    if one.high is not None:
        ends.append(_compared(one, exp.GT, column, one.high, kind, dialect))
    return exp.or_(*ends)


def _among(one: Expectation, column: exp.Expr, kind: str, dialect: str) -> exp.Expr:
    if (dialect == "sqlite" and kind in q.NUMBERS) or (dialect == "mysql" and kind in q.TEXTS):
        same = [_compared(one, exp.EQ, column, candidate, kind, dialect) for candidate in one.values]
        return exp.Not(this=exp.paren(exp.or_(*same)))
    known = [_literal(one, candidate, kind, dialect) for candidate in one.values]
    return exp.Not(this=exp.paren(exp.In(this=column, expressions=known)))


def _unmatched(one: Expectation, column: exp.Expr, dialect: str) -> exp.Expr:
    if dialect == "duckdb" and has_lookaround(one.text):
        message = f"{one.name}: DuckDB cannot look ahead or behind in a pattern: {one.text!r}"
        raise UnsupportedError(message, hint="say it with sql(...), or without (?=...), (?!...), (?<=...), (?<!...).")
    native = spelled(one.text, dialect)
    # MySQL and MariaDB decide about case by collation unless the pattern does.
    pattern = f"(?-i){native}" if dialect == "mysql" else native
    return exp.Not(this=exp.paren(sql_func("matches", dialect, x=column, p=pattern)))


def _compared(
    one: Expectation, comparison: type[exp.Binary], column: exp.Expr, raw_value: Any, kind: str, dialect: str
) -> exp.Expr:
    if kind not in (*q.NUMBERS, *q.TEXTS):
        return comparison(this=column.copy(), expression=_literal(one, raw_value, kind, dialect))
    with _naming(one):
        return compared(comparison, column.copy(), raw_value, _FAMILIES[kind], dialect)


def _literal(one: Expectation, raw_value: Any, kind: str, dialect: str) -> exp.Expr:
    if kind == "boolean" and not isinstance(raw_value, bool):
        message = f"{one.name}: {raw_value!r} is neither True nor False"
        raise PlanError(message)
    if kind == "uuid":
        return exp.Literal.string(str(raw_value).lower())
    with _naming(one):
        return literal(raw_value, _FAMILIES[kind], dialect)


@contextmanager
def _naming(one: Expectation) -> Iterator[None]:
    """Let an error of this block say which expectation it is about."""
    try:
        yield
    except PlanError as error:
        message = f"{one.name}: {error.what}"
        raise PlanError(message, hint=error.hint) from None
