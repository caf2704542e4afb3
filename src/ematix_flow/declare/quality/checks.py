"""Expectations as frozen values, and which of them a table can have; how they are measured is decided in plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.pipeline.regex import check_pattern
from ematix_flow.declare.values import one_of
from ematix_flow.errors import DeclareError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from ematix_flow.declare.table.schema import Table

WARN, REJECT, FAIL = "warn", "reject", "fail"
"""What becomes of a load in which an expectation fails: it is reported, the rows are set aside, nothing is loaded."""

NOT_NULL, UNIQUE, BETWEEN, IS_IN, REGEX = "not_null", "unique", "between", "is_in", "regex"
ROW_COUNT, FRESHNESS, EXISTS_IN = "row_count", "freshness", "exists_in"
SQL, QUERY, PYTHON = "sql", "query", "python"

BY_ROW = (NOT_NULL, UNIQUE, BETWEEN, IS_IN, REGEX, EXISTS_IN, SQL)
"""Those that identify the offending rows, so that these can be set aside."""

NUMBERS = ("small_int", "integer", "big_int", "float", "double", "numeric")
TEXTS = ("text", "string")
DATETIMES = ("date", "timestamp", "timestamp_tz")
_KINDS = {
    UNIQUE: (*NUMBERS, *TEXTS, *DATETIMES, "boolean", "uuid", "bytes"),
    BETWEEN: (*NUMBERS, *TEXTS, *DATETIMES),
    IS_IN: (*NUMBERS, *TEXTS, *DATETIMES, "boolean", "uuid"),
    REGEX: TEXTS,
    FRESHNESS: DATETIMES,
    EXISTS_IN: (*NUMBERS, *TEXTS, *DATETIMES, "boolean", "uuid"),
}
"""Kinds of columns that an expectation can be about; the others can be about any."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """One thing that holds for the rows of a load."""

    kind: str
    name: str
    columns: tuple[str, ...] = ()
    severity: str | None = None
    """warn, reject or fail; None leaves it to the target."""
    low: Any = None
    high: Any = None
    values: tuple[Any, ...] = ()
    text: str = ""
    """The pattern, the condition or the query."""
    other: tuple[str, str, str] | None = None
    """Schema, table and column in which the values must occur."""
    within: timedelta | None = None
    function: Callable[[Any], Any] | None = field(default=None, compare=False)


def check_expectation(one: Expectation, table: Table) -> None:
    """Refuse an expectation that no row of this table could be measured by."""
    one_of(f"severity of {one.name}", one.severity, (None, WARN, REJECT, FAIL))
    if one.severity == REJECT and one.kind not in BY_ROW:
        message = f"{one.name} speaks of the whole load, so no row can be rejected for it"
        raise DeclareError(message, hint='use severity="warn" or severity="fail".')
    for name in one.columns:
        kind, known = table.column(name).type.kind, _KINDS.get(one.kind)
        if known is not None and kind not in known:
            message = f"{one.name}: column {name!r} is {kind}, and {one.kind} is for {', '.join(known)}"
            raise DeclareError(message)
    if one.kind == REGEX:
        check_pattern(one.text)
