"""How far streams of changes are behind the logs of their databases, also streams that do not run; nothing is changed."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.change_log.lag import LagLimits, LogLag
from ematix_flow.connect.change_log.source import ChangeLogSource
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.declare.connection.change_logs import ChangeLogConnection
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.stream.control import position_of
from ematix_flow.engine.stream.names import filled_in
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.replication import streams_of
from ematix_flow.engine.stream.sources import source_of
from ematix_flow.errors import FlowError, StreamLostError
from ematix_flow.events import LogLagChecked
from ematix_flow.plan.schedule.freshness import BREACHED, HEALTHY, WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.connect.base.stream_source import Position, StreamSource
    from ematix_flow.declare.connection.base import Connection
    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.observe.bus import Bus

EVERY = timedelta(minutes=1)
UNKNOWN, LOST = "unknown", "lost"


@dataclass(frozen=True, slots=True)
class ChangeLag:
    """How far one target is behind the log of one database."""

    stream: str
    target: str
    source: str
    state: str
    """healthy, warning (nearly at a limit), breached, lost (what it lacks is gone) or unknown (nobody answers)."""
    lag: LogLag = field(default_factory=LogLag)
    limits: LagLimits = field(default_factory=LagLimits)
    problem: str = ""
    """What is too much, lost or unknown; empty where everything is well."""

    @property
    def is_bad(self) -> bool:
        """Return whether an operator should do something."""
        return self.state in (BREACHED, LOST, UNKNOWN)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        lag = {"lag_bytes": self.lag.bytes, "lag_seconds": self.lag.seconds, "retained_bytes": self.lag.retained_bytes}
        limits = {f"max_{name}": value for name, value in asdict(self.limits).items() if value is not None}
        known = {"stream": self.stream, "target": self.target, "source": self.source, "state": self.state}
        return {**known, **lag, "limits": limits, "problem": self.problem or None}


def change_lags(stream: Stream, options: StreamOptions | None = None) -> list[ChangeLag]:
    """Return how far every target of a stream is behind every log that the stream reads; none where it reads no log.

    Where that cannot be found out, every target is in the state unknown, with the reason.
    """
    try:
        return _lags_of(filled_in(stream), options or StreamOptions())
    except Exception as error:  # noqa: BLE001 - drivers have exceptions of their own, and other streams have a state too
        query = ", ".join(one.query for one in stream.sources)
        return [unknown_lag(stream.name, error, stream.key_of(target), query) for target in stream.targets]


def unknown_lag(name: str, error: Exception, target: str = "?", source: str = "?") -> ChangeLag:
    """Return the state of a stream about which an error is all that is known."""
    return ChangeLag(name, target, source, UNKNOWN, problem=safe_text(error))


def _lags_of(stream: Stream, options: StreamOptions) -> list[ChangeLag]:
    if not any(isinstance(resolve_connection(one.connection), ChangeLogConnection) for one in stream.sources):
        return []
    with closing(source_of(stream, options)) as source:
        logs = [part for part in source.parts if isinstance(part, ChangeLogSource)]
        return [_lag_of(stream, target, source, log, options) for target in stream.targets for log in logs]


def applied_changes(log: RunLog, stream: str) -> dict[str, Any]:
    """Return what the last recorded run of a stream did with changes, and what it warned of."""
    runs, _ = log.list_runs(pipeline=stream, limit=1)
    extras = runs[0].extras if runs else {}
    return {"changes": extras.get("changes", {}), "warnings": extras.get("warnings", [])}


def log_lag(source: StreamSource, position: Position) -> LogLag | None:
    """Return how far a position is behind the log of a database; None where the source is none."""
    return source.lag(position) if isinstance(source, ChangeLogSource) else None


class LagWatch:
    """Checks repeatedly, also when nothing runs; a scheduler calls it in every tick."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._checked_at: datetime | None = None

    def __call__(self, now: datetime) -> None:
        """Emit the state of every stream with a limit, once a minute; alerting knows what was reported before."""
        if self._checked_at is not None and now - self._checked_at < EVERY:
            return
        self._checked_at = now
        for stream in _limited_streams():
            for one in change_lags(stream):
                if one.limits.are_set and one.state != UNKNOWN:
                    target = one.target if len(stream.targets) > 1 else ""
                    self._bus.emit(LogLagChecked(one.stream, target, one.problem if one.is_bad else ""))


def _limited_streams() -> Iterator[Stream]:
    """Return the streams that read a log with a limit; what cannot be reached now is checked a minute later."""
    for stream in PROJECT.streams.values():
        if any(_has_limits(one.connection) for one in stream.sources):
            yield stream
    for replication in PROJECT.replications.values():
        if _has_limits(replication.source):
            with suppress(FlowError):
                yield from streams_of(replication)


def _has_limits(reference: str | Connection) -> bool:
    with suppress(FlowError):
        connection = resolve_connection(reference)
        return isinstance(connection, ChangeLogConnection) and connection.has_limits
    return False


def _lag_of(
    stream: Stream, target: StreamTarget, source: StreamSource, log: ChangeLogSource, options: StreamOptions
) -> ChangeLag:
    key = stream.key_of(target)
    try:
        position = position_of(stream, target, source, options)
        at = None if position is None else source.part_position(position, log)
        if at is not None:
            log.ahead(at, 1)  # refuses a position whose changes are gone
        lag = log.lag(at)
    except StreamLostError as error:
        return ChangeLag(stream.name, key, log.query, LOST, limits=log.limits, problem=error.what)
    except Exception as error:  # noqa: BLE001 - drivers have exceptions of their own, and others have a state too
        return replace(unknown_lag(stream.name, error, key, log.query), limits=log.limits)
    exceeded = log.limits.exceeded(lag)
    state = BREACHED if exceeded else WARNING if log.limits.nearly(lag) else HEALTHY
    return ChangeLag(stream.name, key, log.query, state, lag, log.limits, "; ".join(exceeded))
