"""The stream of the library with a place of its own: what it leaves out counts, too, and transactions may have gigabytes of that."""

from __future__ import annotations

from typing import Any

from pymysqlreplication import BinLogStreamReader

from ematix_flow.connect.mysql.cdc.entries import LogPosition

ROUND = 1 << 32
"""How many positions events can tell: of each the log has the low 32 bits."""


class PlacedStream(BinLogStreamReader):  # type: ignore[misc]  # the library has no types
    """The log as the library reads it, which sets file and position for every event before it chooses among them."""

    def __init__(self, begin: LogPosition, **options: Any) -> None:
        self.place = begin
        """Where the event ends that was read last."""
        super().__init__(log_file=begin.file, log_pos=begin.pos, **options)

    @property
    def log_file(self) -> str:
        """Return the file that is read."""
        return self.place.file

    @log_file.setter
    def log_file(self, file: str) -> None:
        """Set the file; the position in it was set before."""
        if file != self.place.file:
            self.place = LogPosition(file, self.log_pos)

    @property
    def log_pos(self) -> int:
        """Return as much of the position as the library knows."""
        return self.place.pos % ROUND

    @log_pos.setter
    def log_pos(self, low: int) -> None:
        self.place = next_position(self.place, low)


def next_position(place: LogPosition, low: int) -> LogPosition:
    """Return the place of the event that follows another one in its file, of which the log has the low 32 bits."""
    rounds, before = divmod(place.pos, ROUND)
    return LogPosition(place.file, (rounds + (before - low > ROUND // 2)) * ROUND + low)
