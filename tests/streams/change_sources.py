"""A table whose rows change, and a stream that mirrors it from the log: the program that is killed, and what is asked of it.

Run as a program it is one life of the stream: the URL of its source and the file of its mirror are given.
"""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import psycopg
import pymysql

import ematix_flow
from ematix_flow import CDC
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from tests.streams.feeds import drain

if TYPE_CHECKING:
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


class Source:
    """A table of a database whose rows are changed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.kind = "mysql_cdc" if url.startswith("mysql") else "postgres_cdc"
        self.name = "things" if self.kind == "mysql_cdc" else "public.things"
        self._connection = self.connect()
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
        """Give the rows."""
        return sorted(self.run("SELECT id, n, big FROM things"))

    def stream(self, file: Path, **limits: int) -> Stream:
        """Give the stream that mirrors the table."""
        return stream_of(self.url, file, **limits)


class Work:
    """Changes rows until it is stopped: transactions of several changes, some long, some rolled back."""

    def __init__(self, source: Source, seed: int) -> None:
        self._source, self._random = source, random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.transactions = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _work(self) -> None:
        with closing(self._source.connect()) as connection:
            while not self._stop.wait(0.01):
                with connection.cursor() as cursor:
                    for _ in range(self._random.choice((1, 1, 3, 20))):
                        cursor.execute(*self._statement())
                self._stop.wait(0.05 if self._random.random() < 0.1 else 0)
                (connection.rollback if self._random.random() < 0.1 else connection.commit)()
                self.transactions += 1

    def _statement(self) -> tuple[str, tuple[object, ...]]:
        key, value = self._random.randrange(40), self._random.randrange(10**6)
        match self._random.choice("iiuudk"):
            case "i":
                sql = "INSERT INTO things SELECT %s, %s, %s WHERE NOT EXISTS (SELECT 1 FROM things WHERE id = %s)"
                return sql, (key, value, "x" * self._random.choice((3, 9000)), key)
            case "u":
                return "UPDATE things SET n = %s WHERE id = %s", (value, key)
            case "d":
                return "DELETE FROM things WHERE id = %s", (key,)
        moved = "SELECT 1 FROM (SELECT id FROM things) AS t WHERE t.id = %s"
        return f"UPDATE things SET id = %s, big = 'moved' WHERE id = %s AND NOT EXISTS ({moved})", (
            key + 1000, key, key + 1000,
        )  # fmt: skip


def stream_of(url: str, file: Path, **limits: int) -> Stream:
    """Give the stream that mirrors the table of a database."""
    kind, table = ("mysql_cdc", "things") if url.startswith("mysql") else ("postgres_cdc", "public.things")
    source = connection_from_fields("log", {"kind": kind, "url": url, **limits})
    target = connection_from_fields("there", {"kind": "sqlite", "path": str(file)})
    given = {"source": source, "source_query": table, "target_connection": target, "target_table": THINGS}
    return stream_from_keywords({"name": "mirror", "cdc": CDC(), "max_rows_per_batch": 100, **given}, None)


def begin_life(url: str, file: Path, failpoints: str) -> subprocess.Popen[bytes]:
    """Begin a life of the stream in a process of its own, which ends at what is there when it begins."""
    code = Path(ematix_flow.__file__).parents[1]
    surroundings = {**os.environ, "PYTHONPATH": f"{code}:{Path(__file__).parents[2]}", "FLOW_FAILPOINTS": failpoints}
    return subprocess.Popen([sys.executable, "-m", "tests.streams.change_sources", url, str(file)], env=surroundings)


def mirrored(file: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        return sorted(connection.execute("SELECT id, n, big FROM things").fetchall())


if __name__ == "__main__":
    drain(stream_of(sys.argv[1], Path(sys.argv[2])))
