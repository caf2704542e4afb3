"""Reads the messages that come next while those before them are loaded; nothing is changed by that but Spark's cache."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from ematix_flow.run.streams.threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from ematix_flow.run.transform.frame_sql import Typed


_DEADLINE = 5.0
"""Seconds: a source that does not answer does not keep a stream from ending."""


class ReadAhead:
    """The messages of one range, which a thread of its own reads."""

    def __init__(self, spark: SparkSession, key: tuple[str, ...], read: Callable[[], Typed]) -> None:
        self.key = key
        """The range."""
        self._read = read
        self._typed: Future[Typed] = Future()
        start_thread("flow-read-ahead", self._run, spark)

    def result(self) -> Typed:
        """Return the messages when they are read, or raise why they cannot be."""
        return self._typed.result()

    def discard(self) -> None:
        """Let Spark forget them when they are read; wait a moment for that, so that nothing runs on behind the stream."""
        self._typed.add_done_callback(_forget)
        with suppress(Exception):
            self._typed.result(_DEADLINE)

    def _run(self) -> None:
        try:
            self._typed.set_result(self._read())
        except BaseException as error:  # noqa: BLE001 - raised where the messages are asked for
            self._typed.set_exception(error)


def _forget(typed: Future[Typed]) -> None:
    # Whoever asks for them again is told what is wrong with them, and Spark may be gone.
    with suppress(Exception):
        typed.result().retained.unpersist()
