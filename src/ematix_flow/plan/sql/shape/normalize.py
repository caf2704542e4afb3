"""Every normaliser, defined once; the dialect functions turn it into SQL.

A normaliser never hurts a value that already has a type:
- those for text (trim, replace, ...) leave a value that is no text alone, unless the column is a text column; then
  the value becomes text first;
- `parse_*` leaves a value of the requested kind alone: points in time change their family, numbers stay numbers;
- those for numbers and points in time (round, clamp, date_trunc, to_timezone) first bring text into the column's type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from ematix_flow.declare.pipeline import normalize as n
from ematix_flow.declare.table.types import String, Text, TimestampTZ
from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.dialects import case, fill, number, sql_func
from ematix_flow.plan.sql.shape.cast import (
    convert,
    convert_timestamp,
    read_boolean,
    read_decimal,
    read_integer,
    to_text,
)
from ematix_flow.plan.sql.shape.literals import compared, literal
from ematix_flow.plan.sql.shape.regex import replace_matches
from ematix_flow.plan.sql.shape.timestamps import day, matches, parse_timestamp
from ematix_flow.plan.sql.shape.value import NUMBERS, TIME_TYPES, SourceType
from ematix_flow.plan.sql.user.query import family_of, put_in, read_expression

if TYPE_CHECKING:
    from ematix_flow.declare.table.markers import Normalizer
    from ematix_flow.declare.table.schema import Column
    from ematix_flow.plan.sql.shape.value import Value

S = SourceType

_BLANK = "^[ \t\n\r\f\v]*$"
_TEXT_STEPS = (
    n.Trim, n.Lower, n.Upper, n.EmptyToNull, n.WhitespaceToNull, n.Replace, n.RegexReplace, n.Truncate,
    n.EmailNormalize, n.PhoneNormalize,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DialectPair:
    """Which dialect is spoken, and in which one the user's own SQL was written."""

    dialect: str
    user_dialect: str


def normalised(value: Value, column: Column, dialects: DialectPair) -> Value:
    """Return the value after all normalisers of the column, in the column's type."""
    for step in column.normalizers:
        value = _apply(step, value, column, dialects)
    last = column.normalizers[-1] if column.normalizers else None
    if isinstance(column.type, String) and isinstance(last, n.Truncate) and last.n <= column.type.length:
        return to_text(value, dialects.dialect)
    return convert(value, column, dialects.dialect)


def _apply(step: Normalizer, value: Value, column: Column, dialects: DialectPair) -> Value:
    dialect = dialects.dialect
    if isinstance(step, _TEXT_STEPS):
        return _text_step(step, value, column, dialect)
    match step:
        case n.ParseTimestamp() | n.ParseDate() | n.ParseInt() | n.ParseNumeric():
            parsed = _parse(step, value, column, dialect)
            return _coalesce(parsed, step.default, dialect) if step.default is not None else parsed
        case n.ParseBool(truthy, falsy):
            return (
                value
                if value.type is S.BOOLEAN
                else read_boolean(to_text(value, dialect), truthy, falsy, dialect, failing=False)
            )
        case n.ToTimezone() | n.DateTrunc() | n.Round() | n.Clamp():
            typed = convert(value, column, dialect) if value.type is S.TEXT else value
            return _typed_step(step, typed, column, dialect)
        case n.Default(given):
            return _coalesce(value, given, dialect)
        case n.NullIf(given):
            same = compared(exp.EQ, value.sql, given, value.type, dialect)
            return value.become(case((same, exp.null()), otherwise=value.sql.copy()))
        case n.Sql(text) | n.Derive(text):
            tree = read_expression(text, dialects.user_dialect, dialect)
            family = family_of(tree)
            return value.become(put_in(tree, "col", value.sql) if isinstance(step, n.Sql) else tree, family)
    raise PlanError(f"the normaliser {step!r} has no SQL")


def _text_step(step: Normalizer, value: Value, column: Column, dialect: str) -> Value:
    if value.type not in {S.TEXT, S.OTHER}:
        if not isinstance(column.type, Text | String):
            return value
        value = to_text(value, dialect)
    return value.become(_text_sql(step, value.sql, dialect))


def _text_sql(step: Normalizer, x: exp.Expr, dialect: str) -> exp.Expr:
    match step:
        case n.Trim() | n.Lower() | n.Upper():
            return sql_func(type(step).__name__.lower(), dialect, x=x)
        case n.EmailNormalize():
            return sql_func("lower", dialect, x=sql_func("trim", dialect, x=x))
        case n.EmptyToNull():
            return case((sql_func("same_text", dialect, x=x, y=""), exp.null()), otherwise=x.copy())
        case n.WhitespaceToNull():
            return case((matches(x, _BLANK, dialect), exp.null()), otherwise=sql_func("trim", dialect, x=x))
        case n.Truncate(length):
            return sql_func("part", dialect, x=x, n=1, y=length)
        case n.RegexReplace(pattern, replacement, flags):
            return replace_matches(x, pattern, replacement, flags, dialect)
        case n.Replace(old, new):
            return fill("REPLACE(x, y, p)", dialect, x=x, y=old, p=new)
    return replace_matches(x, "[^0-9+]", "", "g", dialect)


def _parse(
    step: n.ParseTimestamp | n.ParseDate | n.ParseInt | n.ParseNumeric, value: Value, column: Column, dialect: str
) -> Value:
    failing = step.on_failure == "error"
    if isinstance(step, n.ParseTimestamp | n.ParseDate):
        target_type = _timestamp_family(step, column)
        if value.type in TIME_TYPES:
            return convert_timestamp(value, target_type, dialect)
        text = _as_text(value, dialect)
        if isinstance(step, n.ParseDate):
            return text.read_as(day(text.sql, step.accepted(), dialect), S.DATE, failing=failing)
        time = text.read_as(parse_timestamp(text.sql, step.accepted(), dialect), S.TIMESTAMP, failing=failing)
        return convert_timestamp(time, target_type, dialect)
    if value.type in NUMBERS and dialect != "sqlite":
        return value
    text = value if dialect == "sqlite" else _as_text(value, dialect)
    if isinstance(step, n.ParseInt):
        return read_integer(text, dialect, failing=failing)
    return read_decimal(text, step.precision, step.scale, dialect, failing=failing)


def _timestamp_family(step: n.ParseTimestamp | n.ParseDate, column: Column) -> SourceType:
    if isinstance(step, n.ParseDate):
        return S.DATE
    return S.TIMESTAMP_TZ if isinstance(column.type, TimestampTZ) else S.TIMESTAMP


def _as_text(value: Value, dialect: str) -> Value:
    return (
        value.become(sql_func("text", dialect, x=value.sql), S.TEXT)
        if value.type is S.OTHER
        else to_text(value, dialect)
    )


def _typed_step(
    step: n.ToTimezone | n.DateTrunc | n.Round | n.Clamp, value: Value, column: Column, dialect: str
) -> Value:
    match step:
        case n.Round(precision):
            return value.become(_rounded(value, precision, dialect))
        case n.Clamp(low, high):
            least, most = literal(low, value.type, dialect), literal(high, value.type, dialect)
            below = compared(exp.LT, value.sql.copy(), low, value.type, dialect)
            above = compared(exp.GT, value.sql.copy(), high, value.type, dialect)
            bounded = case((below, least), (above, most), otherwise=value.sql.copy())
            return value.become(bounded)
        case n.DateTrunc(precision):
            naive = convert_timestamp(value, S.TIMESTAMP, dialect)
            cut = naive.become(_truncated(naive.sql, precision, dialect))
            return convert_timestamp(cut, value.type, dialect) if value.type in TIME_TYPES else cut
        case n.ToTimezone(zone):
            if isinstance(column.type, TimestampTZ) or value.type is S.DATE:
                return value
            naive = convert_timestamp(value, S.TIMESTAMP, dialect)
            wall = naive.sql if zone == "UTC" else sql_func("wall", dialect, x=naive.sql, p=zone)
            return naive.become(wall)


def _rounded(value: Value, precision: int, dialect: str) -> exp.Expr:
    """Return the number rounded half away from zero; a double is rounded as the decimal number it shows."""
    x = value.sql
    if dialect == "sqlite":
        return fill("FLOW_ROUND(x, n)", dialect, x=x, n=precision)
    if value.type is not S.FLOAT or dialect == "spark":
        return exp.func("ROUND", x, number(precision))
    as_text = sql_func("text", dialect, x=x)
    exact = {
        "postgres": fill("CAST(x AS DECIMAL)", dialect, x=as_text),
        "mysql": fill("CAST(x AS DECIMAL(65, 30))", dialect, x=x),
        "duckdb": fill("TRY_CAST(x AS DECIMAL(38, 20))", dialect, x=as_text),
    }[dialect]
    cut = sql_func("double", dialect, x=exp.func("ROUND", exact, number(precision)))
    # Beyond this a double has no decimals to round.
    small = exp.LT(this=exp.func("ABS", x.copy()), expression=exp.Literal.number("1e16"))
    return case((small, cut), otherwise=x.copy())


def _truncated(time: exp.Expr, precision: str, dialect: str) -> exp.Expr:
    if dialect == "sqlite":
        return fill("FLOW_TRUNC(x, p)", dialect, x=time, p=precision)
    if dialect != "mysql":
        cut = fill(f"DATE_TRUNC('{precision}', x)", dialect, x=time)
        return fill("CAST(x AS TIMESTAMP_NTZ)", dialect, x=cut) if dialect == "spark" else cut
    template = {
        "second": "CAST(DATE_FORMAT(x, '%Y-%m-%d %H:%i:%s') AS DATETIME(6))",
        "minute": "CAST(DATE_FORMAT(x, '%Y-%m-%d %H:%i:00') AS DATETIME(6))",
        "hour": "CAST(DATE_FORMAT(x, '%Y-%m-%d %H:00:00') AS DATETIME(6))",
        "day": "CAST(DATE(x) AS DATETIME(6))",
        "week": "CAST(DATE_SUB(DATE(x), INTERVAL WEEKDAY(x) DAY) AS DATETIME(6))",
        "month": "CAST(DATE_FORMAT(x, '%Y-%m-01') AS DATETIME(6))",
        "quarter": "CAST(CONCAT(YEAR(x), '-', QUARTER(x) * 3 - 2, '-01') AS DATETIME(6))",
        "year": "CAST(DATE_FORMAT(x, '%Y-01-01') AS DATETIME(6))",
    }[precision]
    return fill(template, dialect, x=time)


def _coalesce(value: Value, literal_value: n.Literal, dialect: str) -> Value:
    filled = exp.Coalesce(this=value.sql, expressions=[literal(literal_value, value.type, dialect)])
    return value.become(filled)
