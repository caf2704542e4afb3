"""Queries of people over declared databases: checked by the parser, read-only, within a time and a number of rows."""

from __future__ import annotations

import math
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from datetime import time as clock_time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.cancellation import Halt, HaltedError
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.registry import open_database
from ematix_flow.declare.connection.registry import connection_from_url
from ematix_flow.errors import RunError, RunTimeoutError, UnknownNameError, did_you_mean
from ematix_flow.plan.sql.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ematix_flow.connect.base.database import Database
    from ematix_flow.connect.base.session import Session

DEFAULT_ROWS = 10_000
MOST_ROWS = 100_000
_LONGEST_TEXT = 10_000
_LARGEST_EXACT = 2**53 - 1
"""The largest whole number that every reader of JSON reads as it is."""


class QueryTimeoutError(RunTimeoutError):
    """A query took longer than it may."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows of a query."""

    columns: tuple[tuple[str, str], ...]
    """Names and types."""
    rows: tuple[tuple[Any, ...], ...]
    truncated: bool
    elapsed_ms: int

    def to_dict(self, *, cached: bool = False) -> dict[str, Any]:
        """Return the result as plain data."""
        stats = {"row_count": len(self.rows), "truncated": self.truncated, "elapsed_ms": self.elapsed_ms}
        return {
            "columns": [{"name": name, "type": kind} for name, kind in self.columns],
            "rows": [list(row) for row in self.rows],
            "stats": {**stats, "cached": cached},
        }


@dataclass(frozen=True, slots=True)
class Datasources:
    """What can be queried: names, each with the name of a connection or an address."""

    addresses: Mapping[str, str]
    functions: frozenset[str] = frozenset()
    """Functions that queries may call besides those that are known to be harmless, in lower case."""

    def open(self, name: str) -> Database:
        """Return the database of a name."""
        if name not in self.addresses:
            raise UnknownNameError(f"there is no datasource {name!r}", hint=did_you_mean(name, self.addresses))
        address = self.addresses[name]
        return open_database(connection_from_url(name, address) if "://" in address else address)

    def entries(self) -> list[dict[str, str]]:
        """Return the names with their dialects."""
        return [{"id": name, "dialect": self.open(name).dialect} for name in self.addresses]

    def tables(self, name: str) -> list[tuple[str, str]]:
        """Return schema and name of the tables of a database."""
        database = self.open(name)
        with _session(database, 10.0) as session:
            return sorted((schema or "main", table) for schema, table in database.table_names(session))

    def columns(self, name: str, schema: str, table: str) -> list[dict[str, Any]]:
        """Return the columns of a table."""
        database = self.open(name)
        with _session(database, 10.0) as session:
            known = database.find_table(session, database.table_name(schema, table))
        if known is None:
            raise UnknownNameError(f"{name} has no table {schema}.{table}")
        return [{"name": one.name, "type": str(one.type), "nullable": one.nullable} for one in known.columns]

    def query(self, name: str, sql: str, rows: int, seconds: float) -> QueryResult:
        """Run a query; refuse what does more than read."""
        database, began = self.open(name), time.perf_counter()
        query = guarded(sql, database.dialect, rows, self.functions)
        with _session(database, seconds) as session:
            described = () if query.is_explain else database.describe(session, query.plain_sql)
            if database.dialect == "sqlite":  # which describes a query by a temporary view
                session.execute("PRAGMA query_only = ON")
            session.show_all_values()
            fetched = session.query(query.sql)
        columns = tuple((column.name, column.native or column.family) for column in described)
        if query.is_explain:
            width = len(fetched[0]) if fetched else 1
            columns = tuple((f"plan {number}" if width > 1 else "plan", "text") for number in range(1, width + 1))
        shown = tuple(tuple(map(plain_value, row)) for row in fetched[:rows])
        return QueryResult(columns, shown, len(fetched) > rows, int((time.perf_counter() - began) * 1000))


_READ_ONLY = {
    "postgres": ("SET TRANSACTION READ ONLY", "SET LOCAL statement_timeout = {milliseconds}"),
}
"""What is sent after the begin of a transaction that may only read, by dialect."""
_BEFORE = {"mysql": ("SET SESSION TRANSACTION READ ONLY",)}
"""What is sent before it begins."""


@contextmanager
def _session(database: Database, seconds: float) -> Iterator[Session]:
    """Return a session that can only read, and that is interrupted when its time is over."""
    halt = Halt()
    failures: tuple[type[BaseException], ...] = (*database.failures, HaltedError)
    error = QueryTimeoutError(f"the query took longer than {seconds:g} s", hint="narrow it down, or add a LIMIT.")
    timer = threading.Timer(seconds, halt.stop, (error,))
    timer.daemon = True
    timer.start()
    try:
        with halt.over(), closing(database.confined_session()) as session:
            for statement in _BEFORE.get(database.dialect, ()):
                session.execute(statement)
            if database.dialect != "sqlite":  # whose begin takes the lock of a writer
                session.begin()
            for statement in _READ_ONLY.get(database.dialect, ()):
                session.execute(statement.format(milliseconds=int(seconds * 1000)))
            yield session
            session.rollback()
    except failures as failure:
        if halt.error is not None:
            raise halt.error from None
        raise RunError(safe_text(failure).partition("\n")[0]) from None
    finally:
        timer.cancel()


def plain_value(value: Any) -> Any:
    """Return a value as JSON and JavaScript can hold it; long texts are cut."""
    match value:
        case None | bool():
            return value
        case int() | float():
            is_exact = math.isfinite(value) if isinstance(value, float) else abs(value) <= _LARGEST_EXACT
            return value if is_exact else str(value)
        case datetime() | date() | clock_time():
            return value.isoformat()
        case Decimal() | timedelta():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case list() | tuple():
            return [plain_value(one) for one in value]
        case dict():
            return {str(key): plain_value(one) for key, one in value.items()}
    text = str(value)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
