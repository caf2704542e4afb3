"""The names of the columns that a shape adds to rows for their way to staging; names only, so that tasks load nothing else."""

from __future__ import annotations

from ematix_flow.connect.base.stage import FAILED
from ematix_flow.connect.changes.change import CHANGE_COLUMNS

__all__ = [
    "CHANGE",
    "CHANGE_AT",
    "CHANGE_CARRIES",
    "CHANGE_COLUMNS",
    "CHANGE_MS",
    "CHANGE_VERSION",
    "CORRUPT",
    "EVENT",
    "FAILED",
    "LINES",
    "ORDER",
    "ORDER_AT",
    "OURS",
    "POSITION",
    "RAW",
    "SOURCE_VIEW",
]

SOURCE_VIEW = "_src_raw"
"""Name under which a shape sees the rows of a source that is not evaluated by a database."""

EVENT = "_flow_event"
"""Staged column with the event time of scd2."""

ORDER_AT, ORDER = "_flow_order_at", "_flow_order"
"""Staged columns with the position of a row in a stream: the greater is the later.

The first, a time in microseconds, is there where messages come in several lines, such as partitions, and counts before
the second."""

CHANGE, CHANGE_VERSION, CHANGE_AT, CHANGE_MS, CHANGE_CARRIES = CHANGE_COLUMNS
"""Staged columns of a change: what it does, its place in the order, its time twice, and the columns that it carries.

The last is a text with 1 for every column of the table that the change has a value for, NULL where it has all.
Where the row got another key and lacks columns, the version of the change that ended the old key comes behind that."""

POSITION = "_flow_position"
"""Column with the row's position in its source, where the source has one."""

CORRUPT = "_flow_corrupt"
"""Column with the raw text of a line that could not be split into fields."""

LINES = ("csv", "json_lines", "avro", "protobuf")
"""Formats whose rows are read one by one, so that one alone can be unreadable."""

RAW = "_flow_raw"
"""Column with the source row as JSON, for rows that do not parse; it is worked out for those rows only."""

OURS = (POSITION, CORRUPT, ORDER_AT, ORDER, *CHANGE_COLUMNS)
"""What a source row has besides its own columns; no reject shows it."""
