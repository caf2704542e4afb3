"""Tables of a replication whose columns change at the source: the mirrors that are there go on, by the policy."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from ematix_flow import CDC, ematix
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.declare.connection.registry import (
    DuckDBConnection,
    MySQLConnection,
    PostgresConnection,
    SQLiteConnection,
    register_connection,
)
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.replication import streams_of
from ematix_flow.engine.stream.run_many import run_streams
from ematix_flow.errors import DriftError, FlowError
from tests.depth import deep
from tests.streams.change_sources import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ematix_flow.declare.stream.replication import Replication

    Replicate = Callable[..., Replication]

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("postgres_cdc")]

TARGETS = {"sqlite": SQLiteConnection, "duckdb": DuckDBConnection}


@pytest.fixture(params=["postgres", "mysql"])
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    with closing(Source(request.getfixturevalue(f"{request.param}_url"))) as source:
        source.run("INSERT INTO things VALUES (1, 1, 'a'), (2, 2, 'b')")
        yield source


@pytest.fixture
def replicate(source: Source, tmp_path: Path) -> Replicate:
    kind = PostgresConnection if source.kind == "postgres_cdc" else MySQLConnection
    register_connection(kind("shop", url=source.url))

    def declare(mode: str, policy: str, target: str = "sqlite") -> Replication:
        # A file of its own: while an error is shown, its database is open.
        register_connection(TARGETS[target]("copies", path=str(tmp_path / f"{source.kind}_{policy}.db")))
        cdc = CDC(schema_evolution=policy)
        tables = source.name if source.kind == "postgres_cdc" else "*.things"
        return ematix.replicate("shop", tables=tables, into="copies", schema="main", mode=mode, cdc=cdc)

    return declare


def run(declared: Replication) -> None:
    run_streams(streams_of(declared), StreamOptions(available_now=True))


def mirrored(declared: Replication, columns: str) -> list[tuple[Any, ...]]:
    where = "WHERE is_current" if declared.mode == "scd2" else ""  # versions of one second are one in the log of MySQL
    copies = resolve_connection(declared.into)
    assert isinstance(copies, SQLiteConnection | DuckDBConnection)
    opened: Any = sqlite3.connect(copies.path) if copies.kind == "sqlite" else duckdb.connect(copies.path)
    with closing(opened) as connection:
        return sorted(connection.execute(f"SELECT {columns} FROM main.things {where}").fetchall(), key=str)


def alter(declared: Replication, sql: str) -> None:
    copies = resolve_connection(declared.into)
    assert isinstance(copies, DuckDBConnection)
    with closing(duckdb.connect(copies.path)) as connection:
        connection.execute(sql)


CHANGES = (
    "INSERT INTO things VALUES (3, 3, 'c')",
    "ALTER TABLE things ADD COLUMN colour varchar(20)",
    "INSERT INTO things (id, n, big, colour) VALUES (4, 4, 'd', 'red')",
    "ALTER TABLE things DROP COLUMN big",
    "INSERT INTO things (id, n, colour) VALUES (5, 5, 'blue')",
    "UPDATE things SET n = 22 WHERE id = 2",
)


@pytest.mark.parametrize("mode", ["scd1", "scd2", "append"])
@pytest.mark.parametrize("policy", ["skip", "evolve"])
def test_columns_come_and_go_while_nothing_runs(source: Source, replicate: Replicate, policy: str, mode: str) -> None:
    declared = replicate(mode, policy)
    run(declared)
    for sql in CHANGES:
        source.run(sql)
    run(declared)
    run(declared)
    rows = {
        (1, 1, "a", None),
        (2, 22, "b" if mode == "scd1" else None, None),
        (3, 3, "c", None),
        (4, 4, "d", "red"),
        (5, 5, None, "blue"),
    } | ({(2, 2, "b", None)} if mode == "append" else set())
    if policy == "skip":
        assert mirrored(declared, "id, n, big") == sorted({row[:3] for row in rows}, key=str)
    else:
        assert mirrored(declared, "id, n, big, colour") == sorted(rows, key=str)


def test_a_new_column_can_stop_its_stream_and_a_dropped_one_does_not(source: Source, replicate: Replicate) -> None:
    declared = replicate("scd1", "fail")
    run(declared)
    source.run("ALTER TABLE things DROP COLUMN big")
    source.run("INSERT INTO things VALUES (3, 3)")
    run(declared)
    assert mirrored(declared, "id, n, big") == [(1, 1, "a"), (2, 2, "b"), (3, 3, None)]
    source.run("ALTER TABLE things ADD COLUMN colour varchar(20)")
    source.run("INSERT INTO things VALUES (4, 4, 'red')")
    with pytest.raises(FlowError, match=r"the change has the column 'colour', which main\.things lacks"):
        run(declared)


@pytest.mark.parametrize("policy", ["skip", "evolve"])
def test_types_are_widened_only_where_the_mirror_evolves(source: Source, replicate: Replicate, policy: str) -> None:
    change = "ALTER COLUMN n TYPE" if source.kind == "postgres_cdc" else "MODIFY n"
    source.run(f"ALTER TABLE things {change} int")
    declared = replicate("scd1", policy, "duckdb")
    run(declared)
    source.run(f"ALTER TABLE things {change} bigint")
    source.run("INSERT INTO things VALUES (3, 33, 'c')")
    run(declared)
    source.run(f"ALTER TABLE things {change} smallint")  # what the mirror has is wide enough
    source.run("UPDATE things SET n = 34 WHERE id = 3")
    run(declared)
    assert mirrored(declared, "id, n") == [(1, 1), (2, 2), (3, 34)]
    source.run(f"ALTER TABLE things {change} bigint")
    source.run("INSERT INTO things VALUES (4, 5000000000, 'd')")
    if policy == "skip":
        with pytest.raises(FlowError, match="1 of 1 row does not fit"):
            run(declared)
    else:
        run(declared)
        assert mirrored(declared, "id, n")[-1] == (4, 5000000000)
        source.run(f"ALTER TABLE things {change} varchar(20)")
        source.run("INSERT INTO things VALUES (5, 'x', 'e')")
        with pytest.raises(DriftError, match="'n' is BIGINT") as refused:
            run(declared)
        assert "on_drift" not in str(refused.value)
        assert "change the type in the table" in str(refused.value)
        alter(declared, "ALTER TABLE main.things ALTER n TYPE varchar")
        run(declared)
        assert mirrored(declared, "id, n")[-1] == (5, "x")


class History:
    """Transactions of random changes, and columns that come and go between them."""

    def __init__(self, source: Source, seed: str) -> None:
        self.source = source
        self.random = random.Random(seed)  # noqa: S311 - a test that can be repeated
        self.columns = ["id", "n", "big"]
        self._added = 0

    def transaction(self) -> None:
        """Change some rows, a few of them several times, also their keys; then commit or not."""
        with closing(self.source.connect()) as connection, connection.cursor() as cursor:
            for _ in range(self.random.choice((1, 1, 2, 4, 8))):
                self._change(cursor)
            if self.random.random() < 0.85:
                connection.commit()

    def _change(self, cursor: Any) -> None:
        key, other, value = self.random.randrange(8), self.random.randrange(12), self.random.randrange(1000)
        cursor.execute("SELECT id FROM things")
        there = {row[0] for row in cursor.fetchall()}
        match self.random.choice("iiuuuddkk"):
            case "i" if key not in there:
                cursor.execute("INSERT INTO things (id, n) VALUES (%s, %s)", (key, value))
            case "u":
                name = self.random.choice(["n", *self.columns[3:]])
                cursor.execute(f"UPDATE things SET {name} = %s WHERE id = %s", (value, key))
            case "d":
                cursor.execute("DELETE FROM things WHERE id = %s", (key,))
            case "k" if key in there and other not in there:
                cursor.execute("UPDATE things SET id = %s WHERE id = %s", (other, key))

    def columns_change(self) -> None:
        """Add a column or drop one, mostly neither."""
        match self.random.choice("add.."):
            case "a":
                self._added += 1
                self.columns.append(f"c{self._added}")
                self.source.run(f"ALTER TABLE things ADD COLUMN c{self._added} int")
            case "d" if len(self.columns) > len(("id", "n", "big")):
                name = self.random.choice(self.columns[3:])
                self.columns.remove(name)
                self.source.run(f"ALTER TABLE things DROP COLUMN {name}")


@pytest.mark.parametrize("mode", ["scd1", "scd2"])
@pytest.mark.parametrize("seed", [0, deep(1), deep(2), deep(3)])
def test_a_mirror_has_the_rows_of_its_source_whatever_happens_to_it(
    source: Source, replicate: Replicate, mode: str, seed: int
) -> None:
    if source.kind == "postgres_cdc":
        source.run("ALTER TABLE things REPLICA IDENTITY FULL")
    declared, history = replicate(mode, "evolve"), History(source, f"{mode} {seed}")
    run(declared)
    for _ in range(8):
        for _ in range(3):
            history.transaction()
        history.columns_change()
        history.transaction()
        run(declared)
        names = ", ".join(history.columns)
        assert mirrored(declared, names) == sorted(source.run(f"SELECT {names} FROM things"), key=str)
