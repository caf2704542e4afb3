"""A stream of changes of a database into a log of envelopes: the program that is killed, and what is asked of it afterwards.

Run as a program it is one life of the stream: the fields of its source, the tables and the file of its target are given.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.stream.stream import Stream, StreamSourceDeclaration, StreamTarget
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import Text
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from tests.crash.programs import RowChanges, begin_program, log_at
from tests.streams.feeds import drain as drained

if TYPE_CHECKING:
    from subprocess import Popen

COLUMNS = tuple(Column(Text(), name=name) for name in ("op", "before", "after", "source", "_key", "_table"))


def stream_of(url: str, query: str, file: Path, name: str = "changes", **more: Any) -> Stream:
    """Return a stream of envelopes into a table of SQLite."""
    target = connection_from_fields("there", {"kind": "sqlite", "path": str(file)})
    table = Table("main", "log", COLUMNS, stamped=False)
    return Stream(
        name,
        (StreamSourceDeclaration(log_at(url), query, "pg"),),
        (StreamTarget(target, write(mode="append"), table=table),),
        idle_pause_ms=20,
        **more,
    )


def drain(stream: Stream) -> int:
    """Run a stream until it has everything that is there, and return how many rows that was."""
    return int(drained(stream)["total_rows"])


def events(file: Path) -> list[dict[str, Any]]:
    """Return the envelopes of the target, in their order."""
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT op, before, after, source, _key, _table FROM log ORDER BY rowid").fetchall()
    return [
        {"op": op, "key": key, "table": table}
        | {name: None if text is None else json.loads(text) for name, text in texts.items()}
        for op, before, after, source, key, table in rows
        for texts in ({"before": before, "after": after, "source": source},)
    ]


def replayed(file: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows that follow from the envelopes; a row that comes twice, or goes without being there, is an error."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for event in events(file):
        key = (event["table"], event["key"])
        match event["op"]:
            case "c" | "r":
                assert key not in rows, f"{event} comes twice"
                rows[key] = event["after"]
            case "u":
                assert key in rows, f"{event} is of no row"
                rows[key] |= event["after"]
            case "d":
                assert rows.pop(key, None) is not None, f"{event} is of no row"
            case "t":
                rows = {one: row for one, row in rows.items() if one[0] != event["table"]}
    return rows


def rows_of(url: str, *tables: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows of the source."""
    with psycopg.connect(url) as connection:
        return {
            (table, json.dumps({"id": row["id"]}, separators=(",", ":"))): row
            for table in tables
            for (row,) in connection.execute(f"SELECT to_jsonb(t) FROM {table} t").fetchall()
        }


class Workload(RowChanges):
    """Changes the rows of tables of PostgreSQL."""

    def __init__(self, url: str, tables: tuple[str, ...], seed: int, keys: int = 40) -> None:
        super().__init__(seed)
        self._url, self._tables, self._keys = url, tables, keys
        self._moves = count(1 + seed * 1_000_000)

    def connect(self) -> Any:
        """Open a connection."""
        return psycopg.connect(self._url)

    def statement(self) -> tuple[str, tuple[object, ...]]:
        """Return a change of one of the tables."""
        table, key, value = self.random.choice(self._tables), self.random.randrange(self._keys), self.random.random()
        match self.random.choice("iiuudk"):
            case "i":
                large = "x" * self.random.choice((3, 9000))
                sql = f"INSERT INTO {table} VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET n = excluded.n"
                return sql, (key, value, large)
            case "u":
                return f"UPDATE {table} SET n = %s WHERE id = %s", (value, key)
            case "d":
                return f"DELETE FROM {table} WHERE id = %s", (key,)
        return f"UPDATE {table} SET id = id + %s, big = 'moved' WHERE id = %s", (1000 * next(self._moves), key)


def create(url: str, *tables: str) -> None:
    with psycopg.connect(url) as connection:
        for table in tables:
            connection.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, n float8, big text)".encode())
            sql = f"INSERT INTO {table} SELECT g, 0, repeat('y', 5000) FROM generate_series(0, 60) g"
            connection.execute(sql.encode())
            connection.execute(f"ALTER TABLE {table} ALTER big SET STORAGE EXTERNAL".encode())


def begin_life(url: str, query: str, file: Path, failpoints: str, *, ends: bool = True) -> Popen[bytes]:
    """Begin a life of a stream in a process of its own; one that ends does so at what is there when it begins."""
    arguments = (url, query, str(file), "now" if ends else "on")
    return begin_program("tests.crash.changing", *arguments, failpoints=failpoints)


if __name__ == "__main__":
    url_, query_, file_, ends_ = sys.argv[1:]
    run_stream(stream_of(url_, query_, Path(file_)), StreamOptions(available_now=ends_ == "now"))
