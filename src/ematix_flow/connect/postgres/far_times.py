"""Dates and times that Python has no value for, as the text that PostgreSQL writes; for people, not for loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import DataError
from psycopg.adapt import Loader
from psycopg.types.datetime import DateLoader, TimestampLoader, TimestamptzLoader

if TYPE_CHECKING:
    import psycopg
    from psycopg.abc import Buffer


def show_far_times(connection: psycopg.Connection[Any]) -> None:
    """Have infinite times, and those not between the years 1 and 9999, come as text instead of as an error."""
    for name, loader in (("date", _Date), ("timestamp", _Timestamp), ("timestamptz", _Timestamptz)):
        connection.adapters.register_loader(name, loader)


class _AsText(Loader):
    """Loads a value by the next class; one that this refuses is the text that came."""

    def load(self, data: Buffer) -> Any:
        try:
            return super().load(data)  # type: ignore[safe-super]
        except DataError:
            return bytes(data).decode()


class _Date(_AsText, DateLoader):
    pass


class _Timestamp(_AsText, TimestampLoader):
    pass


class _Timestamptz(_AsText, TimestamptzLoader):
    pass
