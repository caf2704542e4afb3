"""Windows, their aggregations and joins of two streams as checked values; nothing is computed here."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from ematix_flow.declare.table.schema import check_name
from ematix_flow.declare.values import LONGEST_MS, column_names, filled_text, milliseconds, one_of, whole_number
from ematix_flow.errors import DeclareError, DeclareTypeError
from ematix_flow.wording import quantity

TUMBLING, HOPPING, SESSION = "tumbling", "hopping", "session"
DROP, REOPEN, DLQ = "drop", "reopen", "dlq"
"""What happens to an event that comes after its window was closed."""

AGGREGATIONS = ("count", "count_col", "sum", "min", "max", "avg", "first", "last", "count_distinct")
JOINS = ("inner", "left_outer", "right_outer", "full_outer")


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One number per group of a window, under the name `as_`."""

    agg: str
    as_: str
    column: str | None = None
    mode: str | None = None
    """How count_distinct counts: approximate (default) or exact."""
    max_distinct_values_per_group: int | None = None

    def __post_init__(self) -> None:
        one_of("agg", self.agg, AGGREGATIONS)
        filled_text("as_", self.as_)
        if self.agg == "count" and self.column is not None:
            message = "count takes no column="
            raise DeclareError(message, hint="count_col counts the rows in which a column is not NULL.")
        if self.agg != "count":
            if self.column is None:
                message = f"{self.agg} needs column="
                raise DeclareError(message)
            filled_text("column", self.column)
        self._check_distinct()

    def _check_distinct(self) -> None:
        most = self.max_distinct_values_per_group
        if self.agg != "count_distinct" and (self.mode is not None or most is not None):
            message = f"{self.agg} takes no mode= and no max_distinct_values_per_group="
            raise DeclareError(message, hint="both belong to count_distinct.")
        one_of("mode", self.mode, (None, "approximate", "exact"))
        if (self.mode == "exact") != (most is not None):
            message = 'mode="exact" and max_distinct_values_per_group= belong together'
            raise DeclareError(message, hint="an exact count remembers every value, so it needs a limit.")
        if most is not None:
            whole_number("max_distinct_values_per_group", most, 1)

    @property
    def is_approximate(self) -> bool:
        """Return whether the number may be a little off."""
        return self.agg == "count_distinct" and self.mode != "exact"


@dataclass(frozen=True, slots=True)
class Window:
    """Events grouped by time: tumbling or hopping windows of a fixed length, or sessions that end by silence."""

    kind: str
    aggregations: tuple[Aggregation, ...]
    duration_ms: int = 0
    hop_ms: int | None = None
    gap_ms: int | None = None
    max_session_duration_ms: int | None = None
    event_time_column: str = "_event_ts"
    group_by: tuple[str, ...] = ()
    late_data: str = DROP
    allowed_lateness_ms: int | None = None
    max_groups_per_window: int = 1_000_000
    window_start_column: str = "window_start"
    window_end_column: str = "window_end"
    session_id_column: str = "session_id"

    def __post_init__(self) -> None:
        one_of("kind", self.kind, (TUMBLING, HOPPING, SESSION))
        object.__setattr__(self, "aggregations", _aggregations(self.aggregations))
        if self.group_by:
            object.__setattr__(self, "group_by", column_names("group_by", self.group_by))
        else:
            object.__setattr__(self, "group_by", ())
        whole_number("max_groups_per_window", self.max_groups_per_window, 1)
        filled_text("event_time_column", self.event_time_column)
        _check_late(self.late_data, self.allowed_lateness_ms, (DROP, REOPEN, DLQ))
        if self.kind == SESSION:
            self._check_session()
        else:
            self._check_fixed()
        self._check_output()

    def _check_session(self) -> None:
        if self.duration_ms or self.hop_ms is not None:
            message = "a session window takes no duration_ms= and no hop_ms="
            raise DeclareError(message, hint="gap_ms= ends a session, max_session_duration_ms= limits it.")
        for name in ("gap_ms", "max_session_duration_ms"):
            if getattr(self, name) is None:
                message = f"a session window needs {name}="
                raise DeclareError(message)
            milliseconds(name, getattr(self, name), 1)
        if not self.group_by:
            message = "a session window needs group_by="
            raise DeclareError(message, hint="name the columns whose silence ends a session.")

    def _check_fixed(self) -> None:
        for name in ("gap_ms", "max_session_duration_ms"):
            if getattr(self, name) is not None:
                message = f"a {self.kind} window takes no {name}="
                raise DeclareError(message, hint="it belongs to a session window.")
        milliseconds("duration_ms", self.duration_ms, 1)
        if self.kind == TUMBLING and self.hop_ms not in (None, self.duration_ms):
            message = "hop_ms= of a tumbling window is its duration"
            raise DeclareError(message, hint='use kind="hopping", or leave hop_ms= out.')
        if self.kind == HOPPING:
            if self.hop_ms is None:
                message = "a hopping window needs hop_ms="
                raise DeclareError(message)
            if whole_number("hop_ms", self.hop_ms, 1) > self.duration_ms:
                message = "hop_ms= is longer than duration_ms=, so that events between two windows would be lost"
                raise DeclareError(message)

    def _check_output(self) -> None:
        times = (self.window_start_column, self.window_end_column)
        ids = (self.session_id_column,) if self.kind == SESSION else ()
        names = (*times, *ids, *self.group_by, *(one.as_ for one in self.aggregations))
        for name in names:
            check_name("column", name, None)
        twice = [name for name, count in Counter(name.lower() for name in names).items() if count > 1]
        if twice:
            message = f"a window gives column {twice[0]!r} twice"
            raise DeclareError(message, hint="give aggregations, groups and times names of their own.")


@dataclass(frozen=True, slots=True)
class Join:
    """Rows of two sources with equal keys and times that are near enough."""

    left_source: str
    right_source: str
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    time_window_ms: int = 0
    kind: str = "inner"
    min_delta_ms: int | None = None
    max_delta_ms: int | None = None
    event_time_column: str = "_event_ts"
    late_data: str = DROP
    allowed_lateness_ms: int | None = None
    left_column_prefix: str = "left_"
    right_column_prefix: str = "right_"

    def __post_init__(self) -> None:
        if self.kind == "stream_stream_join":
            object.__setattr__(self, "kind", "inner")
        one_of("kind", self.kind, JOINS)
        if filled_text("left_source", self.left_source) == filled_text("right_source", self.right_source):
            message = "left_source= and right_source= are the same"
            raise DeclareError(message, hint="name the queries of two different sources.")
        for name in ("left_keys", "right_keys"):
            object.__setattr__(self, name, column_names(name, getattr(self, name)))
        if len(self.left_keys) != len(self.right_keys):
            message = (
                f"left_keys= has {quantity(len(self.left_keys), 'column')} and right_keys= has {len(self.right_keys)}"
            )
            raise DeclareError(message)
        self._check_prefixes()
        filled_text("event_time_column", self.event_time_column)
        _check_late(self.late_data, self.allowed_lateness_ms, (DROP, REOPEN))
        self._check_times()

    def _check_prefixes(self) -> None:
        for name in ("left_column_prefix", "right_column_prefix"):
            if not isinstance(getattr(self, name), str):
                message = f"{name}= takes text, not {type(getattr(self, name)).__name__}"
                raise DeclareTypeError(message)
        if self.left_column_prefix.lower() == self.right_column_prefix.lower():
            message = "left_column_prefix= and right_column_prefix= are the same"
            raise DeclareError(message, hint="names that differ only in case are the same column to most databases.")

    def _check_times(self) -> None:
        milliseconds("time_window_ms", self.time_window_ms)
        deltas = (self.min_delta_ms, self.max_delta_ms)
        if deltas == (None, None):
            if self.time_window_ms == 0:
                message = "a join needs time_window_ms=, or min_delta_ms= and max_delta_ms="
                raise DeclareError(message)
            return
        if self.min_delta_ms is None or self.max_delta_ms is None or self.time_window_ms:
            message = "a join has time_window_ms=, or min_delta_ms= and max_delta_ms= together"
            raise DeclareError(message)
        if not all(isinstance(one, int) and not isinstance(one, bool) for one in deltas):
            message = "min_delta_ms= and max_delta_ms= take whole numbers"
            raise DeclareTypeError(message)
        for name in ("min_delta_ms", "max_delta_ms"):
            milliseconds(name, getattr(self, name), -LONGEST_MS)
        if self.min_delta_ms >= self.max_delta_ms:
            message = f"min_delta_ms={self.min_delta_ms} is not below max_delta_ms={self.max_delta_ms}"
            raise DeclareError(message)


@dataclass(frozen=True, slots=True)
class Dedupe:
    """Rows whose keys came before, within a time: only the first of them is loaded."""

    keys: tuple[str, ...]
    within: int
    """A timedelta, or milliseconds: how far apart, by their times, two rows of one key are the same."""
    event_time_column: str = "_event_ts"

    late_data: ClassVar[str] = DROP

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", column_names("keys", self.keys))
        within: Any = self.within
        if isinstance(within, timedelta):
            object.__setattr__(self, "within", round(within / timedelta(milliseconds=1)))
        milliseconds("within", self.within, 1)
        filled_text("event_time_column", self.event_time_column)


def _aggregations(value: Any) -> tuple[Aggregation, ...]:
    entries = (value,) if isinstance(value, Aggregation) else value
    if not isinstance(entries, list | tuple) or not all(isinstance(one, Aggregation) for one in entries):
        message = "aggregations= takes a list of Aggregation(...)"
        raise DeclareTypeError(message)
    if not entries:
        message = "a window needs at least one aggregation"
        raise DeclareError(message, hint='for example Aggregation(agg="count", as_="n").')
    return tuple(entries)


def _check_late(late_data: str, allowed_lateness_ms: int | None, known: tuple[str, ...]) -> None:
    one_of("late_data", late_data, known)
    if (late_data == REOPEN) != (allowed_lateness_ms is not None):
        message = 'late_data="reopen" and allowed_lateness_ms= belong together'
        raise DeclareError(message)
    if allowed_lateness_ms is not None:
        milliseconds("allowed_lateness_ms", allowed_lateness_ms)
