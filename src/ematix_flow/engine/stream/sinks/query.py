"""Targets of streams without state on Spark: a query of Structured Streaming whose batches are loads of another sink.

The target has the position, in the transaction of its rows, so the checkpoint of the query is scratch. Its batches are
ranges: the tasks of a load read them, and no row passes through Java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.base.stream_source import as_text
from ematix_flow.engine.spark.session import session_for, spark_settings
from ematix_flow.engine.stream.mover import mover_of
from ematix_flow.engine.stream.sinks.base import StreamSink
from ematix_flow.plan.steps import SPARK

if TYPE_CHECKING:
    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.engine.stream.sinks.base import StreamBatch, StreamContext
    from ematix_flow.records import Counts
    from ematix_flow.run.streams.ranges import ScratchQuery


@dataclass
class QuerySink(StreamSink):
    """A sink whose loads are the batches of a query; the query starts with the first of them."""

    sink: StreamSink
    context: StreamContext
    query: ScratchQuery | None = None
    end: Position | None = None
    """How far the batch goes that the query is to load."""
    counts: Counts | None = None
    """What the last batch has loaded."""

    def __post_init__(self) -> None:
        self.key = self.sink.key
        self._follow()

    @property
    def reads_ahead(self) -> bool:
        """Return whether the sink reads the next range while one is loaded."""
        return self.sink.reads_ahead

    @property
    def reads_first(self) -> bool:
        """Return whether the sink has to read messages before anything is known of a load."""
        return self.sink.reads_first

    def load(self, end: Position) -> Counts:
        """Let the query run one batch, in which the sink loads the messages up to a position."""
        query = self._started()
        self.end, self.counts = end, None
        self.sink.next_end = self.next_end
        try:
            query.run(f"{as_text(self.position)}\n{as_text(end)}\n")
        finally:
            self._follow()
        assert self.counts is not None  # noqa: S101 - a batch without a load would have raised
        return self.counts

    def batch(self, end: Position) -> StreamBatch | None:
        """Return what the sink would load."""
        return self.sink.batch(end)

    def is_due(self) -> bool:
        """Return whether a load of the sink would give something out."""
        return self.sink.is_due()

    def clean_up(self) -> None:
        """Let the sink remove old metadata."""
        self.sink.clean_up()

    def close(self) -> None:
        """Stop the query and close the sink."""
        if self.query is not None:
            self.query.close()
        self.query = None
        self.sink.close()

    def _follow(self) -> None:
        self.position, self.previously_loaded = self.sink.position, self.sink.previously_loaded

    def _started(self) -> ScratchQuery:
        from ematix_flow.run.streams.ranges import ScratchQuery

        if self.query is None:
            spark = session_for(self.context.options.load)()
            self.query = ScratchQuery(spark, f"{self.context.name} into {self.key}", self._load_range)
        return self.query

    def _load_range(self) -> None:
        assert self.end is not None  # noqa: S101 - set before the query is given the range
        self.counts = self.sink.load(self.end)


def as_query(sink: StreamSink, context: StreamContext) -> StreamSink:
    """Return the sink as a query, where Spark moves its rows; a Connect server cannot call back into this process."""
    on_spark = mover_of(context.stream, context.options).value == SPARK
    return QuerySink(sink, context) if on_spark and spark_settings().remote is None else sink
