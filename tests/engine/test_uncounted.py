"""Dead letters of a stream with windows: its events are refused by a replay, the rows of its table are not."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from ematix_flow import Aggregation, Dedupe, Window
from ematix_flow.commit.rejects import Reject
from ematix_flow.engine.stream.state.late_rows import refuse_uncounted, replay_late
from ematix_flow.errors import UnsupportedError

WINDOW = Window(
    "tumbling",
    (Aggregation("sum", "amount", "amount"),),
    duration_ms=10_000,
    event_time_column="at",
    group_by=("user",),
)
STREAM: Any = SimpleNamespace(name="s", window=WINDOW, join=None, deduplicate=None, origin=None)


def letter(reason: str, **row: object) -> Reject:
    """Return a dead letter whose amount is to blame."""
    return Reject("a:1", "shop:main.w", "run", reason, "amount", None, json.dumps(row), "pending", 1, "2026-01-01")


def test_an_event_with_a_text_that_cannot_be_summed_is_no_row_of_the_table() -> None:
    event = letter("many is no number that could be summed", at="2026-01-01T00:00:00Z", user="a", amount="many")
    with pytest.raises(UnsupportedError, match="is a row that its windows count, and no row of its table"):
        refuse_uncounted(STREAM, [event])


@pytest.mark.parametrize("reason", ["3000000000.5 could not be parsed", "is NULL but the column is NOT NULL"])
def test_a_row_of_the_table_whose_column_has_the_same_name_can_be_loaded(reason: str) -> None:
    refuse_uncounted(STREAM, [letter(reason, window_start="2026-01-01T00:00:00Z", user="a", amount=3e9)])


def test_late_rows_behind_deduplication_are_left_as_they_are_with_what_can_be_done() -> None:
    stream: Any = SimpleNamespace(name="s", deduplicate=Dedupe(keys=("id",), within=1_000), origin=None)
    late = letter("late_data: window 2026-01-01T00:00:00Z to 2026-01-01T00:00:10Z was given out", amount=1)
    target: Any = None
    options: Any = None
    counted, error = replay_late(stream, target, [late, late], options)
    assert (counted, isinstance(error, UnsupportedError)) == (0, True)
    assert "2 late rows of stream 's' cannot be counted, first a:1" in str(error)
    assert "flow dlq park s --id a:1" in str(error)
