"""The replication slot and the publication of a stream: created where they are missing, inspected, moved on."""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg

from ematix_flow.connect.change_log.source import REWIND
from ematix_flow.connect.change_log.tables import TableId
from ematix_flow.connect.postgres.cdc.catalog import sql_name
from ematix_flow.connect.postgres.cdc.pgoutput import format_lsn, parse_lsn
from ematix_flow.connect.types.identifiers import quoted
from ematix_flow.errors import RunError, StreamLostError
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.postgres.cdc.catalog import SourceTable
    from ematix_flow.connect.postgres.session import PostgresSession

PLUGIN = "pgoutput"
LOST = "lost"

_SLUG = re.compile(r"[^a-z0-9_]+")
_SLUG_LENGTH = 40
_DIGEST_LENGTH = 10

_SERVER = """
SELECT (SELECT system_identifier::text FROM pg_control_system()), current_database(), pg_is_in_recovery(),
  current_setting('wal_level')
"""
_NOW = "SELECT pg_current_wal_flush_lsn()::text, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
_SLOT = """
SELECT plugin, database, confirmed_flush_lsn::text, restart_lsn::text, wal_status, active_pid,
  pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, safe_wal_size
FROM pg_replication_slots WHERE slot_name = ?
"""
_WHOLE = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"
_PUBLISHES = (
    "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot FROM pg_publication WHERE pubname = ?"
)
_PARTS = """
SELECT n.nspname, c.relname FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid JOIN pg_class c ON c.oid = r.prrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = ? AND (to_jsonb(r) ->> 'prqual' IS NOT NULL OR to_jsonb(r) ->> 'prattrs' IS NOT NULL)
"""
_PUBLISHED = "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = ?"


@dataclass(frozen=True, slots=True)
class Server:
    """The server that answers, and how far its log is durable."""

    id: str
    """What no other cluster has, besides copies of this one."""
    timeline: int
    """Which history of the cluster this is; another one begins with every promotion and restore."""
    database: str
    end_lsn: int


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """A slot as the server shows it."""

    confirmed_lsn: int
    """What was committed before this is gone for good."""
    restart_lsn: int
    wal_status: str
    """reserved, extended, unreserved or lost."""
    active_pid: int | None
    retained_bytes: int
    """How much of the log the server keeps for it."""
    safe_bytes: int | None
    """How much more may be written before the server removes what the slot needs; None where there is no limit."""


def slot_name(stream: str, project: str, database: str) -> str:
    """Return the name that slot and publication of a stream have; any name of a stream gives a valid one of its own.

    All databases of a server share the names of slots.
    """
    known = f"{project}\0{stream}\0{database}".encode(errors="surrogateescape")
    digest = hashlib.sha256(known).hexdigest()[:_DIGEST_LENGTH]
    slug = _SLUG.sub("_", stream.lower())[:_SLUG_LENGTH].strip("_")
    return f"flow_{slug}_{digest}" if slug else f"flow_{digest}"


def server_of(session: PostgresSession) -> Server:
    """Return the server; one whose log cannot be decoded is refused."""
    id_, database, in_recovery, level = session.query(_SERVER)[0]
    if in_recovery:
        raise RunError("the server is a standby, and changes are read from the primary", hint="give the primary's URL.")
    if level != "logical":
        message = f"the server has wal_level = {level}, and changes can be read with wal_level = logical only"
        raise RunError(message, hint="ALTER SYSTEM SET wal_level = logical, and start the server again.")
    end, timeline = session.query(_NOW)[0]
    return Server(str(id_), int(timeline, 16), str(database), parse_lsn(end))


def slot_status(session: PostgresSession, name: str) -> SlotStatus | None:
    """Return the slot, None where there is none; one of another database or plugin is refused."""
    rows = session.query(_SLOT, (name,))
    if not rows:
        return None
    plugin, database, confirmed, restart, wal_status, active_pid, retained, safe = rows[0]
    current = session.query("SELECT current_database()")[0][0]
    if plugin != PLUGIN or database != current:
        message = f"replication slot {name!r} is one of {plugin} in database {database!r}"
        raise RunError(message, hint=f"name another one, or drop it: a stream needs {PLUGIN} in {current!r}.")
    return SlotStatus(
        parse_lsn(confirmed or "0/0"),
        parse_lsn(restart or "0/0"),
        str(wal_status or LOST),
        active_pid,
        int(retained or 0),
        None if safe is None else int(safe),
    )


def create_slot(session: PostgresSession, name: str, *, temporary: bool = False) -> None:
    """Create the slot, when all transactions have ended that are open; from now on the server keeps the log for it."""
    try:
        session.query("SELECT pg_create_logical_replication_slot(?, ?, ?)", (name, PLUGIN, temporary))
    except psycopg.errors.DuplicateObject:
        return  # another run of the stream was first
    except psycopg.errors.ConfigurationLimitExceeded as error:
        message = f"the server has no free replication slot for {name!r}"
        raise RunError(message, hint="raise max_replication_slots, or drop a slot that is not needed.") from error
    failpoint("cdc.slot_created")


def published_tables(session: PostgresSession, name: str) -> frozenset[TableId] | None:
    """Return the tables of a publication; None where there is none of that name."""
    if not session.query("SELECT 1 FROM pg_publication WHERE pubname = ?", (name,)):
        return None
    return frozenset(TableId(*row) for row in session.query(_PUBLISHED, (name,)))


def publish(session: PostgresSession, name: str, tables: Sequence[TableId]) -> None:
    """Create the publication, or add tables to it; those that were published before stay."""
    published = published_tables(session, name)
    missing = [table for table in tables if table not in (published or ())]
    # What inherits from a table is no part of it, and may lack the identity that published tables need.
    listed = ", ".join(f"ONLY {sql_name(table)}" for table in missing)
    if published is None:
        session.execute(f"CREATE PUBLICATION {quoted(name)} FOR TABLE {listed} WITH ({_WHOLE})")
    elif missing:
        session.execute(f"ALTER PUBLICATION {quoted(name)} ADD TABLE {listed}")
    failpoint("cdc.published")


def publish_missing(session: PostgresSession, name: str, tables: Sequence[TableId]) -> None:
    """Add tables that a publication lacks; then no transaction is open any more that has changed them without it."""
    published = published_tables(session, name)
    if published is None or published.issuperset(tables):
        return
    publish(session, name, tables)
    passing = f"flow_published_{uuid.uuid4().hex}"
    create_slot(session, passing, temporary=True)
    session.query("SELECT pg_drop_replication_slot(?)", (passing,))


def refuse_parts(session: PostgresSession, name: str, tables: Sequence[SourceTable]) -> None:
    """Refuse a publication that leaves changes of tables out, or has them under the names of their partitions."""
    roots = [str(table.id) for table in tables if table.is_partitioned]
    for every_kind, by_root in session.query(_PUBLISHES, (name,)):
        if not every_kind or (roots and not by_root):
            what = (
                "does not publish every kind of change"
                if not every_kind
                else f"has the partitions of {', '.join(roots)}"
            )
            message = f"publication {name!r} {what}: a stream would lose changes"
            raise RunError(message, hint=f"ALTER PUBLICATION {quoted(name)} SET ({_WHOLE}).")
    own = {table.id for table in tables}
    parts = [str(table) for table in (TableId(*row) for row in session.query(_PARTS, (name,))) if table in own]
    if parts:
        message = (
            f"publication {name!r} has only some rows or columns of {', '.join(parts)}: a stream would lose changes"
        )
        raise RunError(message, hint="publish whole tables, without WHERE and lists of columns.")


def advance(session: PostgresSession, name: str, lsn: int) -> None:
    """Let the server forget what was committed before a position."""
    status = slot_status(session, name)
    if status is None or status.confirmed_lsn >= lsn:
        return
    failpoint("cdc.before_advance")
    session.query("SELECT pg_replication_slot_advance(?, ?::pg_lsn)", (name, format_lsn(lsn)))
    failpoint("cdc.advanced")


def refuse_lost(name: str, status: SlotStatus | None, lsn: int) -> SlotStatus:
    """Return the slot; one that no longer has what was committed after a position is refused."""
    if status is None:
        message = f"replication slot {name!r} is gone, and with it the changes after {format_lsn(lsn)}"
        raise StreamLostError(message, hint=f"it was dropped, or the server is another one; {_AGAIN}")
    if status.wal_status == LOST:
        message = f"replication slot {name!r} has lost the changes after {format_lsn(lsn)}: the server removed its log"
        hint = f"max_slot_wal_keep_size is too small for how far the stream was behind; drop the slot, and {_AGAIN}"
        raise StreamLostError(message, hint=hint)
    if status.confirmed_lsn > lsn:
        message = (
            f"replication slot {name!r} begins at {format_lsn(status.confirmed_lsn)}, "
            f"and the changes from {format_lsn(lsn)} up to there are gone"
        )
        raise StreamLostError(message, hint=f"it was made again, or another reader moved it; {_AGAIN}")
    return status


def refuse_unpublished(name: str, tables: Sequence[TableId]) -> None:
    """Refuse tables that were read before and are no part of the publication: others have got their names since."""
    if tables:
        named = ", ".join(map(str, tables))
        message = (
            f"{named} is no longer in publication {name!r}: it was made again, changed its name with another table or was "
            "taken out, and changes of it were not read"
        )
        raise StreamLostError(message, hint=_AGAIN)


_AGAIN = f"{REWIND} `earliest` reads the tables again."
