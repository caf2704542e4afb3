"""A query that was read in another dialect, with the meaning that it had there once Spark runs it.

sqlglot renames and reorders; this module is about what has one name and two meanings, and about what Spark has no word for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.postgres import Postgres

from ematix_flow.plan.sql.dialect.aggregates import translate_aggregate
from ematix_flow.plan.sql.dialect.decimals import with_digits
from ematix_flow.plan.sql.dialect.functions import translate_function
from ematix_flow.plan.sql.dialect.lists import translate_element
from ematix_flow.plan.sql.dialect.refusal import refusal, written_at
from ematix_flow.plan.sql.dialect.texts import translate_text
from ematix_flow.plan.sql.dialect.times import check_unit, interval
from ematix_flow.plan.sql.dialect.typed import (
    AVERAGE,
    DIVIDE,
    LOCAL,
    MOVE,
    QUOTIENT,
    ROUND,
    SUBTRACT,
    TO_INTEGER,
    TO_TEXT,
    TRUNCATE,
    WHOLE_PART,
    typed_call,
)
from ematix_flow.plan.sql.dialect.unnested import translate_unnested

if TYPE_CHECKING:
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.expressions import DType


class _AsWritten(Postgres):
    """PostgreSQL whose formats of times and indices stay as they are written: DataFusion's formats are others."""

    TIME_MAPPING: dict[str, str] = {}  # noqa: RUF012 - as its base declares it
    INDEX_OFFSET = 0


class _IndicesAsWritten(DuckDB):
    """DuckDB whose indices stay as they are written; counted from zero, some could not be told from others."""

    INDEX_OFFSET = 0


READ_AS: dict[str, str | type[Dialect]] = {
    "datafusion": _AsWritten, "spark": "spark", "duckdb": _IndicesAsWritten, "postgres": _AsWritten,
    "mysql": "mysql",
}  # fmt: skip
"""How each dialect is read; DataFusion follows PostgreSQL, and has some functions of its own."""

_WHOLE = exp.DataType.INTEGER_TYPES
_TEXT = exp.DataType.TEXT_TYPES
_ROUNDING = ("postgres", "duckdb", "mysql")
"""Dialects whose casts to whole numbers round; DataFusion's and Spark's cut."""


def translate(query: exp.Query, dialect: str, text: str) -> None:
    """Change a query that was read in a dialect so that its rendering in Spark SQL means the same; refuse the rest."""
    if dialect == "spark":
        _without_expr(query)
        return
    with_digits(query, dialect)
    # From the inside outwards, so that a node is replaced with all that was replaced in it.
    for node in reversed(list(query.walk())):
        where = written_at(node, text)
        translate_text(node, dialect, where)
        translate_aggregate(node, dialect, where)
        if isinstance(node, exp.Div | exp.IntDiv | exp.Mod | exp.Add | exp.Sub | exp.AtTimeZone | exp.Bracket):
            _operator(node, dialect, where)
        elif isinstance(node, exp.Cast):
            _cast(node, dialect, where)
        elif isinstance(node, exp.Round) and _rounds_otherwise(node, dialect):
            _by_type(node, ROUND, dialect, where)
        elif isinstance(node, exp.Floor | exp.Ceil | exp.Trunc) and not node.args.get("decimals"):
            part = exp.paren(node.this.copy()) if isinstance(node, exp.Trunc) else node.copy()
            node.replace(typed_call(WHOLE_PART, dialect, where, part))
        elif isinstance(node, exp.Avg) and dialect == "mysql":
            outer = node.parent if isinstance(node.parent, exp.Window | exp.Filter) else node
            _by_type(outer, AVERAGE, dialect, where)
        elif isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
            check_unit(node, dialect, where)
            _by_type(node, TRUNCATE, dialect, where)
        elif isinstance(node, exp.Func):
            translate_function(node, dialect, where)
    translate_unnested(query, dialect, text)


def _without_expr(query: exp.Query) -> None:
    """Replace `expr('a + 1')`, which frames have and SQL has not, with the expression."""
    for call in list(query.find_all(exp.Anonymous)):
        if str(call.this).lower() == "expr" and len(call.expressions) == 1:
            inner = call.expressions[0]
            call.replace(exp.paren(exp.condition(inner.name, dialect="spark")) if inner.is_string else inner)


def _rounds_otherwise(node: exp.Round, dialect: str) -> bool:
    """Return whether a double may be rounded otherwise than by Spark."""
    digits = node.args.get("decimals")
    if digits is None:
        return dialect in ("postgres", "mysql")
    is_written = isinstance(digits, exp.Literal) and digits.name in map(str, range(16))
    return is_written and dialect != "postgres"


def _by_type(node: exp.Expr, rule: str, dialect: str, where: str) -> None:
    node.replace(typed_call(rule, dialect, where, node.copy()))


def _operator(node: exp.Expr, dialect: str, where: str) -> None:
    match node:
        case exp.IntDiv() | exp.Mod() if dialect == "mysql":
            node.set("expression", _null_for_zero(node.expression))
        case exp.IntDiv() if dialect == "duckdb":
            _by_type(node, QUOTIENT, dialect, where)
        case exp.Div() if dialect == "duckdb":
            node.set("this", exp.cast(node.this, "DOUBLE"))
        case exp.Div():
            _by_type(node, DIVIDE, dialect, where)
        case exp.Add() | exp.Sub() if isinstance(node.expression, exp.Interval):
            _move(node, dialect, where)
        case exp.Sub() | exp.Add() if dialect in (_ROUNDING if isinstance(node, exp.Sub) else ("mysql",)):
            _by_type(node, SUBTRACT, dialect, where)
        case exp.AtTimeZone():
            reason = "AT TIME ZONE turns a local time into an instant or back, which Spark does with two functions"
            raise refusal(dialect, where, reason, "use to_utc_timestamp or from_utc_timestamp with dialect='spark'.")
        case exp.Bracket():
            translate_element(node, dialect, where)


def _move(node: exp.Binary, dialect: str, where: str) -> None:
    amount, unit = node.expression.this, node.expression.args.get("unit")
    if dialect == "mysql" or not isinstance(amount, exp.Literal | None):
        node.set("expression", interval(amount, unit, dialect, where))
    if dialect in _ROUNDING:
        _by_type(node, MOVE, dialect, where)


def _null_for_zero(divisor: exp.Expr) -> exp.Expr:
    if isinstance(divisor, exp.Literal) and divisor.is_number and divisor.name.strip("0."):
        return divisor
    return exp.func("NULLIF", divisor.copy(), exp.Literal.number(0))


def _cast(node: exp.Cast, dialect: str, where: str) -> None:
    target: DType = node.to.this
    if target in exp.DataType.UNSIGNED_INTEGER_TYPES:
        raise refusal(dialect, where, "Spark has no numbers without a sign", "cast to a wider whole number.")
    if target in (exp.DType.TIME, exp.DType.TIMETZ):  # which sqlglot takes for a timestamp of the day of the run
        raise refusal(dialect, where, "Spark has no time without a day", "keep it as a text, or add a day to it.")
    if dialect not in _ROUNDING:
        return
    if target is exp.DType.TIMESTAMP and dialect == "postgres":
        _by_type(node, LOCAL, dialect, where)
    elif target in _WHOLE:
        _by_type(node, TO_INTEGER, dialect, where)
    elif target in _TEXT:
        length = node.to.expressions[0].copy() if node.to.expressions and dialect != "duckdb" else None
        node.set("to", exp.DataType.build("TEXT"))
        cast = typed_call(TO_TEXT, dialect, where, node.copy())
        node.replace(cast if length is None else exp.func("LEFT", cast, length.this or length))
