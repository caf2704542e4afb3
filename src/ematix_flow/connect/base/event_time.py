"""The newest event time that was read from a source, by this process or by tasks, which hand over what they noted."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.stream_source import MessagePartition, Position, StreamSource

EVENT_TIME = "_event_ts"
"""Column of the time of a message."""

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""Milliseconds since 1970 in which the years 1 and 9999 begin and end: a message with another time has none."""

_lock = threading.Lock()
_newest: dict[str, datetime] = {}
"""The newest time by the source's own timestamp."""


def timed_partitions(
    source: StreamSource, begin: Position, end: Position, requested: Sequence[str], *, cut: bool = False
) -> tuple[MessagePartition, ...]:
    """Return the messages between two positions, so that their times are noted when they are read; `cut` where lines may be."""
    plan = source.plan_split_partitions if cut else source.plan_partitions
    if all(column.name != EVENT_TIME for column in source.columns):
        return plan(begin, end, requested)
    partitions = plan(begin, end, list(dict.fromkeys([*requested, EVENT_TIME])))
    return tuple(
        replace(partition, read=partial(_noting, partition.read, source.instance_id)) for partition in partitions
    )


def newest_event(source: StreamSource) -> datetime | None:
    """Return the newest event time that was read from a source; None while none was."""
    return _newest.get(source.instance_id)


def note_event(source: StreamSource, newest: datetime | None) -> None:
    """Note the newest event time that others have read from a source."""
    if newest is not None:
        _note(source.instance_id, newest)


def drain_events() -> str:
    """Return what a task has noted, to be noted by its driver, and forget it here; empty where that is nothing."""
    with _lock:
        drained = {instance_id: newest.isoformat() for instance_id, newest in _newest.items()}
        _newest.clear()
    return json.dumps(drained) if drained else ""


def note_drained(drained: str) -> None:
    """Note what a task has noted."""
    for instance_id, newest in json.loads(drained or "{}").items():
        _note(instance_id, datetime.fromisoformat(newest))


def forget_events(source: StreamSource) -> None:
    """Forget a source that is closed."""
    with _lock:
        _newest.pop(source.instance_id, None)


def _noting(read: Callable[[], Iterator[pa.Table]], instance_id: str) -> Iterator[pa.Table]:
    import pyarrow.compute as pc

    for messages in read():
        newest = pc.max(messages.column(EVENT_TIME)).as_py()
        if newest is not None:
            _note(instance_id, newest)
        yield messages


def _note(instance_id: str, newest: datetime) -> None:
    with _lock:
        _newest[instance_id] = max(newest, _newest.get(instance_id, newest))
