"""The rows of a stretch of a stream for targets that take rows as they come; which targets those are is not known here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.errors import UnsupportedError
from ematix_flow.run.typed_messages import json_payload, typed_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ematix_flow.connect.stream import Position, StreamSource
    from ematix_flow.declare.stream import Stream
    from ematix_flow.run.typed_messages import TypedRows


def rows_between(
    stream: Stream, source: StreamSource, begin: Position, end: Position, beside: Sequence[str]
) -> TypedRows:
    """Give the rows that a stream makes of the messages between two positions; `beside` are columns of the messages."""
    if stream.transform.sql is not None:
        message = f"stream {stream.name!r} has transform_sql=, which is not built yet for this target"
        raise UnsupportedError(message, origin=stream.origin)
    wanted = [column.name for column in source.columns if column.name in beside]
    return typed_rows(source.pieces(begin, end, wanted), payload_reader(source), beside)


def payload_reader(source: StreamSource) -> Callable[[bytes], dict[str, Any] | str]:
    """Give what reads the values of a payload of a source."""
    match source.payload_format:
        case "json":
            return json_payload
        case "raw_bytes":
            return _raw
        case other:
            message = f"source {source.name!r} has payloads of {other}, which cannot be read yet"
            raise UnsupportedError(message, hint="json and raw_bytes can.")


def _raw(payload: bytes) -> dict[str, Any] | str:
    return {"value": payload}
