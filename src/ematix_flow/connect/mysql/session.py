"""Connections to MySQL and MariaDB for the driver: settings from a URL, a strict session and explicit transactions.

A statement that MySQL would commit by itself is refused inside a transaction, so that a load is one commit or none.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql
from pymysql.constants import CLIENT

from ematix_flow.connect.base.session import Session
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.mysql.protocol import CONNECT_SECONDS, Wire
from ematix_flow.errors import CommitError, DeclareError, RunError, TransientError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ematix_flow.connect.mysql.protocol import Field

STATEMENT_SECONDS = 4 * 3600
COMMIT_SECONDS = 600
LOCK_SECONDS = 60
IDLE_SECONDS = 600
"""A transaction whose driver is frozen for longer loses its locks."""

COLLATE = "/*M!100200 COLLATE{0}utf8mb4_nopad_bin *//*!80017 COLLATE{0}utf8mb4_0900_bin */"
"""Text compares by bytes, blanks at the end count: the first comment is for MariaDB's eyes, the second for MySQL's."""

_MODES = (
    "STRICT_TRANS_TABLES,STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION"
)
"""The whole mode, not an addition: ANSI_QUOTES, NO_BACKSLASH_ESCAPES and the like would change what our SQL means."""

_PREPARE = (
    f"SET NAMES utf8mb4 {COLLATE.format(' ')}",
    (
        f"SET SESSION sql_mode = CONCAT('{_MODES}', "
        "IF(FIND_IN_SET('ONLY_FULL_GROUP_BY', @@GLOBAL.sql_mode), ',ONLY_FULL_GROUP_BY', '')), time_zone = '+00:00', "
        f"innodb_lock_wait_timeout = {LOCK_SECONDS}, lock_wait_timeout = {LOCK_SECONDS}, sql_safe_updates = 0, "
        f"sql_notes = 0, net_read_timeout = {STATEMENT_SECONDS}, net_write_timeout = {STATEMENT_SECONDS}"
    ),
    # A source that is read for an INSERT is not locked then, nor are gaps; a statement binlog cannot have that.
    (
        "SET SESSION /*M!100200 tx_isolation *//*!80000 transaction_isolation */ = "
        "IF(@@binlog_format = 'STATEMENT' AND @@log_bin, 'REPEATABLE-READ', 'READ-COMMITTED')"
    ),
)

LIMITS_SQL = (
    "SELECT @@GLOBAL.max_connections, @@SESSION.max_user_connections, (SELECT COUNT(*) FROM "
    "information_schema.processlist WHERE user = SUBSTRING_INDEX(USER(), '@', 1))"
)
"""Queries limits of connections, from what every user may see."""

ALONE = "SET SESSION /*M!100200 tx_isolation *//*!80000 transaction_isolation */ = 'REPEATABLE-READ'"
"""What makes the transactions of a session lock the room between rows too, when they lock rows."""

TRANSIENT = frozenset(
    {1020, 1040, 1042, 1043, 1053, 1152, 1153, 1158, 1159, 1160, 1161, 1180, 1203, 1205, 1206, 1213, 1317, 1614, 1637}
    | {1836, 1927, 1969, 2002, 2003, 2006, 2013, 2055, 3024, 3058, 3101, 4031}
)
"""Locks, deadlocks, shutdowns and lost connections."""

_HOLLOW = r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`"
_PLACEHOLDERS = re.compile(rf"({_HOLLOW})|\?", re.DOTALL)
_ROW_WORK = re.compile(r"[\s(]*(SELECT|INSERT|UPDATE|DELETE|WITH|SAVEPOINT|ROLLBACK\s+TO)\b", re.IGNORECASE)
_OWN_SETTING = re.compile(r"\s*SET\s+(@[a-z_]|SESSION\s)(?!.*\bautocommit\b)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class MySQLSettings:
    """Where the server is and who we are there."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    options: tuple[tuple[str, Any], ...] = ()
    """Further arguments of PyMySQL."""


_TEXT_OPTIONS = ("ssl_ca", "ssl_cert", "ssl_key", "unix_socket")
_FLAG_OPTIONS = ("ssl_disabled", "ssl_verify_cert", "ssl_verify_identity")
_SSL_MODES: Mapping[str, dict[str, Any]] = {
    "disabled": {"ssl_disabled": True},
    "preferred": {},
    "required": {"ssl": {"check_hostname": False, "verify_mode": False}},
    "verify_ca": {"ssl_verify_cert": True},
    "verify_identity": {"ssl_verify_cert": True, "ssl_verify_identity": True},
}


def read_url(url: str, name: str) -> MySQLSettings:
    """Return the settings that a URL means; its text never appears in an error."""
    try:
        parts = urlsplit(url)
        port = parts.port or 3306
        pairs = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise DeclareError(f"the URL of connection {name!r} cannot be read", hint=_URL_HINT) from None
    options: dict[str, Any] = {}
    for key, value in pairs:
        options.update(_option(name, key.replace("-", "_").lower(), value))
    return MySQLSettings(
        host=unquote(parts.hostname or "localhost"),
        port=port,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=unquote(parts.path.removeprefix("/")),
        options=tuple(options.items()),
    )


_URL_HINT = "write mysql://user:password@host:3306/database, with special characters percent-encoded."


def _option(name: str, key: str, value: str) -> dict[str, Any]:
    if key == "charset":
        return {}
    if key in _TEXT_OPTIONS:
        return {key: value}
    if key in _FLAG_OPTIONS:
        return {key: value.lower() in ("1", "true", "yes", "on")}
    if key == "ssl_mode" and value.lower() in _SSL_MODES:
        return _SSL_MODES[value.lower()]
    known = (*_TEXT_OPTIONS, *_FLAG_OPTIONS, "ssl_mode", "charset")
    what = f"an unknown ssl_mode, use {', '.join(_SSL_MODES)}" if key == "ssl_mode" else f"an unknown option {key!r}"
    raise DeclareError(f"the URL of connection {name!r} has {what}", hint=did_you_mean(key, known))


def connect(settings: MySQLSettings, name: str, *, load: bool = False) -> Wire:
    """Open a connection whose session is strict, in UTC and in UTF-8; `load` allows LOAD DATA LOCAL."""
    try:
        wire = Wire(
            host=settings.host,
            port=settings.port,
            user=settings.user,
            # PyMySQL would encode text as Latin-1.
            password=cast("str", settings.password.encode()),
            database=settings.database or None,
            charset="utf8mb4",
            autocommit=True,
            local_infile=load,
            client_flag=CLIENT.FOUND_ROWS,
            connect_timeout=CONNECT_SECONDS,
            program_name="ematix-flow",
            defer_connect=True,
            **dict(settings.options),
        )
        wire.open_socket()
        wire.set_timeout(STATEMENT_SECONDS)
        for statement in _PREPARE:
            wire.query(statement)
    except (pymysql.Error, OSError, RuntimeError) as error:
        message = f"cannot connect to {name!r} at {settings.host}:{settings.port}: {safe_text(error)}"
        raise (TransientError if is_transient(error) else RunError)(message) from None
    return wire


def is_transient(error: BaseException) -> bool:
    """Return whether a driver's error may go away by itself."""
    if isinstance(error, pymysql.InterfaceError):
        return True
    code = error.args[0] if error.args else None
    state = str(getattr(error, "sqlstate", None) or "")
    return isinstance(error, pymysql.Error) and (code in TRANSIENT or state.startswith("08") or state == "40001")


class MySQLSession(Session):
    """A control connection with explicit transactions that hold nothing but work on rows."""

    def __init__(self, wire: Wire, again: Callable[[], Wire] | None = None) -> None:
        self.wire = wire
        self._again = again
        """Opens a second connection, which alone can end a statement of this one."""
        self.mariadb = "mariadb" in str(cast("Any", wire).server_version).lower()
        self._in_transaction = False
        self._work_tables: list[str] = []

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run a statement; for UPDATE the matched rows count, changed or not."""
        self._check(sql)
        return int(self.wire.query(bind(self.wire, sql, parameters)) or 0)

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a query and return its rows."""
        self._check(sql)
        return self.wire.rows(bind(self.wire, sql, parameters))

    def free_connections(self) -> int:
        """Return what the server and the account leave of their limits."""
        (most, most_of_user, used_by_user), *_ = self.query(LIMITS_SQL)
        used = self.query("SHOW GLOBAL STATUS LIKE 'Threads_connected'")[0][1]
        free = [int(most) - int(used), *([int(most_of_user) - int(used_by_user)] if int(most_of_user) else [])]
        return max(0, min(free))

    def columns(self, sql: str) -> tuple[Field, ...]:
        """Return the columns of a query without running it."""
        return self.wire.fields(sql)

    def _check(self, sql: str) -> None:
        if self._in_transaction and not _ROW_WORK.match(sql) and not _OWN_SETTING.match(sql):
            message = f"MySQL would commit the open transaction at this statement: {sql.strip()[:80]}"
            raise CommitError(message, hint="only work on rows may stand in a transaction; nothing was changed.")

    def begin(self) -> None:
        """Open a transaction; the server ends it when this process is silent for long."""
        if self._in_transaction:
            message = "a transaction is open already, and MySQL would commit it here"
            raise CommitError(message)
        self.wire.query(f"SET SESSION wait_timeout = {IDLE_SECONDS}")
        self.wire.query("START TRANSACTION")
        self._in_transaction = True

    def commit(self) -> None:
        """Commit."""
        self.wire.set_timeout(COMMIT_SECONDS)
        self.wire.commit()
        self.wire.set_timeout(STATEMENT_SECONDS)
        self._in_transaction = False

    def rollback(self) -> None:
        """Roll back the whole; where that cannot be sent any more, the lost connection rolls back."""
        try:
            self.wire.rollback()
        except pymysql.Error:
            self.wire.break_off()
        self._in_transaction = False

    def interrupt(self) -> None:
        """Have the server end the statement."""
        if self._again is not None and self.wire.open:
            with contextlib.closing(self._again()) as other:
                number = int(cast("Any", self.wire).thread_id())
                other.query(f"KILL QUERY {number}")

    def drop_on_close(self, table: str) -> None:
        """Remember a scratch table; it goes when the session ends, or by garbage collection after a crash."""
        self._work_tables.append(table)

    def close(self) -> None:
        """Drop the scratch tables, outside of any transaction, and close."""
        if not self.wire.open:
            return
        if self._in_transaction:
            self.rollback()
        with contextlib.suppress(pymysql.Error):
            if self._work_tables:
                self.wire.query(f"DROP TABLE IF EXISTS {', '.join(self._work_tables)}")
        with contextlib.suppress(pymysql.Error):
            self.wire.close()


def bind(wire: Wire, sql: str, parameters: Sequence[object]) -> str:
    """Return the statement with literals in place of its `?`; quoted text is left alone."""
    if not parameters:
        return sql
    values = list(parameters)
    bound = _PLACEHOLDERS.sub(lambda m: m[0] if m[1] or not values else wire.escape(_bindable(values.pop(0))), sql)
    if values:
        message = "there are more parameters than question marks"
        raise ValueError(message)
    return bound


def _bindable(value: object) -> object:
    """Return a parameter in a type that PyMySQL writes without loss."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return str(value) if isinstance(value, uuid.UUID) else value
