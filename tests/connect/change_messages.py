"""The messages of a log of changes: those of a range, all behind a position, and what matters of one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.connect.change_log.source import ChangeLogSource


def messages(source: ChangeLogSource, begin: Position, end: Position, *names: str) -> list[dict[str, Any]]:
    """Return the envelopes of a range, with some of the columns that messages have besides."""
    result = []
    for partition in source.plan_partitions(begin, end, names):
        for table in partition.read():
            result += [{**json.loads(row.pop("value")), **row} for row in table.to_pylist()]
    return result


def drained(source: ChangeLogSource, position: Position, most: int = 100_000) -> tuple[list[dict[str, Any]], Position]:
    """Return all messages behind a position, and where they end."""
    result = []
    while True:
        end = source.ahead(position, most)
        if not source.distance(position, end):
            return result, position
        result += messages(source, position, end)
        position = end


def brief(message: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a change did: its operation, the row before and the row after."""
    return message["op"], message["before"], message["after"]
