"""The Tester that a function of `expectations=` is given: its methods write expectations down and measure nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.pipeline.keywords import duration
from ematix_flow.declare.quality import checks as q
from ematix_flow.declare.quality.checks import Expectation
from ematix_flow.declare.values import column_names, filled_text, whole_number
from ematix_flow.errors import DeclareError, DeclareTypeError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from ematix_flow.declare.table.schema import Table

_VALUES = (bool, int, float, str, Decimal, datetime, date)


class Tester:
    """Records expectations in the order of the calls; each method also returns the value it recorded."""

    __test__ = False

    def __init__(self, table: Table | None = None) -> None:
        self._table = table
        self.expectations: list[Expectation] = []

    def column(self, name: str) -> ColumnTester:
        """Speak of one column; an unknown one is refused with the nearest name."""
        if self._table is not None:
            self._table.column(name)
        return ColumnTester(self, name)

    def unique(self, columns: str | Iterable[str], *, severity: str | None = None) -> Expectation:
        """Expect no two rows of a load with the same values in these columns; a row with a NULL among them is left out."""
        names = column_names("unique", columns)
        for name in names:
            self.column(name)
        return self.take(Expectation(q.UNIQUE, f"unique({', '.join(names)})", names, severity))

    def row_count(
        self, *, at_least: int | None = None, at_most: int | None = None, severity: str | None = None
    ) -> Expectation:
        """Expect so many rows in a load."""
        if at_least is None and at_most is None:
            message = "row_count() needs at_least= or at_most="
            raise DeclareTypeError(message)
        low = None if at_least is None else whole_number("at_least", at_least)
        high = None if at_most is None else whole_number("at_most", at_most)
        _check_order("row_count", low, high)
        return self.take(Expectation(q.ROW_COUNT, q.ROW_COUNT, (), severity, low, high))

    def freshness(self, column: str, within: str | float | timedelta, *, severity: str | None = None) -> Expectation:
        """Expect that the newest value of a column is not older than this when the load begins."""
        self.column(column)
        age = duration("within", within)
        return self.take(Expectation(q.FRESHNESS, f"freshness({column})", (column,), severity, within=age))

    def sql(self, name: str, condition: str, *, severity: str | None = None) -> Expectation:
        """Expect a condition of every row, in the SQL of the target; as in a CHECK, one that is unknown holds."""
        checked_name, text = filled_text("name", name), filled_text("condition", condition)
        return self.take(Expectation(q.SQL, checked_name, (), severity, text=text))

    def query(self, name: str, query: str, *, severity: str | None = None) -> Expectation:
        """Expect no rows from a query of the target over the table `rows`, which is the load."""
        checked_name, text = filled_text("name", name), filled_text("query", query)
        return self.take(Expectation(q.QUERY, checked_name, (), severity, text=text))

    def python(self, name: str, function: Callable[[Any], Any], *, severity: str | None = None) -> Expectation:
        """Expect that a function of the load's rows returns True, or 0 offending rows."""
        if not callable(function):
            message = f"python() takes a function, not {type(function).__name__}"
            raise DeclareTypeError(message)
        checked_name = filled_text("name", name)
        return self.take(Expectation(q.PYTHON, checked_name, (), severity, function=function))

    def take(self, expectation: Expectation) -> Expectation:
        """Write one down."""
        self.expectations.append(expectation)
        return expectation


class ColumnTester:
    """Takes expectations of one column down; what is NULL satisfies all of them but `not_null`."""

    def __init__(self, tester: Tester, name: str) -> None:
        self._tester = tester
        self._name = name

    def not_null(self, *, severity: str | None = None) -> Expectation:
        """Expect a value in every row."""
        return self._take(q.NOT_NULL, severity)

    def unique(self, *, severity: str | None = None) -> Expectation:
        """Expect every value of a load once."""
        return self._take(q.UNIQUE, severity)

    def between(self, low: Any, high: Any, *, severity: str | None = None) -> Expectation:
        """Expect values from `low` to `high`, both included; None leaves an end open."""
        if low is None and high is None:
            message = f"between() of {self._name} has no end"
            raise DeclareTypeError(message)
        bounds = [None if one is None else _value("between", one) for one in (low, high)]
        _check_order(f"between({self._name})", *bounds)
        return self._take(q.BETWEEN, severity, low=bounds[0], high=bounds[1])

    def is_in(self, values: Iterable[Any], *, severity: str | None = None) -> Expectation:
        """Expect one of these values."""
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            message = f"is_in() takes a list of values, not {type(values).__name__}"
            raise DeclareTypeError(message)
        known = tuple(_value("is_in", value) for value in values)
        if not known:
            message = f"is_in() of {self._name} allows no value"
            raise DeclareError(message)
        return self._take(q.IS_IN, severity, values=known)

    def regex(self, pattern: str, *, severity: str | None = None) -> Expectation:
        """Expect texts in which the pattern is found; `^` and `$` bind it to the ends."""
        return self._take(q.REGEX, severity, text=filled_text("pattern", pattern))

    def exists_in(self, table: str, column: str, *, severity: str | None = None) -> Expectation:
        """Expect values that a column of another table in the target's database has."""
        schema, _, name = filled_text("table", table).rpartition(".")
        if not schema or "." in schema:
            message = f"exists_in({table!r}) is not schema.table"
            raise DeclareError(message, hint="write exactly one dot, for example mart.customers.")
        other = (schema, name, filled_text("column", column))
        return self._take(q.EXISTS_IN, severity, other=other)

    def _take(self, kind: str, severity: str | None, **more: Any) -> Expectation:
        return self._tester.take(Expectation(kind, f"{kind}({self._name})", (self._name,), severity, **more))


def _value(method: str, value: Any) -> Any:
    if not isinstance(value, _VALUES):
        message = f"{method}() takes numbers, texts and points in time, not {type(value).__name__}"
        raise DeclareTypeError(message)
    if isinstance(value, float | Decimal) and not math.isfinite(value):
        message = f"{method}() takes numbers that end, not {value}"
        raise DeclareError(message)
    return value


def _check_order(label: str, low: Any, high: Any) -> None:
    try:
        wrong = low is not None and high is not None and low > high
    except TypeError:
        return  # a text compared with a date: what both mean in the column is known when the load is planned
    if wrong:
        message = f"{label}: {low!r} is greater than {high!r}"
        raise DeclareError(message)
