"""Watches that a session on a cluster has executors while jobs run: Spark itself would wait for them for ever."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ematix_flow.run.spark.launch import Classic

_POLL_SECONDS = 1.0


def watch_executors(session: SparkSession, classic: Classic) -> None:
    """End Java, with the reason noted, when jobs have had no executor for as long as the settings allow.

    A master that was started again does not know the applications from before, so a new session may well find executors.
    """
    threading.Thread(target=_watch, args=(session, classic), name="executor-watch", daemon=True).start()


def _watch(session: SparkSession, classic: Classic) -> None:
    seconds = classic.settings.executor_wait_seconds
    since: float | None = None
    while classic.alive and not classic.ending:
        time.sleep(_POLL_SECONDS)
        try:
            waiting = _is_waiting(session)
        except Exception:  # noqa: BLE001 - Java or the connection to it ends while we ask
            return
        since = (since or time.monotonic()) if waiting else None
        if since is not None and time.monotonic() - since > seconds:
            classic.lost = f"{classic.settings.master} has had no executor for {seconds} seconds"
            classic.driver.process.kill()
            return


def _is_waiting(session: SparkSession) -> bool:
    """Return whether there are jobs and no executor to run them."""
    context: Any = session.sparkContext
    if not context.statusTracker().getActiveJobsIds():
        return False
    # The driver counts as one of them.
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) <= 1  # noqa: SLF001 - pyspark does not tell
