"""Dead letters of streams with windows and joins: which of them can be replayed, and rows that came late counted after all.

A late row is no row of the table of its window. The window is computed again from its messages, as a backfill does, and the
load that writes it also marks the dead letter. Where some of its messages are gone, both stay as they are.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from ematix_flow.connect.base.stream_source import LATE
from ematix_flow.engine.stream.state.backfill import count_late
from ematix_flow.errors import StreamLostError, UnsupportedError
from ematix_flow.run.streams.events import NO_NUMBER
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.commit.rejects import Reject
    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.state.backfill import CountedRows
    from ematix_flow.errors import FlowError

_BEGINS = re.compile(rf"{LATE}\w+ (\S+) to ")
"""The beginning of the window that a late row belongs to, in the reason of its reject; of a session the row's own time."""


def refuse_uncounted(stream: Stream, dead_letters: Sequence[Reject]) -> None:
    """Refuse dead letters that belong into windows or pairs of a stream, and are no rows of its table."""
    options = stream.window or stream.join
    if options is None:
        return
    time = options.event_time_column
    for dead_letter in dead_letters:
        is_event = dead_letter.column_name == time or dead_letter.reason.endswith(NO_NUMBER)
        if dead_letter.is_message or is_event:
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
) -> tuple[int, FlowError | None]:
    """Compute the windows of late rows again; return how many of the rows they count now, and the error of those they cannot."""
    if stream.deduplicate is not None:
        return 0, _uncountable(stream, dead_letters)
    begins = {dead_letter.reject_id: _begin_of(dead_letter) for dead_letter in dead_letters}
    counted = count_late(stream, target, begins, options)
    left = sorted((begin, reject_id) for reject_id, begin in begins.items() if reject_id not in counted.ids)
    return len(counted.ids), _lost(stream, left, counted) if left else None


def _uncountable(stream: Stream, dead_letters: Sequence[Reject]) -> UnsupportedError:
    """Return the error of late rows whose windows cannot be computed again."""
    one = dead_letters[0].reject_id[:12]
    message = (
        f"{quantity(len(dead_letters), 'late row')} of stream {stream.name!r} cannot be counted, first {one}: windows are computed again"
        " from their messages, and which of those deduplicate= left out is not known for a time of the past"
    )
    hint = (
        "what is there of their windows stays as it is, and so do these dead letters; correct the table by hand, and set them"
        f' aside: flow dlq park {stream.name} --id {one}. late_data="reopen" counts late rows as they come.'
    )
    return UnsupportedError(message, hint=hint, origin=stream.origin)


def _lost(stream: Stream, left: Sequence[tuple[datetime, str]], counted: CountedRows) -> StreamLostError:
    """Return the error of late rows that are left as they are, the oldest of which is told."""
    begin, reject_id = left[0]
    message = (
        f"{quantity(len(left), 'late row')} of stream {stream.name!r} cannot be counted, first {reject_id[:12]} of"
        f" {begin.isoformat()}: {counted.gone or 'the topic has no message of its window any more'}"
    )
    hint = (
        "what is there of their windows stays as it is, and so do these dead letters, with the rows; correct the table by"
        f" hand, and set them aside: flow dlq park {stream.name} --id {reject_id[:12]}."
    )
    others = (
        f" ({quantity(len(counted.ids), 'other')} {'is' if len(counted.ids) == 1 else 'are'} counted)"
        if counted.ids
        else ""
    )
    return StreamLostError(f"{message}{others}", hint=hint, origin=stream.origin)


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
