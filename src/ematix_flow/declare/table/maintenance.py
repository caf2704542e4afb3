"""How a table is kept in order: what old versions, small files and leftovers may go, and how often; nothing is done here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from ematix_flow.errors import DeclareError, DeclareTypeError

DAY = timedelta(days=1)
_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What `flow maintain` does about a table."""

    keep: timedelta = timedelta(days=7)
    """How long versions of a lake table can be read after a newer one came."""
    keep_versions: int = 5
    """How many of the newest versions are kept in any case."""
    compact: bool = True
    """True when small files of a lake table are put together."""
    every: timedelta = DAY
    """How long after a success `--due` takes the table up again."""
    target_file_size: str | int = "128MB"
    """How large files are when small ones are put together."""
    orphans_after: timedelta = timedelta(days=3)
    """How old a file is before it can be taken for an orphan."""
    short_keep: bool = False
    """Confirms that `keep` may be less than a day: no process reads older versions, or writes from another host."""

    def __post_init__(self) -> None:
        for name in ("keep", "every", "orphans_after"):
            _check_duration(name, getattr(self, name))
        if self.keep < DAY and not self.short_keep:
            message = f"keep={self.keep} is less than a day: queries that read an older version lose it"
            raise DeclareError(message, hint="keep a day or more, or say short_keep=True.")
        if self.orphans_after < DAY:
            message = f"orphans_after={self.orphans_after} is less than a day: files of loads under way would be taken"
            raise DeclareError(message, hint="a day is the least.")
        if type(self.keep_versions) is not int or self.keep_versions < 1:
            message = f"keep_versions={self.keep_versions!r} is not a whole number of at least 1"
            raise DeclareError(message)
        self.file_bytes  # noqa: B018 - a size that is none is refused here

    @property
    def file_bytes(self) -> int:
        """Return the size of files in bytes."""
        match = re.fullmatch(r"(\d+)\s*([KMG]?B)", str(self.target_file_size).strip().upper())
        size = self.target_file_size if isinstance(self.target_file_size, int) else 0
        size = int(match[1]) * _UNITS[match[2]] if match else size
        if size <= 0:
            message = f"target_file_size={self.target_file_size!r} is not a size"
            raise DeclareError(message, hint="write bytes as a number, or a text such as 64MB or 1GB.")
        return size


def maintenance_of(value: object) -> Maintenance | None:
    """Return what a table declares about its maintenance, or None when it declares nothing."""
    if value is None or isinstance(value, Maintenance):
        return value
    message = f"a table's maintenance is a Maintenance(...), not {type(value).__name__}"
    raise DeclareTypeError(message, hint="for example __maintenance__ = Maintenance(keep=timedelta(days=30)).")


def _check_duration(name: str, value: object) -> None:
    if not isinstance(value, timedelta) or value < timedelta(0):
        message = f"{name}={value!r} is not a duration"
        raise DeclareTypeError(message, hint=f"for example {name}=timedelta(days=7).")
