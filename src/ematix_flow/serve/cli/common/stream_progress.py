"""Shows the state of streams on stderr: a live table on a terminal, lines now and then elsewhere."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Any

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.connect.config.redact import redact
from ematix_flow.events import BatchLoaded, StreamFailed, StreamIdle, StreamStarted, StreamWarning
from ematix_flow.observe.metrics.stream_stats import StreamStatsCollector
from ematix_flow.serve.cli.common.output import has_colours, talk
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from rich.table import Table

    from ematix_flow.events import Event
    from ematix_flow.observe.bus import Bus
    from ematix_flow.observe.metrics.stream_stats import StreamStats

RATE = timedelta(seconds=10)
"""Over how long rates are shown."""

LINE_EVERY = timedelta(seconds=10)


@contextmanager
def watched(bus: Bus, streams: Sequence[str], lines: IO[str] | None = None) -> Iterator[None]:
    """Show the state of streams while they run; every batch goes to `lines` as a line of JSON."""
    collector = StreamStatsCollector()
    bus.subscribe(collector)
    for name in streams:
        collector.begin(name)
    if lines is not None:
        bus.subscribe(BatchLines(lines))
    with ExitStack() as resources:
        if has_colours(sys.stderr):
            resources.enter_context(_live(bus, collector))
        else:
            bus.subscribe(PlainLines(collector, sys.stderr))
        yield


class BatchLines:
    """Writes each batch as one line of JSON."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Write a batch, a failure or a warning."""
        line = as_dict(event)
        if line is not None:
            with self._lock:
                self._out.write(redact(json.dumps(line, ensure_ascii=False)) + "\n")
                self._out.flush()


def as_dict(event: Event) -> dict[str, Any] | None:
    """Return a batch, a failure or a warning as plain data; None for other events."""
    head = {"pipeline": event.pipeline, "target": event.target}
    match event:
        case BatchLoaded(counts=counts):
            rows = {"rows_written": counts.staged, "rows_rejected": counts.rejected}
            return {"event": "batch", **head, "messages": event.messages, **rows, "seconds": round(event.seconds, 3)}
        case StreamFailed():
            return {"event": "failure", **head, "error": event.message, "again_in_seconds": event.pause}
        case StreamWarning():
            return {"event": "warning", **head, "message": event.message}
    return None


class PlainLines:
    """Says a line about a stream at its beginning and its first batch, then now and then, and about failures at once.

    The lines go to the screen alone: over months they would push everything else out of a log.
    """

    def __init__(self, collector: StreamStatsCollector, screen: IO[str]) -> None:
        self._collector, self._screen = collector, screen
        self._printed_at: dict[str, datetime] = {}

    def __call__(self, event: Event) -> None:
        """Write what is worth a line."""
        if isinstance(event, StreamFailed | StreamWarning):
            talk(failure(event), "yellow", self._screen)
        elif isinstance(event, StreamStarted):
            talk(beginning(event), screen=self._screen)
        elif isinstance(event, BatchLoaded | StreamIdle):
            now, last = SYSTEM_CLOCK.now(), self._printed_at.get(event.pipeline)
            stats = self._collector.streams[event.pipeline]
            if stats.batches and (last is None or now - last >= LINE_EVERY):
                self._printed_at[event.pipeline] = now
                talk(f"{event.pipeline}: {sentence(stats, now)}", screen=self._screen)


def beginning(event: StreamStarted) -> str:
    """Return in one line which engine moves the rows of a stream and why."""
    mover = "Spark moves" if event.engine == "spark" else "this process moves"
    return f"{event.pipeline}: {mover} the rows: {event.reason}."


def failure(event: StreamFailed | StreamWarning) -> str:
    """Return a failure or a warning in one line."""
    what = event.message.partition("\n")[0]
    who = f"{event.pipeline} ({event.target})" if event.target else event.pipeline
    if isinstance(event, StreamWarning):
        return f"{who}: warning: {what}"
    return f"{who}: {what}" if event.pause is None else f"{who}: {what}; trying again in {event.pause:.1f} s."


def sentence(stats: StreamStats, now: datetime) -> str:
    """Return the state of a stream in one line."""
    rate = stats.rates(now, RATE)["rows_written_per_sec"]
    fragments = [f"{quantity(stats.written, 'row')} written", f"{rate:,.0f}/s"]
    fragments += [f"{stats.rejected:,} rejected"] if stats.rejected else []
    fragments += [f"{lag:,} waiting"] if (lag := _lag(stats)) is not None else []
    fragments += [f"watermark {stats.watermark:%Y-%m-%dT%H:%M:%SZ}"] if stats.watermark is not None else []
    fragments += [f"last batch {seconds:.2f} s"] if (seconds := _slowest(stats)) is not None else []
    return ", ".join(fragments)


def _lag(stats: StreamStats) -> int | None:
    lags = [target.lag for target in stats.targets.values() if target.lag is not None]
    return max(lags, default=None)


def _slowest(stats: StreamStats) -> float | None:
    return max((t.batch_seconds for t in stats.targets.values() if t.batch_seconds is not None), default=None)


@contextmanager
def _live(bus: Bus, collector: StreamStatsCollector) -> Iterator[None]:
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stderr)  # whoever keeps what is said later shall not keep a table that moves

    def stay(event: Event) -> None:
        if isinstance(event, StreamFailed | StreamWarning):
            console.print(redact(failure(event)), markup=False, highlight=False, style="yellow")
        elif isinstance(event, StreamStarted):
            console.print(redact(beginning(event)), markup=False, highlight=False)

    bus.subscribe(stay)
    with Live(get_renderable=lambda: _table(collector), console=console, refresh_per_second=4, redirect_stdout=False):
        yield


def _table(collector: StreamStatsCollector) -> Table:
    from rich.table import Table

    now = SYSTEM_CLOCK.now()
    grid = Table("STREAM", "TARGET", box=None, header_style="bold", pad_edge=False)
    for name in ("ROWS", "ROWS/S", "WAITING", "BATCH", "REJECTED", "WATERMARK"):
        grid.add_column(name, justify="right")
    grid.add_column("STATE")
    for name, stats in list(collector.streams.items()):
        rate = f"{stats.rates(now, RATE)['rows_written_per_sec']:,.0f}"
        for number, (key, target) in enumerate(list(stats.targets.items()) or [("", None)]):
            first = (name, rate, _watermark_time(stats)) if number == 0 else ("", "", "")
            cells = ("", "", "", "") if target is None else _cells(target)
            grid.add_row(first[0], key, cells[0], first[1], *cells[1:], first[2], _state(stats, target))
    return grid


def _watermark_time(stats: StreamStats) -> str:
    return "" if stats.watermark is None else f"{stats.watermark:%H:%M:%S}"


def _cells(target: Any) -> tuple[str, str, str, str]:
    lag = "" if target.lag is None else f"{target.lag:,}"
    seconds = "" if target.batch_seconds is None else f"{target.batch_seconds:.2f} s"
    return f"{target.rows:,}", lag, seconds, f"{target.rejected:,}" if target.rejected else ""


def _state(stats: StreamStats, target: Any) -> str:
    if stats.failure or (target is not None and target.failure):
        return "[yellow]resting[/]"
    if target is None:
        return "idle" if stats.idle else "starting"
    return "[dim]idle[/]" if stats.idle else "[green]loading[/]"
