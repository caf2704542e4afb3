"""Rows that come late are kept, and rows of windows that come with them go by what the stream says of bad rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ematix_flow import Aggregation
from ematix_flow.errors import BadRowsError
from tests.depth import STREAM_STATE
from tests.streams.feeds import drain, rows_in
from tests.streams.test_windows import events, into, tumbling

if TYPE_CHECKING:
    from pathlib import Path

    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group(STREAM_STATE),
    pytest.mark.usefixtures("spark", "stateful"),
]

TABLE = 'CREATE TABLE shop.w (window_start TIMESTAMPTZ, window_end TIMESTAMPTZ, "user" VARCHAR, n INTEGER)'


@pytest.mark.deep
def test_a_window_that_does_not_fit_its_table_fails_also_next_to_late_rows(topic: Topic, warehouse: Path) -> None:
    rows_in(warehouse, "CREATE SCHEMA shop")
    rows_in(warehouse, TABLE)
    window = tumbling(aggregations=(Aggregation(agg="sum", column="amount", as_="n"),), late_data="dlq")
    # The third row is late, and the first window closes with it.
    topic.write(events((1, "a", 3_000_000_000), (12, "a", 1), (2, "a", 1)), partition=0)
    with pytest.raises(BadRowsError, match="1 of 1 row does not fit"):
        drain(into(topic, warehouse, window, max_rows_per_batch=1))
    drain(into(topic, warehouse, window, max_rows_per_batch=1, transform_on_error="drop"))
    ((reason,),) = rows_in(warehouse, "SELECT reason FROM ematix_flow.rejects")
    assert reason.startswith("late_data: ")
