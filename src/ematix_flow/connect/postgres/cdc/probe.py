"""Checks for `flow doctor` whether the log of a PostgreSQL can be read; it changes nothing."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from ematix_flow.connect.postgres.cdc.changes import LogReader, readable
from ematix_flow.connect.postgres.cdc.slot import server_of
from ematix_flow.errors import RunError
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from ematix_flow.declare.connection.change_logs import PostgresCDCConnection

_SQL = """
SELECT current_setting('server_version'), current_setting('max_replication_slots')::int,
  (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user),
  (SELECT count(*) FROM pg_replication_slots),
  (SELECT count(*) FROM pg_replication_slots WHERE wal_status = 'lost'),
  (SELECT coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)), 0)::bigint FROM pg_replication_slots
    WHERE database = current_database())
"""
_MEGABYTE = 1024 * 1024


def probe(connection: PostgresCDCConnection) -> str:
    """Return a sentence about the server and its replication slots; one whose changes cannot be read is refused."""
    reader = LogReader(connection, "", "")
    with readable(reader), closing(reader.database().session()) as session:
        server_of(session)
        version, most, may_read, slots, lost, retained = session.query(_SQL)[0]
    if not may_read:
        raise RunError("the role may not read changes", hint="a superuser can let it: ALTER ROLE ... REPLICATION.")
    if lost:
        hint = "drop them, and rewind their streams: flow stream status says which these are."
        raise RunError(f"{quantity(lost, 'replication slot')} lost changes that were not read yet", hint=hint)
    if slots >= most:
        raise RunError(f"all {most} replication slots are in use", hint="raise max_replication_slots.")
    return (
        f"PostgreSQL {version} with wal_level = logical, {slots} of {most} replication slots in use, "
        f"{retained // _MEGABYTE} MB of log retained"
    )
