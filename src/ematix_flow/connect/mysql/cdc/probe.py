"""Checks for `flow doctor` whether the binary log of a server can be read; it changes nothing."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from ematix_flow.connect.mysql.cdc.binlog import LogReader, log_end, readable, server_id
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from ematix_flow.declare.connection.change_logs import MySQLCDCConnection


def probe(connection: MySQLCDCConnection) -> str:
    """Return a sentence about the server and its log; one whose changes cannot be read is refused."""
    reader = LogReader(connection)
    with readable(reader), closing(reader.session()) as session:
        server_id(session)
        end, logs = log_end(session), session.query("SHOW BINARY LOGS")
        kind, version = "MariaDB" if session.mariadb else "MySQL", session.query("SELECT VERSION()")[0][0]
    return f"{kind} {str(version).split('-')[0]} with whole rows in its log, {quantity(len(logs), 'file')} up to {end.file}"
