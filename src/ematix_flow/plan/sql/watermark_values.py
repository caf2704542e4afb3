"""The value of a watermark: how it is stored as text, compared as SQL and moved back by a look-back; pure.

What is stored must come back as the very value that was read, or rows between the two are lost or never loaded. A
floating-point number is stored as the double that it is, with an exponent, which no exact number has; one without an
exponent is from before, and is compared as it was then. The same holds for the `T` in times with nanoseconds.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING

from ematix_flow.errors import PlanError, RunError
from ematix_flow.plan.sql.render import text

if TYPE_CHECKING:
    from ematix_flow.connect.base.columns import SourceColumn

NUMBERS = ("integer", "decimal", "float")
TIMES = ("timestamp", "timestamp_tz", "date")

INTERVALS = ("postgres", "duckdb", "spark")
"""Dialects with types for times and for the differences between them."""

NANOSECONDS = "TIMESTAMP_NS"

_CASTS = {"date": "DATE", "timestamp": "TIMESTAMP", "timestamp_tz": "TIMESTAMPTZ"}
_DOUBLE = re.compile(r"-?[0-9.]+e[+-]?[0-9]+", re.IGNORECASE)
_NUMBER = re.compile(r"-?([0-9]+[.]?[0-9]*|[.][0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_ENDLESS = ("infinity", "inf", "nan")
_TIME = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)((?P<between>[ T])(?P<time>\d\d:\d\d(:\d\d)?)(?P<fraction>(?<=:\d\d:\d\d)[.]\d+)?"
    r"(?P<zone> ?(Z|[+-]\d\d(:?\d\d)?))?)?"
)
_FACTOR = 62
"""Powers of two up to which SQLite takes a whole number, and a double has it exactly."""


def highest_value_sql(name: str, column: SourceColumn, dialect: str) -> str:
    """Return the highest value of a column of the source as it can be fetched without loss."""
    if dialect == "sqlite":
        # Its driver hands over what is stored; as text SQLite has 15 digits of a number.
        return f"MAX({name})"
    if column.family == "float":
        return f"CAST(MAX({name}) AS {'DOUBLE PRECISION' if dialect == 'postgres' else 'DOUBLE'})"
    kind = {"mysql": "CHAR", "spark": "STRING"}.get(dialect, "VARCHAR")
    return f"CAST(MAX({name}) AS {kind})"


def stored_value(value: object, column: SourceColumn, dialect: str) -> str | None:
    """Return a highest value that was fetched as it is stored; None for none."""
    if value is None:
        return None
    spelled = str(value)
    if spelled.lower().lstrip("+-") in _ENDLESS:
        message = f"the highest {column.name!r} is {value}: after it, an incremental load would never see another row"
        raise RunError(message, hint="leave such rows out in the query, or give them a real value.")
    # SQLite may have text in a column of numbers, and orders it above all of them.
    unexpected = dialect == "sqlite" and isinstance(value, str)
    if isinstance(value, bytes) or (column.family in NUMBERS and (unexpected or not _NUMBER.fullmatch(spelled))):
        message = f"the highest {column.name!r} is {value!r}, which is no value of {column.native or column.family}"
        raise RunError(message, hint="leave such rows out in the query, or cast the column there.")
    if isinstance(value, float) or (column.family == "float" and isinstance(value, str)):
        return _spelled_double(float(spelled))
    if column.family == "decimal":
        return format(Decimal(spelled), "f")
    return spelled.replace(" ", "T") if column.native == NANOSECONDS else spelled


def value_sql(value: str, column: SourceColumn, dialect: str) -> str:
    """Return a stored value as an SQL literal of the source column's type."""
    if _is_double(value, column, dialect):
        return _double_sql(value, dialect)
    if column.family in NUMBERS:
        return value
    literal = text(value)
    if column.family in TIMES and dialect in INTERVALS:
        exact = column.native == NANOSECONDS and "T" in value
        return f"CAST({literal} AS {NANOSECONDS if exact else _CASTS[column.family]})"
    return literal


def value_before_sql(value: str, column: SourceColumn, dialect: str, lookback: timedelta) -> str:
    """Return what comes that much before a stored value as SQL; where it has to be rounded, it is never later."""
    if column.family in NUMBERS:
        return value_sql(number_before(value, column, lookback), column, dialect)
    if column.family in TIMES and dialect in INTERVALS and column.native != NANOSECONDS:
        seconds, part = divmod(lookback, timedelta(seconds=1))
        whole = f"{seconds} seconds" if not part else f"{lookback // timedelta(microseconds=1)} microseconds"
        return f"({value_sql(value, column, dialect)} - INTERVAL '{whole}')"
    return value_sql(_time_before(value, column, lookback), column, dialect)


def number_before(value: str, column: SourceColumn, lookback: timedelta) -> str:
    """Return a stored number of seconds, less the look-back."""
    if not _NUMBER.fullmatch(value):
        raise _no_time(value, column)
    microseconds = lookback // timedelta(microseconds=1)
    if _DOUBLE.fullmatch(value):
        exact = Fraction(float(value)) - Fraction(microseconds, 10**6)
        nearest = float(exact)
        return _spelled_double(nearest if nearest <= exact else math.nextafter(nearest, -math.inf))
    with localcontext(prec=200):
        before = Decimal(value) - Decimal(microseconds).scaleb(-6)
        # Whole numbers are above a fraction when they are above the whole number below it.
        return format(before.to_integral_value(ROUND_FLOOR) if column.family == "integer" else before.normalize(), "f")


def _time_before(value: str, column: SourceColumn, lookback: timedelta) -> str:
    """Return a time earlier, spelled like the given one: with its offset, and no finer than it."""
    match = _TIME.fullmatch(value)
    if match is None:
        raise _no_time(value, column)
    digits = (match["fraction"] or "")[1:]
    try:
        given = datetime.fromisoformat(f"{match['day']} {match['time'] or '00:00'}")
        before = given + timedelta(microseconds=int(digits[:6].ljust(6, "0"))) - lookback
    except ValueError:
        raise _no_time(value, column) from None
    except OverflowError:
        message = f"lookback={lookback} before {value}, the watermark of {column.name!r}, is before the year 1"
        raise PlanError(message, hint="make lookback= shorter.") from None
    if match["time"] is None:
        return before.date().isoformat()
    clock = before.time().isoformat("microseconds")
    fraction = "." + (clock[9:] + digits[6:])[: len(digits)] if digits else ""
    day = before.date().isoformat()
    return f"{day}{match['between']}{clock[: len(match['time'])]}{fraction}{match['zone'] or ''}"


def _no_time(value: str, column: SourceColumn) -> PlanError:
    message = (
        f"lookback= cannot be subtracted from {value!r}, the watermark of {column.name!r}: it is no date or timestamp"
    )
    hint = "cast the column in the query, to a number of seconds, a date or a timestamp; or drop lookback=."
    return PlanError(message, hint=hint)


def _spelled_double(number: float) -> str:
    spelled = repr(number)
    return spelled if "e" in spelled else f"{spelled}e0"


def _is_double(value: str, column: SourceColumn, dialect: str) -> bool:
    # A time that SQLite stores as a number is one, though the column promises text.
    numeric = dialect == "sqlite" and column.native.upper().startswith(("DATE", "TIMESTAMP"))
    return (column.family in NUMBERS or numeric) and _DOUBLE.fullmatch(value) is not None


def _double_sql(value: str, dialect: str) -> str:
    """Return a double as SQL that no dialect rounds, and that narrower columns are compared with as doubles."""
    if dialect == "mysql":
        return value
    return _exact_in_sqlite(float(value)) if dialect == "sqlite" else f"CAST({text(value)} AS DOUBLE PRECISION)"


def _exact_in_sqlite(number: float) -> str:
    """Return a double as whole numbers and powers of two, because SQLite reads only 15 digits as they are written."""
    numerator, denominator = number.as_integer_ratio()
    if abs(numerator) < 2**_FACTOR and denominator == 1:
        return str(numerator)
    power = denominator.bit_length() - 1
    operator = "/"
    if denominator == 1:
        power = (numerator & -numerator).bit_length() - 1
        numerator, operator = numerator >> power, "*"
    steps = [_FACTOR] * (power // _FACTOR) + [power % _FACTOR] * (power % _FACTOR > 0)
    return f"({numerator}{''.join(f' {operator} {2**step}.0' for step in steps)})"
