"""A value on its way into a column: its expression, its family of types and what can go wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from ematix_flow.plan.sql.dialects import both, is_null, not_null

if TYPE_CHECKING:
    from sqlglot import exp


class SourceType(StrEnum):
    """Families of types that need different treatment; `other` is passed on as it is."""

    TEXT = "text"
    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_TZ = "timestamp_tz"
    BINARY = "binary"
    JSON = "json"
    UUID = "uuid"
    OTHER = "other"


NUMBERS = (SourceType.INTEGER, SourceType.DECIMAL, SourceType.FLOAT)
TIME_TYPES = (SourceType.DATE, SourceType.TIMESTAMP, SourceType.TIMESTAMP_TZ)


@dataclass(frozen=True, slots=True)
class Value:
    """An expression over the source columns."""

    sql: exp.Expr
    type: SourceType
    failures: tuple[exp.Expr, ...] = ()
    """Conditions under which the row cannot be loaded."""

    def become(self, sql: exp.Expr, family: SourceType | None = None) -> Value:
        """Return the value after a step that cannot fail."""
        return replace(self, sql=sql, type=family or self.type)

    def read_as(self, sql: exp.Expr, family: SourceType, *, failing: bool) -> Value:
        """Return the value after a step that is NULL for input it cannot read; `failing` makes that a failure."""
        if not failing:
            return self.become(sql, family)
        unreadable = both(not_null(self.sql.copy()), is_null(sql.copy()))
        return Value(sql, family, (*self.failures, unreadable))
