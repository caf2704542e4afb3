"""How large the state of a stream may become, as far as its declaration says that; and from which size on users are warned."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.declare.stream.windows import DLQ, HOPPING, SESSION
from ematix_flow.errors import PlanError

if TYPE_CHECKING:
    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.declare.stream.windows import Aggregation, Window

VARIABLE = "EMATIX_FLOW_STATE_SIZE_WARN_BYTES"
"""Names the size; 0 silences the warning."""

DEFAULT_LIMIT = 1 << 30
_ENTRY, _VALUE, _PAIR, _SKETCH = 64, 24, 48, 256
"""Bytes of an entry with its key, of a value with its name, of a value with a time, and of a sketch of some values."""

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Projection:
    """The size that a state may reach, and what it comes from."""

    bytes: int
    reason: str


def warning_limit() -> int:
    """Return from how many bytes on a state is warned of; 0 never."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return DEFAULT_LIMIT
    if not text.isdecimal():
        raise PlanError(f"{VARIABLE} is {text!r}", hint="it takes a number of bytes; 0 silences the warning.")
    return int(text)


def size_warning(stream: Stream) -> str:
    """Return the warning about a state that may become large; empty where it does not, or where nothing says so."""
    projected, limit = projection(stream), warning_limit()
    if projected is None or not limit or projected.bytes <= limit:
        return ""
    return (
        f"the state of stream {stream.name!r} may grow to {readable_size(projected.bytes)}: {projected.reason}; "
        f"{_silence(limit)}"
    )


def measured_warning(name: str, measured: int, limit: int) -> str:
    """Return the warning about a state that is large."""
    return f"the state of stream {name!r} has grown to {readable_size(measured)}; {_silence(limit)}"


def projection(stream: Stream) -> Projection | None:
    """Return how large the state of a stream may become; None where only its messages decide that."""
    window = stream.window
    if window is None or window.late_data == DLQ:
        return None
    lateness = 0 if stream.watermark is None else stream.watermark.lateness_ms or 0
    groups = window.max_groups_per_window if window.group_by else 1
    entry = _ENTRY + _VALUE * (1 + len(window.group_by)) + sum(map(_bytes_of, window.aggregations))
    count, what = _entries(window, lateness + (window.allowed_lateness_ms or 0))
    reason = f"{groups:,} groups (max_groups_per_window), {count:,} {what}, {entry} bytes each"
    return Projection(groups * count * entry, reason)


def readable_size(size: int) -> str:
    """Return a number of bytes for people."""
    value, unit = float(size), 0
    while value >= 1024 and unit + 1 < len(_UNITS):  # noqa: PLR2004 - bytes of a KiB
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def _entries(window: Window, late: int) -> tuple[int, str]:
    """Return how many entries a group has at once at most, and what they are."""
    if window.kind == SESSION:
        gap, longest = window.gap_ms or 1, window.max_session_duration_ms or 0
        return -(-(longest + late) // gap) + 1, "moments of a session that are a gap apart"
    hop = (window.hop_ms or window.duration_ms) if window.kind == HOPPING else window.duration_ms
    return -(-(window.duration_ms + late) // hop) + 1, "windows open at once"


def _bytes_of(aggregation: Aggregation) -> int:
    match aggregation.agg:
        case "avg" | "first" | "last":
            return _PAIR
        case "count_distinct" if aggregation.is_approximate:
            return _SKETCH
        case "count_distinct":
            return _VALUE * (aggregation.max_distinct_values_per_group or 1)
        case _:
            return _VALUE


def _silence(limit: int) -> str:
    return f"{VARIABLE} warns from {readable_size(limit)} on, and 0 silences it"
