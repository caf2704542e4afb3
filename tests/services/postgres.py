"""A PostgreSQL server for tests; it has logical decoding on and a password that must never be seen in an output."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import psycopg

from tests.services.programs import postgres_bin
from tests.services.server import DatabaseServer

if TYPE_CHECKING:
    from ematix_flow.connect.base.session import Session

PASSWORD = "canary-pg-7Q2x"


class PostgresServer(DatabaseServer):
    """PostgreSQL 13 or newer."""

    name = "postgres"
    account = "postgres"
    stop_signal = signal.SIGINT  # PostgreSQL's fast shutdown: open transactions are rolled back

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database, as the superuser."""
        return f"postgresql://postgres:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str) -> None:
        """Run one statement in the maintenance database."""
        try:
            connection = psycopg.connect(self.url(), autocommit=True, connect_timeout=10)
        except psycopg.OperationalError as error:
            raise ConnectionError(str(error)) from error
        with connection:
            connection.execute(statement.encode())

    def drop_database(self, url: str) -> None:
        """Remove a database even if a test left connections to it open."""
        over = time.monotonic() + 30
        while True:
            try:
                return self.execute(f"DROP DATABASE IF EXISTS {url.rsplit('/', 1)[1]} WITH (FORCE)")
            except psycopg.errors.ObjectInUse:
                # A slot is in use until the server has noticed that its client is gone.
                if time.monotonic() > over:
                    raise
                time.sleep(0.05)

    def initialise(self) -> None:
        """Make an empty cluster with password logins."""
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self.run([
            postgres_bin() / "initdb", "-D", self.data, "-U", "postgres", "--auth=scram-sha-256", f"--pwfile={secret}",
            "--encoding=UTF8", "--locale=C", "--no-sync",
        ])  # fmt: skip

    def command(self) -> list[str]:
        """Return the command line, with settings for small and short loads."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "timezone": "UTC",
            "shared_buffers": "64MB",
            # The server ends a connection some time after its client, which random histories open by the hundred.
            "max_connections": "300",
            "wal_level": "logical",
            "max_replication_slots": "16",
            "max_wal_senders": "16",
        }
        if not self.durable:
            # A killed server loses nothing by these, for its writes are with the operating system; a power cut would.
            settings |= {"fsync": "off", "full_page_writes": "off"}
        options = [argument for key, value in settings.items() for argument in ("-c", f"{key}={value}")]
        return [str(postgres_bin() / "postgres"), "-D", str(self.data), "-p", str(self.port), *options]


def wait_for_backends(session: Session) -> None:
    """Wait until every other connection to the database is gone; the server ends them after their clients."""
    deadline = time.monotonic() + 30
    while session.query("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()") != [(1,)]:
        assert time.monotonic() < deadline, "a connection stays open"
        time.sleep(0.02)
