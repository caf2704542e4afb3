"""Dead letters of streams with windows and joins: which of them can be replayed, and rows that came late counted after all.

A late row is no row of the table of its window. The window is computed again from its messages, as a backfill does, and the
load that writes it also marks the dead letter.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ematix_flow.connect.base.stream_source import LATE
from ematix_flow.engine.stream.state.backfill import replay_between
from ematix_flow.errors import StreamLostError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.commit.rejects import Reject
    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.engine.stream.options import StreamOptions

_BEGINS = re.compile(rf"{LATE}\w+ (\S+) to ")
"""The beginning of the window that a late row belongs to, in the reason of its reject; of a session the row's own time."""

_PRECISION = timedelta(milliseconds=1)
"""Of the times in reasons."""


def refuse_uncounted(stream: Stream, dead_letters: Sequence[Reject]) -> None:
    """Refuse dead letters that belong into windows or pairs of a stream, and are no rows of its table."""
    options = stream.window or stream.join
    if options is None:
        return
    time = options.event_time_column
    for dead_letter in dead_letters:
        if dead_letter.is_message or dead_letter.column_name == time:
            what = "windows count" if stream.window is not None else "join pairs"
            message = (
                f"dead letter {dead_letter.reject_id[:12]} of stream {stream.name!r} is a row that its {what},"
                " and no row of its table, so it cannot be loaded there"
            )
            raise UnsupportedError(message, hint=_remedy(stream), origin=stream.origin)


def refuse_topic(stream: Stream) -> None:
    """Refuse dead letters that only a topic has, of a stream whose windows or pairs they belong into."""
    if stream.window is not None or stream.join is not None:
        message = f"dead letters of stream {stream.name!r} belong into its windows or pairs, and its target is no table in which those could be replaced"
        hint = "begin again: flow stream reset NAME --from ... --confirm-state-reset counts them."
        raise UnsupportedError(message, hint=hint, origin=stream.origin)


def replay_late(
    stream: Stream, target: StreamTarget, dead_letters: Sequence[Reject], options: StreamOptions
) -> dict[str, int]:
    """Compute the windows of late rows again, from the first to the last of them, and return how many rows they count now."""
    begins = sorted(_begin_of(dead_letter) for dead_letter in dead_letters)
    # A session may have begun earlier than the row that came late, by its longest duration.
    longest = timedelta(milliseconds=(stream.window.max_session_duration_ms or 0) if stream.window is not None else 0)
    ids = tuple(dead_letter.reject_id for dead_letter in dead_letters)
    if not replay_between(stream, target, begins[0] - longest, begins[-1] + _PRECISION, ids, options):
        message = f"the messages of the late rows of stream {stream.name!r} since {begins[0].isoformat()} are gone"
        raise StreamLostError(message, hint="flow dlq park sets them aside.", origin=stream.origin)
    return {"succeeded": len(ids)}


def _begin_of(dead_letter: Reject) -> datetime:
    match = _BEGINS.match(dead_letter.reason)
    assert match is not None  # noqa: S101 - we have written it
    return datetime.fromisoformat(match[1])


def _remedy(stream: Stream) -> str:
    if stream.deduplicate is not None:
        return "send the message again when it is repaired; flow dlq park sets the dead letter aside."
    return (
        f"flow backfill {stream.name} --from ... --to ... computes its time again, from all messages that can be read now;"
        " flow dlq park sets the dead letter aside."
    )
