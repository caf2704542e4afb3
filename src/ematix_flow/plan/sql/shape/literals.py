"""Values of a declaration as SQL of the family they meet; what has no meaning there is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlglot import exp

from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.dialects import say
from ematix_flow.plan.sql.shape.cast import between_moments
from ematix_flow.plan.sql.shape.value import MOMENTS, NUMBERS, SourceType, Value

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline.normalize import Literal

S = SourceType


def literal(given: Literal, family: SourceType, dialect: str) -> exp.Expr:
    """Return a value of the declaration as SQL of the family it is compared with or put in place of."""
    if family is S.TEXT:
        return exp.Literal.string(_literal_text(given))
    if family in MOMENTS:
        text = Value(exp.Literal.string(_moment_text(given)), S.TEXT)
        return _constant_moment(text, family, dialect)
    if isinstance(given, bool):
        return exp.true() if given else exp.false()
    if isinstance(given, str | date):
        if family in NUMBERS:
            raise PlanError(f"{given!r} is not a number")
        return exp.Literal.string(_literal_text(given))
    written = format(abs(given), "f") if isinstance(given, Decimal) else str(abs(given))
    positive = exp.Literal.number(written)
    return exp.paren(exp.Neg(this=positive)) if given < 0 else positive


def _constant_moment(text: Value, family: SourceType, dialect: str) -> exp.Expr:
    if family is S.DATE:
        day_text = exp.Literal.string(text.sql.name[:10])
        return say("day", dialect, x=day_text)
    return between_moments(Value(say("naive", dialect, x=text.sql), S.TIMESTAMP), family, dialect).sql


def _moment_text(given: Literal) -> str:
    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given)
        except ValueError as error:
            raise PlanError(
                f"{given!r} is not a point in time", hint="write it as 2026-01-31 or 2026-01-31T12:00:00Z"
            ) from error
    if isinstance(given, datetime):
        utc = given.astimezone(UTC).replace(tzinfo=None) if given.tzinfo else given
        return utc.isoformat(sep=" ", timespec="microseconds")
    if isinstance(given, date):
        return f"{given.isoformat()} 00:00:00"
    raise PlanError(f"{given!r} is not a point in time")


def _literal_text(given: Literal) -> str:
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, datetime):
        return given.isoformat(sep=" ")
    return str(given)
