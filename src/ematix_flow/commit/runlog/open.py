"""Opens the run log of an address, a path or a connection; one that cannot be written never stops a load."""

from __future__ import annotations

import os
import re
import uuid
import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.log import RunLog
from ematix_flow.commit.runlog.project_backend import ProjectBackend
from ematix_flow.commit.runlog.sql.backend import SqlBackend
from ematix_flow.commit.runlog.sql.pool import SqlConnector
from ematix_flow.commit.runlog.sql.tables import Tables
from ematix_flow.commit.runlog.urls import Address, read_address
from ematix_flow.connect.base.scratch import open_scratch
from ematix_flow.connect.config.project_name import current_project
from ematix_flow.connect.config.redact import redact
from ematix_flow.declare.connection.base import Connection
from ematix_flow.errors import ConnectionMissingError, DeclareError, RunLogError

if TYPE_CHECKING:
    from ematix_flow.commit.runlog.backend import RunLogBackend
    from ematix_flow.connect.base.session import Session

DEFAULT = "~/.ematix-flow/run_log.db"

_TABLES = {"requests", "run_records", "pipeline_state", "run_log", "attempt_state", "pipeline_claims"}
"""Tables by which a run log is recognised, those of earlier versions included."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NO_CONNECTION = Address("", "")


def open_run_log(url: str | Connection | None = None, path: str | None = None, *, required: bool = False) -> RunLog:
    """Return the run log of a URL, a path, the environment or the default file, in this order.

    One that does not answer is a warning, and what this process does is then not stored; an error where it is required.
    """
    try:
        return from_url(url) if isinstance(url, Connection) else _opened_at(url, path)
    except RunLogError as error:
        if required:
            raise
        text = f"{error.what}; this run is not remembered and cannot be resumed"
        warnings.warn(text, UserWarning, stacklevel=2)
        return forgotten_run_log()


def location_of(url: str | None = None, path: str | None = None) -> str:
    """Return where the run log of a URL, a path, the environment or the default file is, in this order."""
    address = url or (None if path else os.environ.get("EMATIX_FLOW_RUN_LOG_URL"))
    return address or path or os.environ.get("EMATIX_FLOW_RUN_LOG_PATH") or DEFAULT


def _opened_at(url: str | None, path: str | None) -> RunLog:
    location = location_of(url, path)
    named = url or (not path and os.environ.get("EMATIX_FLOW_RUN_LOG_URL"))
    return from_url(location) if named or "://" in location else _at_path(location)


def from_url(url: str | Connection) -> RunLog:
    """Return the run log of an address, a path, a connection or the name of one; RunLogError when it does not answer."""
    if isinstance(url, Connection):
        return _of_connection(url)
    address = read_address(url)
    if address is None:
        return _of_connection(url) if _names_connection(url) else _at_path(url)
    log = forgotten_run_log() if address.kind == "memory" else _run_log_on(backend_of(address))
    if address.retention is not None:
        log.prune_daily(address.retention)
    return log


def backend_of(address: Address) -> RunLogBackend:
    """Return the backend of an address; no request is sent to it yet."""
    create = address.switch("create_tables", default=True)
    match address.kind:
        case "sqlite":
            return sqlite_backend(Path(address.location), create=create)
        case "file":
            return _backend_at(address.location, create=create)
        case "postgres" | "mysql":
            from ematix_flow.connect.config.lookup import resolve_connection
            from ematix_flow.declare.connection.registry import connection_from_url

            return _backend_of_connection(resolve_connection(connection_from_url("run_log", address.url)), address)
        case "duckdb":
            from ematix_flow.declare.connection.registry import DuckDBConnection

            # In memory, every run log is one of its own.
            name = f"run_log-{uuid.uuid4().hex}"
            return _backend_of_connection(DuckDBConnection(name, path=address.location or ":memory:"), address)
    from ematix_flow.commit.runlog.objects.location import object_backend

    return object_backend(address)


def ddl(url: str) -> str:
    """Return the statements that create the tables of a run log in a database; nothing is run."""
    address = read_address(url)
    backend = sqlite_backend(Path(url)) if address is None else backend_of(address)
    if not isinstance(backend, SqlBackend):
        raise DeclareError(f"a run log in {backend.display_address} has no tables")
    return backend.ddl()


def forgotten_run_log() -> RunLog:
    """Return a run log that ends with this process."""
    scratch = open_scratch("runlog")
    log = _run_log_on(sqlite_backend(scratch.folder / "run_log.db", lasting=False))
    log.lasting = False
    weakref.finalize(log, scratch.remove)
    return log


def sqlite_run_log(path: str | Path) -> RunLog:
    """Return the run log in an SQLite file."""
    return _run_log_on(sqlite_backend(Path(path)))


def sqlite_backend(path: Path, *, create: bool = True, lasting: bool = True) -> SqlBackend:
    """Return the backend in an SQLite file; it is opened for each call, so that many processes can share it.

    One that ends with this process anyway need not wait for the disk.
    """
    import sqlite3

    from ematix_flow.connect.sqlite.session import is_duplicate, open_file

    file = path.expanduser()

    def opened() -> Session:
        if create:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        session = open_file(file, create=create)
        if not lasting:
            session.execute("PRAGMA synchronous = OFF")
        return session

    return SqlBackend(
        SqlConnector(str(path), opened, (sqlite3.Error,), is_duplicate, file), Tables("sqlite"), create=create
    )


def local_path(url: str) -> Path | None:
    """Return the file or folder of this machine that an address means, if it means one."""
    address = read_address(url)
    if address is not None:
        return Path(address.location).expanduser() if address.kind in ("sqlite", "file") else None
    return None if _names_connection(url) else Path(url).expanduser()


def is_run_log(path: Path) -> bool:
    """Return whether a file or folder is a run log; nothing is created or changed."""
    import sqlite3
    from contextlib import closing

    if path.is_dir():
        return any((path / name).is_dir() for name in ("state", "runs"))
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.Error:
        return False
    return not _TABLES.isdisjoint(tables)


def _run_log_on(backend: RunLogBackend) -> RunLog:
    backend.ensure()
    return RunLog(ProjectBackend(backend, current_project()))


def _at_path(path: str) -> RunLog:
    return _run_log_on(_backend_at(path))


def _backend_at(path: str, *, create: bool = True) -> RunLogBackend:
    """Return the backend of a path: objects in a folder that exists or ends with a slash, else an SQLite file."""
    location = Path(path).expanduser()
    if not path.endswith("/") and not location.is_dir():
        return sqlite_backend(Path(path), create=create)
    from ematix_flow.commit.runlog.objects.location import folder_backend

    return folder_backend(location)


def _names_connection(name: str) -> bool:
    """Return whether a bare name is that of a connection; that of an existing file is a path, and so is the rest."""
    if not _NAME.fullmatch(name) or Path(name).exists():
        return False
    from ematix_flow.connect.config.lookup import find_connection

    try:
        find_connection(name)
    except ConnectionMissingError:
        return False
    return True


def _of_connection(connection: str | Connection) -> RunLog:
    from ematix_flow.connect.config.lookup import resolve_connection

    return _run_log_on(_backend_of_connection(resolve_connection(connection), _NO_CONNECTION))


def _backend_of_connection(connection: Connection, address: Address) -> RunLogBackend:
    from ematix_flow.connect.registry import DATABASES, FILES, open_database

    if connection.kind in FILES:
        from ematix_flow.commit.runlog.objects.location import connection_backend

        return connection_backend(connection)
    if connection.kind not in DATABASES:
        hint = f"it can be one of: {', '.join([*DATABASES, *FILES])}."
        raise DeclareError(f"connection {connection.name!r} is {connection.kind}, which keeps no run log", hint=hint)
    create = address.switch("create_tables", default=True)
    if connection.kind == "sqlite" and getattr(connection, "path", "") != ":memory:":
        return sqlite_backend(Path(str(getattr(connection, "path", ""))), create=create)
    database = open_database(connection)
    own = database.metadata_table("")
    tables = Tables(
        database.dialect,
        address.options.get("schema") or own.schema,
        address.options.get("table_prefix", own.name if database.dialect == "mysql" else ""),
    )
    path = Path(str(getattr(connection, "path", "")))
    is_file = connection.kind == "duckdb" and str(path) != ":memory:"
    connector = SqlConnector(
        redact(display_address(connection)),
        database.session,
        database.errors,
        database.is_duplicate_key,
        path if is_file else None,
        is_server=connection.kind in ("postgres", "mysql"),
        one_by_one=connection.kind == "duckdb",
    )
    return SqlBackend(connector, tables, create=create)


def display_address(connection: Connection) -> str:
    """Return where a connection leads, for people."""
    from ematix_flow.connect.registry import system_of

    info = system_of(connection).info()
    address = "/".join(str(info[name]) for name in ("host", "dbname") if info.get(name))
    return f"{connection.kind}://{address}"
