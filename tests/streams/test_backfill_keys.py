"""Keys of tables into which windows of the past can be written again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ematix_flow import Aggregation, Window
from ematix_flow.declare.connection.brokers import KafkaConnection
from ematix_flow.declare.connection.databases import DuckDBConnection
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.stream.state.backfill import _upserting
from ematix_flow.errors import RefusedError

COUNT = (Aggregation("count", as_="n"),)


def upserting(window: Window, *keys: str) -> Any:
    """Return the target into which the windows of a stream are written again."""
    stream = stream_from_keywords(
        {
            "name": "visits", "source": KafkaConnection("events", bootstrap_servers="127.0.0.1:1"), "source_query": "t",
            "target_connection": DuckDBConnection("there", path="t.duckdb"), "target_table": ("main", "visits"),
            "window": window, "mode": "merge", "keys": keys,
        },
        None,
    )  # fmt: skip
    context: Any = SimpleNamespace(stream=stream)
    return _upserting(context, stream.targets[0])


def test_a_group_that_is_named_as_ids_of_sessions_are_does_not_say_which_window_a_row_is() -> None:
    window = Window("tumbling", COUNT, duration_ms=1000, group_by=("session_id",))
    with pytest.raises(RefusedError, match="does not say which window a row is"):
        upserting(window, "session_id")
    assert upserting(window, "session_id", "window_start").write.mode == "merge"
