"""The connections to databases whose log of changes a stream reads; none of them is opened here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from ematix_flow.declare.aliases import URL_SCHEMES
from ematix_flow.declare.connection.base import Connection, is_open

if TYPE_CHECKING:
    from collections.abc import Mapping

_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")
_LONGEST_NAME = 63
_LAST_SERVER_ID = 4_294_967_295
_LIMITS = ("max_lag_seconds", "max_lag_bytes", "max_retained_bytes")


@dataclass(frozen=True, slots=True, repr=False)
class ChangeLogConnection(Connection):
    """A database whose changes are read; a stream begins with the rows that are there, or only with what is new."""

    required: ClassVar[tuple[str, ...]] = ("url",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({"auto_offset_reset": ("earliest", "latest")})
    database: ClassVar[str] = ""
    """The kind of the URLs it takes."""

    url: str = ""
    auto_offset_reset: str | None = None
    """Where a stream begins: `earliest` with the rows of the tables, which is the default, `latest` with new changes."""
    max_lag_seconds: int | None = field(default=None, kw_only=True)
    """For how long a change may wait for a target before that is alerted."""
    max_lag_bytes: int | None = field(default=None, kw_only=True)
    """How much of the log may not be applied yet before that is alerted."""

    @property
    def has_limits(self) -> bool:
        """Return whether it is alerted when a target is too far behind."""
        return any(getattr(self, name, None) is not None for name in _LIMITS)

    def _check_family(self) -> None:
        for name in _LIMITS:
            limit = getattr(self, name, None)
            if isinstance(limit, int) and limit < 1:
                raise self._wrong(f"has an impossible {name}", "it is a number from 1 on; leave it out for no limit.")
        scheme, separator, _ = self.url.partition("://")
        other = URL_SCHEMES.get(scheme.lower(), self.database)
        if separator and other != self.database:
            raise self._wrong(f"has a URL of {other}", f"give a {self.database} URL.")


@dataclass(frozen=True, slots=True, repr=False)
class PostgresCDCConnection(ChangeLogConnection):
    """The changes of tables of a PostgreSQL database."""

    kind: ClassVar[str] = "postgres_cdc"
    database: ClassVar[str] = "postgres"

    slot: str | None = None
    """The replication slot; by default one is created for every stream, under a name that follows from that of the stream."""
    publication: str | None = None
    """The publication; by default one is created for every stream, as the slot is."""
    max_retained_bytes: int | None = field(default=None, kw_only=True)
    """How much of its log the server may keep for a stream before that is alerted."""

    def _check(self) -> None:
        if self.slot and not is_open(self.slot) and not _SLOT_NAME.fullmatch(self.slot):
            raise self._wrong(
                "has a slot that PostgreSQL cannot name", "up to 63 lower-case letters, digits and underscores."
            )
        if self.publication and len(self.publication.encode()) > _LONGEST_NAME:
            raise self._wrong("has a publication with too long a name", f"at most {_LONGEST_NAME} bytes.")


@dataclass(frozen=True, slots=True, repr=False)
class MySQLCDCConnection(ChangeLogConnection):
    """The changes of tables of a MySQL or MariaDB server."""

    kind: ClassVar[str] = "mysql_cdc"
    database: ClassVar[str] = "mysql"

    server_id: int | None = None
    """The number under which the log is read, which no replica of the server may have; by default one follows from the stream."""

    def _check(self) -> None:
        if isinstance(self.server_id, int) and not 1 <= self.server_id <= _LAST_SERVER_ID:
            raise self._wrong("has an impossible server_id", f"it is a number from 1 to {_LAST_SERVER_ID}.")
