"""Functions of dates and times by dialect: names of days, fields, units and what seconds are counted from."""

from __future__ import annotations

from sqlglot import exp

from ematix_flow.plan.sql.dialect.formats import translate_format
from ematix_flow.plan.sql.dialect.refusal import refusal
from ematix_flow.plan.sql.dialect.typed import MOVE, typed_call

_FIELDS = {
    "YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOY", "HOUR", "MINUTE", "SECOND", "ISODOW", "DOW", "EPOCH",
}  # fmt: skip
_UNITS = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"}
_PLURALS = {"MILLISECONDS": "MILLISECOND", "MICROSECONDS": "MICROSECOND"}
_YEAR_ZERO = "0000-01-01"
"""What MySQL counts days from, in a year that it gives 365 days and Spark 366."""
_PARTS = ("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
"""What the arguments of Spark's make_interval() are."""
_FOLLOW_POSTGRES = ("postgres", "duckdb", "datafusion")


def translate_time(node: exp.Func, dialect: str, where: str) -> None:
    """Replace a function of times with one that means the same in Spark, or refuse it; most calls stay."""
    match node:
        case exp.TimeToStr() | exp.StrToDate() | exp.StrToTime():
            translate_format(node, dialect, where)
        case exp.UnixToTime() if node.args.get("format") is not None:
            translate_format(node, dialect, where)
        case exp.Extract():
            _extract(node, dialect, where)
        case exp.Dayname() if dialect in ("duckdb", "mysql"):
            _name(node, "EEEE")
        case exp.Monthname() if dialect == "duckdb":
            _name(node, "MMMM")
        case exp.DateAdd() | exp.DateSub() | exp.TimestampAdd() if dialect == "mysql":
            _move(node, dialect, where)
        case exp.DateDiff() if dialect == "mysql" and _literal(node.expression) == _YEAR_ZERO:
            node.replace(exp.paren(exp.Sub(this=node.copy(), expression=exp.Literal.number(1))))
        case _ if dialect in _FOLLOW_POSTGRES:
            _of_postgres(node, dialect, where)


def interval(amount: exp.Expr, unit: exp.Expr | None, dialect: str, where: str) -> exp.Expr:
    """Return so many units of time, which may be computed."""
    name = unit.name.upper().removesuffix("S") if isinstance(unit, exp.Var) else ""
    if name == "QUARTER":
        name, amount = "MONTH", exp.Mul(this=exp.paren(amount.copy()), expression=exp.Literal.number(3))
    if name not in _PARTS:
        reason = f"an interval of {unit.sql() if unit is not None else 'no unit'} has no translation"
        raise refusal(dialect, where, reason, f"these have one: {', '.join(_PARTS)}.")
    if isinstance(amount, exp.Literal):
        return exp.Interval(this=exp.Literal.string(amount.name), unit=exp.var(name))
    kind = "DECIMAL(18, 6)" if name == "SECOND" else "INT"
    parts: list[exp.Expr] = [exp.Literal.number(0) for _ in _PARTS]
    parts[_PARTS.index(name)] = exp.cast(amount.copy(), kind)
    return exp.Anonymous(this="MAKE_INTERVAL", expressions=parts)


def _move(node: exp.Func, dialect: str, where: str) -> None:
    """Add an interval to a time or subtract it; Spark's date_add() adds days and forgets the time of the day."""
    kind = exp.Sub if isinstance(node, exp.DateSub) else exp.Add
    moved = kind(this=node.this.copy(), expression=interval(node.expression, node.args.get("unit"), dialect, where))
    node.replace(exp.paren(typed_call(MOVE, dialect, where, moved)))


def check_unit(node: exp.Expr, dialect: str, where: str) -> None:
    """Refuse a unit that Spark truncates to NULL."""
    unit = node.args["unit"].name.upper()
    if unit in _PLURALS:
        node.set("unit", exp.var(_PLURALS[unit]))
    elif unit not in _UNITS or node.args.get("zone") is not None:
        reason = (
            f"date_trunc() to {unit} has no translation" if unit not in _UNITS else "date_trunc() in a zone has none"
        )
        raise refusal(dialect, where, reason, f"these have one: {', '.join(sorted(_UNITS))}.")


def _seconds(value: exp.Expr) -> exp.Expr:
    micros = exp.Anonymous(this="UNIX_MICROS", expressions=[exp.cast(value.copy(), "TIMESTAMP", dialect="spark")])
    return exp.paren(exp.Div(this=micros, expression=exp.cast(exp.Literal.number(1000000), "DOUBLE")))


def _extract(node: exp.Extract, dialect: str, where: str) -> None:
    field = node.name.upper()
    if field not in _FIELDS or (dialect == "mysql" and field == "WEEK"):  # which begins on Sundays there
        reason = f"the field {field} has no translation"
        raise refusal(dialect, where, reason, f"these have one: {', '.join(sorted(_FIELDS))}.")
    if field == "DOW":  # Sunday is 0 there and 1 here
        node.replace(exp.paren(exp.Sub(this=node.copy(), expression=exp.Literal.number(1))))
    elif field == "ISODOW":
        node.set("this", exp.var("DOW_ISO"))
    elif field == "EPOCH":
        node.replace(_seconds(node.expression))
    elif field == "SECOND" and dialect != "postgres":
        node.replace(exp.cast(node.copy(), "INT"))


def _of_postgres(node: exp.Func, dialect: str, where: str) -> None:
    match node:
        case exp.Anonymous() if str(node.this).lower() in ("date_part", "datepart"):
            _extract(_field_of(node, dialect, where), dialect, where)
        case exp.Anonymous() if dialect == "duckdb" and str(node.this).lower() == "weekday":
            node.replace(
                exp.paren(exp.Sub(this=exp.DayOfWeek(this=node.expressions[0]), expression=exp.Literal.number(1)))
            )
        case exp.DayOfWeekIso() if dialect == "duckdb":
            node.replace(exp.Extract(this=exp.var("DOW_ISO"), expression=node.this.copy()))
        case exp.DayOfWeek() if dialect == "duckdb":
            node.replace(exp.paren(exp.Sub(this=node.copy(), expression=exp.Literal.number(1))))
        case exp.TimeToUnix() if dialect == "duckdb":
            node.replace(_seconds(node.this))
        case exp.UnixToTime() if node.args.get("scale") is None and node.args.get("format") is None:
            _timestamp(node, dialect)
        case exp.DateDiff() if dialect == "duckdb":
            _date_diff(node, dialect, where)


def _field_of(node: exp.Anonymous, dialect: str, where: str) -> exp.Extract:
    """Return a call of date_part as the EXTRACT that has replaced it."""
    field, value = node.expressions
    if not field.is_string:
        raise refusal(dialect, where, "a field of a time that is computed has no translation", "write the field out.")
    return node.replace(exp.Extract(this=exp.var(field.name.upper()), expression=value.copy()))


def _name(node: exp.Func, java: str) -> None:
    """Return the whole name of a day or a month; Spark's functions shorten it."""
    node.replace(exp.Anonymous(this="DATE_FORMAT", expressions=[node.this.copy(), exp.Literal.string(java)]))


def _literal(node: exp.Expr) -> str:
    """Return the text of a literal, also of one that is read as a date."""
    return node.name if isinstance(node, exp.Literal | exp.TsOrDsToDate) else ""


def _timestamp(node: exp.UnixToTime, dialect: str) -> None:
    """Return the instant of seconds with their fraction; DataFusion's function reads texts too."""
    if dialect == "datafusion":
        node.replace(exp.cast(node.this.copy(), "TIMESTAMPTZ"))
    else:
        node.replace(exp.Anonymous(this="TIMESTAMP_SECONDS", expressions=[node.this]))


def _date_diff(node: exp.DateDiff, dialect: str, where: str) -> None:
    unit = node.args.get("unit")
    if unit is not None and unit.name.upper() != "DAY":
        reason = f"date_diff() of {dialect} counts the boundaries between two times, and Spark's whole units"
        raise refusal(dialect, where, reason, "take days, or write it with dialect='spark'.")
    days = [exp.cast(one.copy(), "DATE") for one in (node.this, node.expression)]
    node.replace(exp.Anonymous(this="DATEDIFF", expressions=days))
