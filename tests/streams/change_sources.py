"""A table whose rows change, and a stream that mirrors it from the log: the program that is killed, and what is asked of it.

Run as a program it is one life of the stream: the URL of its source and the file of its mirror are given.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pymysql

from ematix_flow import CDC
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from tests.crash.programs import RowChanges, begin_program, log_at

if TYPE_CHECKING:
    from subprocess import Popen

    from ematix_flow.declare.stream.stream import Stream

THINGS = Table(
    "main",
    "things",
    (
        Column(BigInt(), primary_key=True, name="id"),
        Column(BigInt(), nullable=True, name="n"),
        Column(Text(), nullable=True, name="big"),
    ),
)

LOG = Table(
    "main", "things", tuple(Column(kind(), nullable=True, name=name) for name, kind in (("id", BigInt), ("n", BigInt)))
)


class Source:
    """A table of a database whose rows are changed."""

    def __init__(self, url: str, *, create: bool = True) -> None:
        self.url = url
        self.kind = "mysql_cdc" if url.startswith("mysql") else "postgres_cdc"
        self.name = "things" if self.kind == "mysql_cdc" else "public.things"
        self._connection = self.connect()
        if create:
            self.run("CREATE TABLE things (id bigint PRIMARY KEY, n bigint, big text)")

    def connect(self) -> Any:
        """Open a connection."""
        if self.kind == "postgres_cdc":
            return psycopg.connect(self.url)
        parts = urlsplit(self.url)
        return pymysql.connect(
            host=parts.hostname,
            port=parts.port or 0,
            user=parts.username,
            password=parts.password,
            database=parts.path[1:],
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def run(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run a statement and commit."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            rows = cursor.fetchall() if cursor.description else []
        self._connection.commit()
        return list(rows)

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows."""
        return sorted(self.run("SELECT id, n, big FROM things"))

    def stream(self, file: Path, tables: str = "", mode: str = "", **limits: Any) -> Stream:
        """Return the stream that mirrors the table, or others."""
        return stream_of(self.url, file, tables, mode, **limits)


class Work(RowChanges):
    """Changes the rows of a source."""

    def __init__(self, source: Source, seed: int) -> None:
        super().__init__(seed)
        self._source = source

    def connect(self) -> Any:
        """Open a connection."""
        return self._source.connect()

    def statement(self) -> tuple[str, tuple[object, ...]]:
        """Return a change that both databases know."""
        key, value = self.random.randrange(40), self.random.randrange(10**6)
        match self.random.choice("iiuudk"):
            case "i":
                sql = "INSERT INTO things SELECT %s, %s, %s WHERE NOT EXISTS (SELECT 1 FROM things WHERE id = %s)"
                return sql, (key, value, "x" * self.random.choice((3, 9000)), key)
            case "u":
                return "UPDATE things SET n = %s WHERE id = %s", (value, key)
            case "d":
                return "DELETE FROM things WHERE id = %s", (key,)
        moved = "SELECT 1 FROM (SELECT id FROM things) AS t WHERE t.id = %s"
        return f"UPDATE things SET id = %s, big = 'moved' WHERE id = %s AND NOT EXISTS ({moved})", (
            key + 1000, key, key + 1000,
        )  # fmt: skip


def stream_of(url: str, file: Path, tables: str = "", mode: str = "", **limits: Any) -> Stream:
    """Return the stream that mirrors the table of a database."""
    source = log_at(url, **limits)
    table = "things" if source.kind == "mysql_cdc" else "public.things"
    target = connection_from_fields("there", {"kind": "sqlite", "path": str(file)})
    given = {"source": source, "source_query": tables or table, "target_connection": target, "target_table": THINGS}
    if mode:
        given |= {"mode": mode, "target_table": LOG, "target_primary_key": ("id",)}
    return stream_from_keywords({"name": "mirror", "cdc": CDC(), "max_rows_per_batch": 100, **given}, None)


def begin_life(url: str, file: Path, failpoints: str, *, ends: bool = True) -> Popen[bytes]:
    """Begin a life of the stream in a process of its own; one that ends does so at what is there when it begins."""
    arguments = (url, str(file), "now" if ends else "on")
    return begin_program("tests.streams.change_sources", *arguments, failpoints=failpoints)


def mirrored(file: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        return sorted(connection.execute("SELECT id, n, big FROM things").fetchall())


if __name__ == "__main__":
    url_, file_, ends_ = sys.argv[1:]
    run_stream(stream_of(url_, Path(file_)), StreamOptions(available_now=ends_ == "now"))
