from __future__ import annotations

import urllib.request
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ematix_flow.errors import RunError
from ematix_flow.events import (
    BatchLoaded,
    RowsWithoutTime,
    StateChanged,
    StreamFailed,
    StreamIdle,
    StreamLag,
    StreamWatermark,
    WindowsOpen,
)
from ematix_flow.observe.metrics.stream import StreamMetrics, served
from ematix_flow.records import Counts

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "ematix_streaming_"
DOCUMENTED = {
    "rows_consumed_total", "rows_written_total", "batches_total", "errors_total", "dlq_writes_total",
    "idle_iterations_total", "cdc_creates_total", "cdc_updates_total", "cdc_deletes_total", "cdc_skipped_total",
    "cdc_idempotent_skipped_total", "cdc_late_total", "cdc_left_out_total", "windows_emitted_total", "windows_active", "state_groups_total",
}  # fmt: skip


def scraped(port: int) -> Mapping[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return every sample by its name without the common beginning, and its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = [sample for family in families for sample in family.samples]
    return {(one.name.removeprefix(PREFIX), frozenset(one.labels.items())): one.value for one in samples}


def of(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset({"pipeline": "orders", **labels}.items())


def test_every_documented_name_is_there_before_the_first_batch(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = StreamMetrics()
    metrics.begin("orders")
    with served(metrics, 0) as port:
        page = scraped(port)
    assert {name for name in DOCUMENTED if page.get(of(name)) == 0.0} == DOCUMENTED
    assert capsys.readouterr().err == f"metrics: http://127.0.0.1:{port}/metrics\n"


def test_events_become_numbers() -> None:
    metrics = StreamMetrics()
    first = BatchLoaded("orders", "a", Counts(staged=9, rejected=1), 0.3, messages=10, new_messages=10)
    metrics(first)
    metrics(BatchLoaded("orders", "b", Counts(staged=10), 2.0, messages=10, new_messages=0))
    metrics(StreamLag("orders", "a", {"0": 4, "1": 5}))
    metrics(StreamLag("orders", "a", {"0": 0, "1": 5}))
    metrics(StreamIdle("orders", ""))
    metrics(StreamWatermark("orders", "", "topic", datetime(2026, 1, 1, tzinfo=UTC)))
    metrics(StreamFailed("orders", "b", "away", 1.0))
    metrics(WindowsOpen("orders", "a", 7))
    metrics(WindowsOpen("orders", "a", 3))
    with served(metrics, 0) as port:
        page = scraped(port)
    numbers = {
        "rows_consumed_total": 10, "rows_written_total": 19, "rows_rejected_total": 1, "dlq_writes_total": 1,
        "batches_total": 1, "idle_iterations_total": 1, "errors_total": 1,
    }  # fmt: skip
    assert {name: page[of(name)] for name in numbers} == numbers
    assert page[of("windows_active")] == 3
    assert page[of("lag_messages", target="a", partition="0")] == 0
    assert page[of("lag_messages", target="a", partition="1")] == 5
    assert page[of("watermark_seconds", source="topic")] == 1767225600.0
    assert page[of("watermark_seconds", source="_global")] == 1767225600.0
    assert page[of("batch_seconds_sum", target="b")] == 2.0
    assert page[of("batch_seconds_bucket", target="a", le="0.5")] == 1


def test_what_the_states_of_several_targets_count_is_counted_once() -> None:
    metrics = StreamMetrics()
    metrics(StateChanged("orders", "a", 2, 1, "drop"))
    metrics(StateChanged("orders", "a", 1, 0, "drop"))
    metrics(StateChanged("orders", "b", 2, 1, "drop"))
    metrics(StateChanged("orders", "b", 2, 1, "drop"))
    for target in ("a", "b"):
        metrics(RowsWithoutTime("orders", target, 4))
        metrics(WindowsOpen("orders", target, 3))
    metrics(WindowsOpen("orders", "a", 1))
    metrics(StateChanged("refunds", "a", 7, 0, "drop"))
    with served(metrics, 0) as port:
        page = scraped(port)
    assert page[of("windows_emitted_total")] == 4
    assert page[of("late_rows_dropped_total", policy="drop")] == 2
    assert page[of("rows_without_event_time_total")] == 4
    assert page[of("windows_active")] == 3
    metrics(WindowsOpen("orders", "b", 1))
    with served(metrics, 0) as port:
        assert scraped(port)[of("windows_active")] == 1


@pytest.mark.slow
def test_a_port_that_is_taken_is_refused_in_words() -> None:
    with served(StreamMetrics(), 0) as port:
        with pytest.raises(RunError, match=f"metrics cannot be served on port {port}") as refused:
            served(StreamMetrics(), port).__enter__()
        assert "--metrics-port 0" in str(refused.value)
