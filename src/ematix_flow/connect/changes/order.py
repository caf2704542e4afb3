"""The order of changes as digits that sort the same under every collation: the log's own, or the time of the event.

Places in a log come after times of events, so that a snapshot without a place never overwrites a logged change.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.event_time import FIRST_MS, LAST_MS
from ematix_flow.connect.changes.change import READ, ChangeError
from ematix_flow.connect.changes.paths import at_path

if TYPE_CHECKING:
    from collections.abc import Mapping

LOGGED, TIMED = "1", "0"
ANEW = "9"
"""Comes behind LOGGED where the log began anew: no place in a log begins with this digit."""

WIDE, WIDEST, NARROW = 20, 60, 10
LAST_ROW = 10**NARROW - 1
"""The greatest number that a row has in its transaction."""
SECONDS_BELOW = 100_000_000_000
"""Times of events below this count seconds, those above milliseconds."""

LOCATIONS = ("epoch", "lsn", "sequence", "file", "pos", "row", "commit_lsn", "change_lsn", "event_serial_no", "scn")
"""Fields of the source block of a connector that tell the place of a change in its log."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = Decimal("0.001")
_NUMBER = re.compile(r"\d+")
_COUNT = re.compile(r"\s*[+-]?\d+(\.\d*)?([eE][+-]?\d+)?\s*", re.ASCII)
_SEQUENCE = re.compile(r'\s*\[\s*"(\d+)"')
_POSITION = re.compile(r"(?P<file>.*):(?P<pos>\d+)")


def log_order(source: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the place that the source block of a connector tells, and whether a row has one change there at most."""
    order, unique = _order_in_log(source)
    epoch = _digits(source.get("epoch")).lstrip("0")
    # Places of two logs cannot be compared, so all of a later epoch come after all of an earlier one.
    return (f"{ANEW}{epoch.zfill(WIDE)}{order}" if order and epoch else order), unique


def _order_in_log(source: Mapping[str, Any]) -> tuple[str, bool]:
    lsn = _digits(source.get("lsn"))
    if lsn:
        return f"{(_commit(source.get('sequence')) or lsn).zfill(WIDE)}{lsn.zfill(WIDE)}", True
    if _digits(source.get("pos")) and source.get("file") is not None:
        return binlog_order(str(source["file"]), source["pos"], source.get("row")), True
    change_lsn, commit_lsn = _hexadecimal(source.get("change_lsn")), _hexadecimal(source.get("commit_lsn"))
    if commit_lsn:
        serial = _digits(source.get("event_serial_no")) or "0"
        return f"{commit_lsn}{change_lsn or '0' * len(commit_lsn)}{serial.zfill(NARROW)}", True
    scn = _digits(source.get("scn"))
    return (scn.zfill(WIDE), False) if scn else ("", False)


def binlog_order(file: str, position: object, row: object = None) -> str:
    """Return a place in a binary log: the number of the file, the position there and the row of the event."""
    numbers = _NUMBER.findall(file)
    return f"{(numbers[-1] if numbers else '0').zfill(NARROW)}{str(position).zfill(WIDE)}{(_digits(row) or '0').zfill(NARROW)}"


def position_order(position: object, row: object = None) -> str:
    """Return the place that Maxwell writes as `file:position`; empty for anything else."""
    match = _POSITION.fullmatch(position) if isinstance(position, str) else None
    return binlog_order(match["file"], match["pos"], row) if match else ""


def field_order(document: Mapping[str, Any], path: str, operation: str) -> str:
    """Return the place that an event has in a field of its own; empty for a row of a snapshot that has none.

    Anything else without a whole number there is a `ChangeError`.
    """
    value = at_path(document, path)
    if value in (None, ""):
        if operation == READ:
            return ""
        raise ChangeError(f"a change without its place in the log ({path}), which order_field= of CDC(...) names")
    digits = _digits(value)
    if not digits:
        message = f"the change has {str(value)[:80]!r} for its place in the log ({path})"
        raise ChangeError(f"{message}; order_field= of CDC(...) names a whole number that is not below 0")
    return digits.zfill(WIDE)


def arrival_order(message_offset: str, number: int) -> str:
    """Return the place of a message in its topic, by which changes at one place or time of the log come in order."""
    digits = [one.zfill(WIDE) if len(one) <= WIDE else one.zfill(WIDEST) for one in _NUMBER.findall(message_offset)]
    return f"{''.join(digits[-2:])}{number:06d}"


def version_of(order: str, arrival: str, at_ms: int | Decimal | None, *, unique: bool) -> str:
    """Return what decides between changes of a row: the greater one is the later."""
    if order:
        return f"{LOGGED}{order}" if unique else f"{LOGGED}{order}{arrival}"
    at = max(0, at_ms or 0)
    micros = math.floor(at % 1 * 1000)
    # Places in a topic begin with zeros, so that a version without microseconds sorts like one that has 000 of them.
    return f"{TIMED}{math.floor(at):0{WIDE}d}{f'{micros:03d}' if micros else ''}{arrival}"


def milliseconds(value: Any) -> int | Decimal | None:
    """Return the time of an event: milliseconds, seconds where the number is that small, or an instant as text.

    Microseconds are parts of a millisecond. A time that no calendar has is a `ChangeError`.
    """
    if value is None or isinstance(value, bool):
        return None
    text = str(value)
    try:
        at_ms = _counted(Decimal(text)) if _COUNT.fullmatch(text) else _instant(text)
    except (ArithmeticError, OverflowError):
        raise _timeless(value) from None
    if at_ms is not None and not FIRST_MS <= math.floor(at_ms) <= LAST_MS:
        raise _timeless(value)
    return at_ms if at_ms is None or at_ms % 1 else int(at_ms)


def _counted(number: Decimal) -> Decimal:
    """Return milliseconds or seconds as milliseconds with their microseconds; too many of them are an ArithmeticError."""
    return (number * 1000 if abs(number) < SECONDS_BELOW else number).quantize(_MICROSECOND, ROUND_FLOOR)


def _timeless(value: Any) -> ChangeError:
    """Return the error of a time that is out of range, as one in smaller units is."""
    message = f"the change has {str(value)[:80]} for its time, which no calendar has in milliseconds since 1970"
    return ChangeError(f"{message}; ts_field= of CDC(...) can name another field")


def _instant(text: str) -> Decimal | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    since = (at.replace(tzinfo=UTC) if at.tzinfo is None else at) - _EPOCH
    return Decimal(since // timedelta(microseconds=1)) * _MICROSECOND


def _commit(sequence: Any) -> str:
    """Return which commit of PostgreSQL a change belongs to: its own or the one before it; empty where nothing says so.

    Rows are written down before their keys are compared with those of others. So a row may be inserted before the place
    where another transaction deletes the one with the same key, and is the later one all the same: commits decide.
    """
    match = _SEQUENCE.match(sequence) if isinstance(sequence, str) else None
    return match[1] if match else ""


def _digits(value: Any) -> str:
    text = "" if value is None or isinstance(value, bool) else str(value)
    return text if text.isascii() and text.isdigit() else ""


def _hexadecimal(value: Any) -> str:
    """Return a place that SQL Server writes as hexadecimal numbers between colons."""
    parts = value.split(":") if isinstance(value, str) and value else []
    try:
        return "".join(str(int(part, 16)).zfill(NARROW) for part in parts)
    except ValueError:
        return ""
