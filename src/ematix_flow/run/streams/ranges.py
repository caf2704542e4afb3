"""Queries of Structured Streaming whose batches are ranges of a stream: whoever runs the stream says how far each one goes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from threading import Lock
from typing import TYPE_CHECKING

from ematix_flow.errors import FlowError
from ematix_flow.run.spark.errors import reason_of
from ematix_flow.run.spark.java_classes import JavaClasses

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RANGES = "ematix.flow.StreamRanges"
"""Our Java class that is the source of such a query."""

_NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
_starting = Lock()

NO_RANGE = "0"
"""The name of the range before the first one."""


class RangeQuery(ABC):
    """A query that reads one range after the other; what a batch of it loads is up to each kind."""

    def __init__(
        self, spark: SparkSession, folder: str, checkpoint: str, name: str | None = None, *, finishes: bool = True
    ) -> None:
        self._finishes = finishes
        """Whether a batch of its own gives out what is complete by the time of a range; else the next range does."""
        self._spark = spark
        self._ranges = folder
        self._checkpoint = checkpoint
        self._name = name
        self._query: StreamingQuery | None = None
        self._error: BaseException | None = None
        self._context = copy_context()
        self._java = JavaClasses(spark)

    def advance(self, name: str) -> None:
        """Let the query read a range, and return when everything that follows from it was loaded."""
        self._offer(name)
        self._finish()

    def stop(self) -> None:
        """Stop the query; what it has written down stays."""
        if self._query is not None:
            # Java may be gone, and the query with it.
            with suppress(Exception):
                self._query.stop()
                self._java.call(RANGES, "forget", self._ranges)
        self._query = None

    def _start(self, name: str) -> None:
        self._java.enter()
        self._offer(name)
        writer = self._results().writeStream.foreachBatch(self._handle).outputMode("append")
        writer = writer.queryName(self._name) if self._name else writer
        writer = writer.option("checkpointLocation", self._checkpoint).trigger(processingTime="0 seconds")
        # A query takes over the settings of its session when it starts.
        with _starting:
            before = self._spark.conf.get(_NO_DATA_BATCHES)
            self._spark.conf.set(_NO_DATA_BATCHES, str(self._finishes).lower())
            try:
                self._query = writer.start()
            finally:
                self._spark.conf.set(_NO_DATA_BATCHES, before or "true")
        self._finish()

    def _offer(self, name: str) -> None:
        self._java.call(RANGES, "offer", self._ranges, name)

    def _finish(self) -> None:
        assert self._query is not None  # noqa: S101 - started before
        self._context = copy_context()
        try:
            self._query.processAllAvailable()
        except Exception as error:  # noqa: BLE001 - raised again, as what it means
            self.stop()
            reason, self._error = self._error or error, None
            if isinstance(reason, Exception) and not isinstance(reason, FlowError):
                raise self._translated(reason) from reason
            raise reason from None

    def _lines(self, *, events: bool = False) -> DataFrame:
        """Return the lines of the ranges, or the events that they are."""
        reader = self._spark.readStream.format(RANGES).option("folder", self._ranges)
        return reader.option("events", events).load()

    def _results(self) -> DataFrame:
        """Return what a batch consists of."""
        return self._lines()

    def _translated(self, error: Exception) -> Exception:
        """Return an error of a batch as one for people."""
        reason = reason_of(error)
        return reason if isinstance(reason, Exception) else error

    def _handle(self, results: DataFrame, batch: int) -> None:
        try:
            self._context.run(self._load, results, batch)
        except BaseException as error:
            self._error = error
            raise

    @abstractmethod
    def _load(self, results: DataFrame, batch: int) -> None:
        """Load a batch."""


class ScratchQuery(RangeQuery):
    """A query that remembers nothing: its ranges and its checkpoint are scratch, for the target has the position."""

    def __init__(self, spark: SparkSession, name: str, load: Callable[[], None]) -> None:
        self._folder = Path(mkdtemp(prefix="flow-query-"))
        super().__init__(spark, (self._folder / "input").as_uri(), (self._folder / "query").as_uri(), name)
        self._load_range = load
        self._number = 0
        self._offered = False
        """Whether a range waits to be loaded; the first batch of a query is about none."""

    def run(self, text: str) -> None:
        """Run one batch over a range, which `text` describes."""
        if self._query is None:
            # After an error Spark would load the range of that again, and the target may be elsewhere now.
            rmtree(self._folder / "query", ignore_errors=True)
            self._start(NO_RANGE)
        self._number += 1
        lines = self._folder / "input" / str(self._number)
        lines.mkdir(parents=True)
        (lines / "part-0").write_text(text)
        self._offered = True
        try:
            self.advance(str(self._number))
        finally:
            self._offered = False
            rmtree(lines)

    def close(self) -> None:
        """Stop the query and remove its scratch."""
        self.stop()
        rmtree(self._folder, ignore_errors=True)

    def _load(self, results: DataFrame, batch: int) -> None:
        del results, batch
        if self._offered:
            self._offered = False
            self._load_range()
