"""A MariaDB (or MySQL) server for tests; it has a row binlog and a password that must never be seen in an output."""

from __future__ import annotations

import signal

import pymysql

from tests.services.programs import mariadb_programs
from tests.services.server import OWN_PREFIX, DatabaseServer

USER = "flow"
PASSWORD = "canary-my-4Z9k"
_SYSTEM = ("information_schema", "mysql", "performance_schema", "sys")


class MariaDBServer(DatabaseServer):
    """MariaDB, or MySQL where that is what is installed."""

    name = "mariadb"
    account = "mysql"
    stop_signal = signal.SIGTERM

    def url(self, database: str = "mysql") -> str:
        """Return the URL of a database, as a user who may do everything."""
        return f"mysql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str) -> None:
        """Run one statement with no database chosen."""
        self._rows(statement)

    def drop_database(self, url: str) -> None:
        """Remove a database and what the test made beside it: a schema is a database of the whole server here."""
        super().drop_database(url)
        for (name,) in self._rows("SHOW DATABASES"):
            if name not in _SYSTEM and not name.startswith(OWN_PREFIX):
                self.execute(f"DROP DATABASE `{name}`")

    def _rows(self, statement: str) -> list[tuple[str, ...]]:
        try:
            connection = pymysql.connect(
                host="127.0.0.1",
                port=self.port,
                user=USER,
                password=PASSWORD,
                autocommit=True,
                connect_timeout=10,
                ssl_disabled=True,  # to prepare TLS takes longer than the statement
            )
        except pymysql.OperationalError as error:
            raise ConnectionError(str(error)) from error
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def initialise(self) -> None:
        """Make an empty data directory and the statements that create the user at every start."""
        _, install = mariadb_programs()
        # A server that starts removes the temporary tables of all others that share its folder for them.
        self.run([*install, f"--datadir={self.data}", f"--tmpdir={self.folder}"])
        users = self.folder / "users.sql"
        users.write_text(
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
        )
        users.chmod(0o644)

    def command(self) -> list[str]:
        """Return the command line, with settings for small and short loads."""
        server, _ = mariadb_programs()
        options = {
            "datadir": self.data,
            "tmpdir": self.folder,
            "port": self.port,
            "bind-address": "127.0.0.1",
            "socket": self.folder / "s.sock",
            "pid-file": self.folder / "pid",
            "init-file": self.folder / "users.sql",
            "log-bin": self.folder / "bin",
            "binlog-format": "ROW",
            "binlog-row-metadata": "FULL",  # the names of columns, which readers of the log need
            "server-id": 1,
            "default-time-zone": "+00:00",
            "character-set-server": "utf8mb4",
            "innodb-buffer-pool-size": "64M",
            "local-infile": 1,
            # 2 and 0: a killed server loses nothing, for its writes are with the operating system; a power cut would.
            "innodb-flush-log-at-trx-commit": 1 if self.durable else 2,
            "sync-binlog": 1 if self.durable else 0,
        }
        return [str(server), "--no-defaults", "--skip-name-resolve", *(f"--{k}={v}" for k, v in options.items())]
