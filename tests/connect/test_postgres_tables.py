"""PostgreSQL's tables and types as loads see them: created, found, widened and described, on a real server."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from ematix_flow.connect.base.columns import TableName
from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.connect.postgres.database import Postgres
from ematix_flow.declare.connection.registry import PostgresConnection
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import ALL_TYPES, BigInt, Integer, Numeric, String, Text
from ematix_flow.plan.sql.ddl import create_table_sql, differences, table_definition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.postgres.session import PostgresSession

pytestmark = pytest.mark.service

HOSTILE = ("select", "Mixed Case", 'quo"te', "ünïcode ✓", "$1 %s ? {x}", "x" * 63, "a;drop table t;--", "new\nline")


@pytest.fixture
def database(postgres_url: str) -> Postgres:
    return Postgres(PostgresConnection("pg", url=postgres_url))


@pytest.fixture
def session(database: Postgres) -> Iterator[PostgresSession]:
    with closing(database.session()) as opened:
        yield opened


def every_type() -> list[Column]:
    arguments = {String: (20,), Numeric: (38, 10)}
    return [Column(cls(*arguments.get(cls, ())), name=cls.kind) for cls in ALL_TYPES]


@pytest.mark.parametrize("mode", ["append", "scd2"])
def test_a_table_just_created_differs_in_nothing(database: Postgres, session: PostgresSession, mode: str) -> None:
    columns = (Column(BigInt(), primary_key=True, nullable=False, name="id"), *every_type())
    table = Table("my schema", 'the "table"', columns, unique_constraints=(("text", "integer"),))
    definition = table_definition(table, mode, database)
    database.create_schema(session, "my schema")
    session.execute(create_table_sql(definition, database))
    existing = database.find_table(session, TableName("my schema", 'the "table"'))
    assert existing is not None
    assert not existing.problem
    assert differences(definition, existing, database) == ()


def test_hostile_names_come_back_as_they_were(database: Postgres, session: PostgresSession) -> None:
    columns = tuple(Column(Integer(), primary_key=name == "select", name=name) for name in HOSTILE)
    definition = table_definition(Table("s; --", HOSTILE[2], columns), "append", database)
    database.create_schema(session, "s; --")
    session.execute(create_table_sql(definition, database))
    existing = database.find_table(session, definition.place)
    assert existing is not None
    assert [column.name for column in existing.columns][: len(HOSTILE)] == list(HOSTILE)


def test_keys_are_found_in_order_and_only_those_that_hold_for_all_rows(
    database: Postgres, session: PostgresSession
) -> None:
    session.execute(
        "CREATE TABLE t (a int, b int, c int NOT NULL, d tsvector, e timestamp(3), PRIMARY KEY (b, a), UNIQUE (c));"
        "CREATE UNIQUE INDEX ON t (a, c) INCLUDE (e); CREATE UNIQUE INDEX ON t (a) WHERE b > 0;"
        "CREATE UNIQUE INDEX ON t ((a + b)); ALTER TABLE t DROP COLUMN d; ALTER TABLE t ADD d inet"
    )
    existing = database.find_table(session, TableName("public", "t"))
    assert existing is not None
    assert existing.primary_key == ("b", "a")
    assert sorted(existing.unique) == [("a", "c"), ("c",)]
    assert [(c.name, c.type, c.nullable) for c in existing.columns] == [
        ("a", "INTEGER", False), ("b", "INTEGER", False), ("c", "INTEGER", False),
        ("e", "TIMESTAMP(3)", True), ("d", "inet", True),
    ]  # fmt: skip


def test_tables_that_cannot_be_loaded_safely_say_why(database: Postgres, session: PostgresSession) -> None:
    session.execute("CREATE UNLOGGED TABLE u (a int); CREATE VIEW v AS SELECT 1 AS a")
    problems = [database.find_table(session, TableName("public", name)) for name in ("u", "v")]
    assert ["UNLOGGED" in p.problem or "view" in p.problem for p in problems if p] == [True, True]
    assert database.find_table(session, TableName("nowhere", "t")) is None


@pytest.mark.parametrize(
    ("existing_type", "declared_type", "possible"),
    [
        ("SMALLINT", "BIGINT", True),
        ("BIGINT", "INTEGER", False),
        ("INTEGER", "NUMERIC(12,2)", True),
        ("BIGINT", "NUMERIC(12,2)", False),
        ("REAL", "DOUBLE PRECISION", True),
        ("NUMERIC(10,2)", "NUMERIC(12,4)", True),
        ("NUMERIC(10,2)", "NUMERIC(10,4)", False),
        ("VARCHAR(10)", "VARCHAR(20)", True),
        ("VARCHAR(20)", "VARCHAR(10)", False),
        ("VARCHAR(20)", "TEXT", True),
        ("TEXT", "VARCHAR(20)", False),
        ("JSON", "JSONB", False),
    ],
)
def test_widening_loses_nothing(
    database: Postgres, session: PostgresSession, existing_type: str, declared_type: str, possible: bool
) -> None:
    assert database.widening(existing_type, declared_type) is possible
    if possible:
        session.execute(f"CREATE TABLE t (a {existing_type})")
        session.execute(database.alter_type_sql("t", "a", declared_type, nullable=True))
        table = database.find_table(session, TableName("public", "t"))
        assert table is not None
        assert database.same_type(table.columns[0].type, declared_type)


def test_two_sessions_may_create_the_same_schema(database: Postgres) -> None:
    def create() -> None:
        with closing(database.session()) as session:
            database.create_schema(session, "same")

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with closing(database.session()) as session:
        assert session.query("SELECT count(*) FROM pg_namespace WHERE nspname = 'same'") == [(1,)]


# Descriptions


def test_every_type_has_a_family(database: Postgres, session: PostgresSession) -> None:
    session.execute("CREATE TYPE mood AS ENUM ('a'); CREATE DOMAIN positive AS int CHECK (value > 0)")
    sql = (
        "SELECT 1::int2 a, 1::int8 b, 1::numeric(9,2) c, 1::float4 d, true e, 'x'::text f, 'x'::varchar(3) g, "
        "'x'::char(3) h, date '2020-01-01' i, now()::timestamp j, now() k, ''::bytea l, '{}'::json m, '{}'::jsonb n, "
        "gen_random_uuid() o, 'a'::mood p, 1::positive q, ARRAY[1] r, interval '1 day' s, 1::oid t -- the end"
    )
    families = [column.family for column in database.describe(session, sql)]
    assert families == [
        "integer", "integer", "decimal", "float", "boolean", "text", "text", "text", "date", "timestamp",
        "timestamp_tz", "binary", "json", "json", "uuid", "other", "integer", "other", "other", "integer",
    ]  # fmt: skip


def test_describing_runs_nothing(database: Postgres, session: PostgresSession) -> None:
    session.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (0)")
    assert database.describe(session, "SELECT 1 / a AS x, count(*) AS n FROM t GROUP BY 1")[1].native == "BIGINT"


def test_keys_need_no_other_type(database: Postgres) -> None:
    for column in (StageColumn("a", Text()), StageColumn("a", Text(), in_key=True)):
        assert database.ddl_type(column.type, in_key=column.in_key) == "TEXT"
