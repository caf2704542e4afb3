"""Shapes rows inside the process that stages them, with a DuckDB in memory; it reads and stages nothing.

Rows come as tables of some thousand rows, and each table is shaped by itself, so memory does not grow with a file.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Self

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.plan.columns import OURS, RAW, SOURCE_VIEW
from ematix_flow.run.stage.buffers import numbers
from ematix_flow.run.stage.raw_json import json_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from types import TracebackType

    from duckdb import DuckDBPyConnection

_CASES: dict[str, Callable[[str], str]] = {"upper": lambda text: text.upper(), "lower": lambda text: text.lower()}


class Shaper:
    """A DuckDB that evaluates one query over table after table; closed at the end of a `with`."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._numbers = numbers(0)
        self._connection = _connection(sql)
        self._connection.execute("SET TimeZone = 'UTC'")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def answer(self, table: pa.Table) -> pa.Table:
        """Return what the query makes of a table."""
        if len(self._numbers) < table.num_rows:
            self._numbers = numbers(table.num_rows)
        numbered = table.append_column(RAW, self._numbers.slice(0, table.num_rows))
        self._connection.register(SOURCE_VIEW, numbered)
        try:
            return self._connection.sql(self._sql).to_arrow_table()
        finally:
            self._connection.unregister(SOURCE_VIEW)


def shaped_batches(sql: str, tables: Iterable[pa.Table]) -> Generator[pa.RecordBatch]:
    """Return the shaped rows in the order of the tables; a row that could not be read comes with its source as JSON."""
    with Shaper(sql) as shaper:
        for table in tables:
            if table.num_rows:
                yield from _with_source(shaper.answer(table), table).combine_chunks().to_batches()


def _with_source(shaped: pa.Table, table: pa.Table) -> pa.Table:
    """Return the shaped rows with JSON instead of the numbers of source rows."""
    index = shaped.schema.get_field_index(RAW)
    if index < 0:
        return shaped
    rows = shaped.column(RAW)
    texts = pa.nulls(shaped.num_rows, pa.string())
    if rows.null_count < shaped.num_rows:
        names = [name for name in table.column_names if name not in OURS]
        written = json_rows(table.take(rows.drop_null()), names)
        marked = pc.is_valid(rows).combine_chunks()
        texts = pc.replace_with_mask(texts, marked, pa.array(written, pa.string()))
    return shaped.set_column(index, RAW, texts)


def _connection(sql: str) -> DuckDBPyConnection:
    """Return a session of a DuckDB in memory, which is this process's own unless the query needs functions of its own."""
    functions = {name: change for name, change in _CASES.items() if f"{name.upper()}(" in sql}
    if not functions:
        return _shared_database().cursor()
    connection = _database()
    _teach(connection, functions)
    return connection


@cache
def _shared_database() -> DuckDBPyConnection:
    """Return the DuckDB of this process: a session of it takes a hundredth of the time of a database."""
    return _database()


def _database() -> DuckDBPyConnection:
    return duckdb.connect(":memory:", config={"threads": "1"})


def _teach(connection: DuckDBPyConnection, functions: Mapping[str, Callable[[str], str]]) -> None:
    """Let letters beyond ASCII change their case as they do on Spark: one letter may become two."""
    for function_name, change in functions.items():
        connection.create_function(f"flow_{function_name}", change, ["varchar"], "varchar")
        connection.execute(
            f"CREATE TEMP MACRO {function_name}(x) AS CASE WHEN strlen(x) = length(x) "
            f"THEN system.main.{function_name}(x) ELSE flow_{function_name}(x) END"
        )
