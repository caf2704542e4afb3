"""Staging that is to stop ends: jobs of Spark are interrupted, threads of this process end with their next rows."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.base.cancellation import Halt
from ematix_flow.errors import RunCancelledError, TransientError
from ematix_flow.run.local.threads import stage_in_threads
from ematix_flow.run.stage.tasks import _collect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa
    from pyspark.sql import SparkSession

GIVE_UP_SECONDS = 120
CANCELLED = RunCancelledError("cancelled by anna")


def test_threads_that_stage_end_with_their_next_rows() -> None:
    halt, began = Halt(), threading.Event()

    def partition(_: tuple[int, int], cancel_check: Callable[[], None]) -> Any:
        while True:
            began.set()
            cancel_check()

    def stop() -> None:
        assert began.wait(GIVE_UP_SECONDS)
        halt.stop(CANCELLED)

    threading.Thread(target=stop).start()
    with halt.over(), pytest.raises(TransientError) as caught:
        stage_in_threads([partition, partition])
    assert halt.blamed(caught.value) is CANCELLED


def test_nothing_is_staged_for_a_run_that_is_to_stop() -> None:
    halt = Halt()
    halt.stop(CANCELLED)
    with halt.over(), pytest.raises(RunCancelledError):
        stage_in_threads([lambda *_, **__: pytest.fail("it began")])


@pytest.mark.spark
def test_a_job_of_spark_is_interrupted(spark: SparkSession) -> None:
    halt = Halt()

    def endless(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            time.sleep(10 * GIVE_UP_SECONDS)
            yield batch

    def stop() -> None:
        until = time.monotonic() + GIVE_UP_SECONDS
        while not spark.sparkContext.statusTracker().getActiveJobsIds() and time.monotonic() < until:
            time.sleep(0.05)
        halt.stop(CANCELLED)

    threading.Thread(target=stop).start()
    frame, began = spark.range(0, 1, 1, 1), time.monotonic()
    with halt.over(), pytest.raises(Exception, match=r"(?i)cancel|interrupt"):
        _collect(frame, endless, None)
    assert time.monotonic() - began < 5 * GIVE_UP_SECONDS
    assert spark.range(3).count() == 3, "the session goes on"
