"""The observers of a stream that runs: metrics, their server and the run log; each only if it was requested."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.open import open_run_log
from ematix_flow.engine.stream.run_records import StreamRecord, new_run_id
from ematix_flow.observe.metrics.stream_stats import StreamStatsCollector

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.engine.stream.options import StreamOptions


@contextmanager
def stream_observers(streams: Sequence[Stream], options: StreamOptions) -> Iterator[dict[str, str]]:
    """Subscribe the requested observers of streams: metrics on a port, a run log; yield the id of each one's run."""
    run_ids = {stream.name: new_run_id(stream.name, options.clock.now()) for stream in streams}
    with ExitStack() as resources:
        _serve(streams, options, resources)
        log = options.run_log
        if log is None and options.run_log_url is not None:
            log = open_run_log(options.run_log_url)
        if log is not None:
            collector = StreamStatsCollector(options.clock)
            options.bus.subscribe(collector)
            for stream in streams:
                stats, run_id = collector.begin(stream.name), run_ids[stream.name]
                record = StreamRecord(run_id, stream.name, stats, log, options.clock)
                options.bus.subscribe(record)
                resources.push(lambda _, error, __, record=record: record.end(error))
        yield run_ids


def _serve(streams: Sequence[Stream], options: StreamOptions, resources: ExitStack) -> None:
    ports = {stream.metrics_port for stream in streams if stream.metrics_port is not None}
    if not ports:
        return
    # Imported here: a stream without metrics does not need it.
    from ematix_flow.observe.metrics.stream import StreamMetrics, served

    metrics = StreamMetrics()
    for stream in streams:
        metrics.begin(stream.name)
    options.bus.subscribe(metrics)
    for port in sorted(ports):
        resources.enter_context(served(metrics, port))
