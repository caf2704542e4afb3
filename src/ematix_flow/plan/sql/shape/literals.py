"""Values of a declaration as SQL of the family they meet; what has no meaning there is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlglot import exp

from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.dialects import as_operand, fill, number, sql_func
from ematix_flow.plan.sql.shape.cast import convert_timestamp
from ematix_flow.plan.sql.shape.value import NUMBERS, TIME_TYPES, SourceType, Value

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline.normalize import Literal

S = SourceType


def literal(value: Literal, family: SourceType, dialect: str) -> exp.Expr:
    """Return a value of the declaration as SQL of the family it is compared with or put in place of."""
    if family is S.TEXT:
        return exp.Literal.string(_literal_text(value))
    if family in TIME_TYPES:
        text = Value(exp.Literal.string(_timestamp_text(value)), S.TEXT)
        return _constant_timestamp(text, family, dialect)
    if isinstance(value, bool):
        return exp.true() if value else exp.false()
    if isinstance(value, str | date):
        if family in NUMBERS:
            raise PlanError(f"{value!r} is not a number")
        return exp.Literal.string(_literal_text(value))
    if family is S.DECIMAL and dialect == "sqlite":
        # Decimals are text there; a number in its SQL has 15 digits.
        return exp.Literal.string(_digits(value))
    written = format(abs(value), "f") if isinstance(value, Decimal) else str(abs(value))
    positive = exp.Literal.number(written)
    return exp.paren(exp.Neg(this=positive)) if value < 0 else positive


def compared(comparison: type[exp.Binary], x: exp.Expr, value: Literal, family: SourceType, dialect: str) -> exp.Expr:
    """Return the comparison of an expression of this family with a value of the declaration: by every digit, and by bytes."""
    other = literal(value, family, dialect)
    if dialect == "sqlite" and family in NUMBERS and not isinstance(value, bool):
        # Text and a number are unlike there, and a number in its SQL has 15 digits.
        x, other = fill("FLOW_COMPARE(x, y)", dialect, x=x, y=_digits(value)), number(0)
    elif family is S.TEXT and comparison is exp.EQ:
        return sql_func("same_text", dialect, x=x, y=other)
    elif family is S.TEXT:
        x, other = _by_bytes(x, dialect), _by_bytes(other, dialect)
    return comparison(this=x, expression=other)


def _by_bytes(x: exp.Expr, dialect: str) -> exp.Expr:
    """Return a text that is ordered by its bytes, whatever the collation of its column or database."""
    match dialect:
        case "mysql":
            return sql_func("bytes", dialect, x=x)
        case "postgres":
            return exp.Collate(this=as_operand(x), expression=exp.to_identifier("C", quoted=True))
        case "sqlite" | "duckdb":
            return exp.Collate(this=as_operand(x), expression=exp.to_identifier("BINARY"))
    return x


def _digits(value: object) -> str:
    return format(Decimal(str(value)), "f")


def _constant_timestamp(text: Value, family: SourceType, dialect: str) -> exp.Expr:
    if family is S.DATE:
        day_text = exp.Literal.string(text.sql.name[:10])
        return sql_func("day", dialect, x=day_text)
    return convert_timestamp(Value(sql_func("naive", dialect, x=text.sql), S.TIMESTAMP), family, dialect).sql


def _timestamp_text(value: Literal) -> str:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise PlanError(
                f"{value!r} is not a point in time", hint="write it as 2026-01-31 or 2026-01-31T12:00:00Z"
            ) from error
    if isinstance(value, datetime):
        utc = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return utc.isoformat(sep=" ", timespec="microseconds")
    if isinstance(value, date):
        return f"{value.isoformat()} 00:00:00"
    raise PlanError(f"{value!r} is not a point in time")


def _literal_text(value: Literal) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    return str(value)
