"""`flow backfill` of a stream: what begins in a time of the past, computed again; the engine does it, this prints."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from ematix_flow.serve.cli.common.errors import DONE
from ematix_flow.serve.cli.common.output import emit, emit_json, table, talk
from ematix_flow.serve.cli.common.spark import stop_spark_at_end
from ematix_flow.serve.cli.common.state import current

if TYPE_CHECKING:
    from datetime import datetime

    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.engine.stream.state.backfill import StreamBackfill


def backfill_of_stream(stream: Stream, first: datetime, last: datetime, form: str, *, dry_run: bool) -> int:
    """Compute what a stream gives out for an interval again, and print what was written."""
    current().when_stopped = "call it again: what was written is written once more, under the same keys."
    stop_spark_at_end()
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.state.backfill import backfill_stream

    with redirect_stdout(sys.stderr):
        done = backfill_stream(stream, first, last, StreamOptions(), dry_run=dry_run)
    if form == "json":
        emit_json({"stream": stream.name, "targets": [_as_dict(one) for one in done]})
        return DONE
    emit(table(("TARGET", "ROWS", "MESSAGES", "FROM", "TO"), [_row(one) for one in done]))
    if dry_run:
        talk("nothing was written.")
    return DONE


def _row(one: StreamBackfill) -> tuple[object, ...]:
    return one.target, f"{one.rows:,}", f"{one.messages:,}", _offsets(one.begin), _offsets(one.end)


def _offsets(position: Position) -> str:
    return json.dumps(position.get("offsets", position))


def _as_dict(one: StreamBackfill) -> dict[str, Any]:
    return {"target": one.target, "rows": one.rows, "messages": one.messages, "from": one.begin, "to": one.end}
