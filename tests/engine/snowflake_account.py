"""A stand-in for Snowflake and its connector: statements are read as Snowflake's and answered by DuckDB.

It shows that statements are Snowflake's as sqlglot knows it, in which order they come and what they do; not that Snowflake
takes them.
"""

from __future__ import annotations

import datetime as dt
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import duckdb
import pyarrow as pa
from sqlglot import transpile

if TYPE_CHECKING:
    from collections.abc import Iterator

CODES = {
    pa.float64(): 1,
    pa.string(): 2,
    pa.date32(): 3,
    pa.timestamp("us", "UTC"): 7,
    pa.timestamp("us"): 8,
    pa.bool_(): 13,
}


class Error(Exception):
    """What the connector raises."""


class ProgrammingError(Error):
    """A statement that is wrong."""


class OperationalError(Error):
    """A way to the service that is broken."""


class Account:
    """One account, and the connector's module that leads to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = duckdb.connect(str(folder / "account.duckdb"))
        self.database.execute("SET TimeZone = 'UTC'")
        self.statements: list[str] = []
        self.arguments: dict[str, Any] = {}
        self.cut_at = ""
        """A statement after which the line goes down."""
        self.module = SimpleNamespace(connect=self.connect, errors=SimpleNamespace(Error=Error))

    def connect(self, **arguments: Any) -> Connection:
        self.arguments = arguments
        return Connection(self)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.database.execute(sql).fetchall()


class Connection:
    def __init__(self, account: Account) -> None:
        self.account = account
        self.session = account.database.cursor()
        self.stages: dict[str, list[Path]] = {}
        self.is_cut = False

    def cursor(self) -> Cursor:
        return Cursor(self)

    def close(self) -> None:
        self.session.close()


class Cursor:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._table: pa.Table | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    @property
    def description(self) -> list[SimpleNamespace]:
        assert self._table is not None
        return [_column(field) for field in self._table.schema]

    def execute(self, sql: str) -> None:
        account = self._connection.account
        if self._connection.is_cut:
            raise OperationalError("250001: the connection is closed")
        account.statements.append(sql)
        try:
            self._run(sql)
        except duckdb.Error as error:
            raise ProgrammingError(str(error)) from None
        if account.cut_at and sql.startswith(account.cut_at):
            account.cut_at, self._connection.is_cut = "", True
            raise OperationalError("250001: could not connect to Snowflake backend")

    def _run(self, sql: str) -> None:
        stages, session = self._connection.stages, self._connection.session
        if match := re.fullmatch(r'CREATE TEMPORARY STAGE ("\w+")', sql):
            stages[match[1]] = []
        elif match := re.fullmatch(r"PUT 'file://(.+)' @(\"\w+\") AUTO_COMPRESS = FALSE", sql):
            path = self._connection.account.folder / f"{len(stages[match[2]])}.parquet"
            stages[match[2]].append(Path(shutil.copy(match[1], path)))
        elif match := re.fullmatch(r'COPY INTO ("\w+") FROM @("\w+") FILE_FORMAT = \(TYPE = PARQUET, .*', sql):
            for path in stages[match[2]]:
                session.execute(f"INSERT INTO {match[1]} BY NAME SELECT * FROM read_parquet('{path}')")
        else:
            [translated] = transpile(sql, read="snowflake", write="duckdb")
            result = session.sql(translated) if translated.startswith("SELECT") else session.execute(translated)
            self._table = result.to_arrow_table() if translated.startswith("SELECT") else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        rows = [] if self._table is None else self._table.to_pylist()
        return [tuple(row.values()) for row in rows]

    def fetch_arrow_batches(self) -> Iterator[pa.Table]:
        """Return a table for each row: chunks of a result have types as narrow as their values."""
        assert self._table is not None
        for number in range(self._table.num_rows):
            yield _narrow(self._table.slice(number, 1))


def _narrow(table: pa.Table) -> pa.Table:
    for number, field in enumerate(table.schema):
        value = table.column(number)[0].as_py()
        if pa.types.is_integer(field.type) and value is not None and -128 <= value < 128:
            table = table.set_column(number, field.name, table.column(number).cast(pa.int8()))
        if pa.types.is_timestamp(field.type) and isinstance(value, dt.datetime):
            table = table.set_column(number, field.name, table.column(number).cast(pa.timestamp("ns", field.type.tz)))
    return table


def _column(field: pa.Field) -> SimpleNamespace:
    if pa.types.is_decimal(field.type):
        return SimpleNamespace(name=field.name, type_code=0, precision=field.type.precision, scale=field.type.scale)
    if pa.types.is_integer(field.type):
        return SimpleNamespace(name=field.name, type_code=0, precision=18, scale=0)
    kind = pa.timestamp("us", "UTC") if pa.types.is_timestamp(field.type) and field.type.tz else field.type
    return SimpleNamespace(name=field.name, type_code=CODES[kind], precision=None, scale=None)
