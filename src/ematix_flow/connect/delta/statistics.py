"""The statistics of a Parquet file about its columns, as Delta's log writes them, so that readers can skip files.

No row is read.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import IO

COLUMNS = 32
"""The first columns of a table, which Delta keeps such statistics of."""

MAX_TEXT_LENGTH = 32
"""Characters of a text at most: a longer one would have to be cut, and the greatest one rounded up."""


def stats_of(file: IO[bytes]) -> str:
    """Return the number of rows, and the least and the greatest value and the NULLs of columns where they are known."""
    import pyarrow.parquet as pq

    described = pq.ParquetFile(file).metadata
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for number in range(min(described.num_columns, COLUMNS)):
        groups = [described.row_group(group).column(number) for group in range(described.num_row_groups)]
        name = groups[0].path_in_schema if groups else ""
        statistics = [group.statistics for group in groups]
        if not groups or "." in name or any(one is None or not one.has_null_count for one in statistics):
            continue
        nulls[name] = sum(one.null_count for one in statistics)
        known = [one for one in statistics if one.has_min_max]
        if len(known) == len(statistics) or all(one.has_min_max or one.num_values == 0 for one in statistics):
            _note(name, [_bound(one, "min") for one in known], least, min)
            _note(name, [_bound(one, "max") for one in known], greatest, max)
    return json.dumps(
        {"numRecords": described.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls},
        ensure_ascii=False,
    )


def _note(name: str, values: list[Any], bounds: dict[str, Any], choose: Any) -> None:
    if values and None not in values:
        bounds[name] = choose(values)


def _bound(statistics: Any, which: str) -> Any:
    """Return a value as the log writes it, a greatest instant rounded up; None for what cannot be written exactly."""
    try:
        return _json_value(getattr(statistics, which), up=which == "max")
    except (OverflowError, ValueError):  # an instant that no calendar of Python has
        return None


def _json_value(value: Any, *, up: bool) -> Any:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT_LENGTH else None
    if isinstance(value, datetime):
        at = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        at = at + timedelta(microseconds=-at.microsecond % 1000) if up else at
        return at.isoformat(timespec="milliseconds") + ("Z" if value.tzinfo else "")
    return value.isoformat() if isinstance(value, date) else None
