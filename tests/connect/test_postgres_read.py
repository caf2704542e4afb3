"""Reading PostgreSQL: values as Arrow, one state for all tasks, and splits by pages, on a real server."""

from __future__ import annotations

from contextlib import closing
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ematix_flow.connect.base.session import Split
from ematix_flow.connect.base.stage import FAILED
from ematix_flow.connect.postgres import splits as postgres_splits
from ematix_flow.connect.postgres.database import Postgres
from ematix_flow.declare.connection.registry import PostgresConnection
from ematix_flow.errors import RunError, TransientError
from tests.crash.harness import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.postgres.session import PostgresSession

pytestmark = pytest.mark.service

ID = "2b0e3c1a-7c55-4f0e-9c5e-000000000001"


@pytest.fixture
def database(postgres_url: str) -> Postgres:
    return Postgres(PostgresConnection("pg", url=postgres_url))


@pytest.fixture
def session(database: Postgres) -> Iterator[PostgresSession]:
    with closing(database.session()) as opened:
        yield opened


def read_all(database: Postgres, session: PostgresSession, sql: str, parallel: int = 1) -> tuple[int, list[Any]]:
    opened = database.open_read(session, sql, parallel)
    assert opened.resources is not None
    with opened.resources:
        batches = [batch for split in opened.splits for batch in database.read(split)]
    return len(opened.splits), [row for batch in batches for row in batch.to_pylist()]


def test_not_a_number_is_a_float_like_others(database: Postgres, session: PostgresSession) -> None:
    _, rows = read_all(database, session, "SELECT 'NaN'::float8::text AS a, 'NaN'::float8 AS b, '-inf'::float4 AS c")
    assert str(rows) == "[{'a': 'NaN', 'b': nan, 'c': -inf}]"


def test_what_only_postgresql_knows_travels_as_text(database: Postgres, session: PostgresSession) -> None:
    session.execute("CREATE TYPE mood AS ENUM ('ok')")
    sql = (
        "SELECT 'ok'::mood a, '{1,NULL}'::int[] b, interval '1 mon' c, '1.2.3.4'::inet d, time '10:00' e, "
        f"'{ID}'::uuid f, '{{\"k\": 1}}'::jsonb g, 'x'::char(3) h, 4294967295::oid i, row(1, 'x') j, 1.5::money k"
    )
    _, rows = read_all(database, session, sql)
    assert list(rows[0].values()) == [
        "ok", "{1,NULL}", "1 mon", "1.2.3.4/32", "10:00:00", ID, '{"k": 1}', "x", 4294967295, "(1,x)", "$1.50",
    ]  # fmt: skip


def test_infinite_dates_are_marked_and_never_bent(database: Postgres, session: PostgresSession) -> None:
    sql = (
        "SELECT * FROM (VALUES (1, date 'infinity', now()), (2, date '2024-01-01', timestamptz '-infinity'), "
        "(3, date '0044-03-15 BC', NULL), (4, NULL, timestamptz '1000-01-01')) AS v(id, d, t)"
    )
    opened = database.open_read(session, sql, 1)
    assert opened.resources is not None
    with opened.resources:
        (batch,) = database.read(opened.splits[0])
    failures = batch.column(FAILED).to_pylist()
    assert [failure and failure.split(":")[0] for failure in failures] == ["d", "t", None, None]
    assert batch.column("d").null_count == 2
    _, rows = read_all(database, session, "SELECT date '2024-01-01' AS d")
    assert rows == [{"d": date(2024, 1, 1)}]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.decimals(allow_infinity=False, places=12, min_value=-(10**25), max_value=10**25) | st.just(Decimal("NaN")),
        min_size=1,
    )
)
def test_decimals_are_read_to_the_last_digit(database: Postgres, values: list[Decimal]) -> None:
    listed = ", ".join(f"('{value}'::numeric)" for value in values)
    texts = [
        row["v"]
        for batch in database.read(Split(f"SELECT v FROM (VALUES {listed}) AS t(v)"))
        for row in batch.to_pylist()
    ]
    assert [str(Decimal(text)) for text in texts] == [str(value) for value in values]


def test_sized_decimals_arrive_as_decimals(database: Postgres, session: PostgresSession) -> None:
    _, rows = read_all(database, session, "SELECT (-12.5)::numeric(38,10) a, 3::numeric(40,1) b, 'NaN'::numeric(5,2) c")
    assert rows == [{"a": Decimal("-12.5000000000"), "b": "3.0", "c": "nan"}]


def test_a_read_sees_one_state_however_late_its_tasks_are(database: Postgres, session: PostgresSession) -> None:
    session.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    opened = database.open_read(session, "SELECT a FROM t", 1)
    session.execute("INSERT INTO t VALUES (2); UPDATE t SET a = 9")
    assert opened.resources is not None
    with opened.resources:
        for _ in range(2):
            assert [b.to_pylist() for b in database.read(opened.splits[0])] == [[{"a": 1}]]
        session.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            session.execute("ALTER TABLE t DROP COLUMN a")
    with pytest.raises(TransientError, match="snapshot"):
        list(database.read(opened.splits[0]))


def test_several_queries_are_read_in_one_state(database: Postgres, session: PostgresSession) -> None:
    session.execute("CREATE TABLE orders AS SELECT 1 AS id")
    session.execute("CREATE TABLE lines AS SELECT 1 AS order_id")
    reads = database.open_reads(session, ["SELECT id FROM orders", "SELECT order_id AS id FROM lines"], 2)
    assert [read.resources is not None for read in reads] == [True, False]
    session.execute("INSERT INTO orders VALUES (2)")
    session.execute("INSERT INTO lines VALUES (2)")
    snapshot_stack = reads[0].resources
    assert snapshot_stack is not None
    with snapshot_stack:
        rows_of_reads = [
            [r for split in read.splits for b in database.read(split) for r in b.to_pylist()] for read in reads
        ]
    assert rows_of_reads == [[{"id": 1}], [{"id": 1}]]
    assert len({split.snapshot for read in reads for split in read.splits}) == 1


def test_a_reader_that_stops_early_leaves_no_connection(database: Postgres, session: PostgresSession) -> None:
    reader = database.read(Split("SELECT g, repeat('x', 500) AS x FROM generate_series(1, 200000) AS g"))
    assert next(reader).num_rows < 200_000
    reader.close()  # type: ignore[attr-defined]
    busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active'"
    # A server that is busy takes a moment to see that its connection is gone.
    wait_until(lambda: session.query(busy) == [(1,)])


@pytest.mark.parametrize("sql", ["SELECT nothing", "SELECT 1 / (1000 - g) AS x FROM generate_series(1, 2000) AS g"])
def test_a_query_that_fails_says_why(database: Postgres, sql: str) -> None:
    with pytest.raises(RunError, match=r"does not exist|division by zero") as caught:
        list(database.read(Split(sql)))
    assert not isinstance(caught.value, TransientError)


def test_a_killed_reader_is_transient(database: Postgres, session: PostgresSession) -> None:
    reader = database.read(Split("SELECT g, repeat('x', 500) AS x FROM generate_series(1, 500000) AS g"))
    next(reader)
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    session.query(f"SELECT pg_terminate_backend(pid) {others}")
    with pytest.raises(TransientError):
        list(reader)


# Splits


@pytest.fixture
def pages(session: PostgresSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_splits, "MIN_PAGES", 1)
    session.execute(
        'CREATE SCHEMA "my s"; CREATE TABLE "my s"."T ""x" (id int PRIMARY KEY, v text, n int);'
        'INSERT INTO "my s"."T ""x" SELECT g, repeat(\'v\', 200), g % 10 FROM generate_series(1, 3000) AS g;'
        'CREATE VIEW big AS SELECT * FROM "my s"."T ""x"; CREATE TABLE plain AS SELECT * FROM big;'
        "CREATE TABLE parent AS SELECT * FROM big; CREATE TABLE child () INHERITS (parent);"
        "CREATE TABLE cut (id int, v text, n int) PARTITION BY RANGE (id);"
        "CREATE TABLE cut_low PARTITION OF cut FOR VALUES FROM (0) TO (1000);"
        "CREATE TABLE cut_high PARTITION OF cut FOR VALUES FROM (1000) TO (9000) PARTITION BY RANGE (id);"
        "CREATE TABLE cut_mid PARTITION OF cut_high FOR VALUES FROM (1000) TO (2990);"
        "CREATE TABLE cut_few PARTITION OF cut_high DEFAULT; CREATE TABLE cut_none PARTITION OF cut DEFAULT;"
        "INSERT INTO cut SELECT * FROM big;"
        "CREATE TABLE mixed (id int, n int) PARTITION BY LIST (n); CREATE TABLE mixed_1 PARTITION OF mixed FOR VALUES IN (1);"
        "CREATE EXTENSION IF NOT EXISTS file_fdw; CREATE SERVER IF NOT EXISTS files FOREIGN DATA WRAPPER file_fdw;"
        "CREATE FOREIGN TABLE mixed_2 PARTITION OF mixed FOR VALUES IN (2) SERVER files OPTIONS (filename '/dev/null');"
        "INSERT INTO mixed SELECT g, 1 FROM generate_series(1, 3000) AS g;"
        "CREATE AGGREGATE odd_sum (int) (SFUNC = int4pl, STYPE = int, INITCOND = '0')"
    )


@pytest.mark.parametrize(
    "sql",
    [
        'SELECT id FROM "my s"."T ""x" WHERE n > 3',
        "SELECT plain.id FROM plain WHERE plain.n > 3 ORDER BY 1 -- plain",
        "SELECT p.id FROM public.plain AS p WHERE n > 3",
        "WITH _src_user AS (SELECT * FROM plain), up AS (SELECT id, n FROM _src_user) SELECT id FROM up WHERE n > 3",
        "SELECT CAST(id AS TEXT)::int AS id FROM (SELECT * FROM plain WHERE n > 3 AND v <> 'plain') AS x",
        "SELECT id FROM parent WHERE n > 3",
        "SELECT id FROM cut WHERE n > 3",
        "SELECT id FROM (SELECT * FROM cut AS c ORDER BY id) AS x WHERE n > 3",
    ],
)
@pytest.mark.usefixtures("pages")
def test_the_parts_of_a_simple_query_are_the_whole(database: Postgres, session: PostgresSession, sql: str) -> None:
    expected = sorted(row[0] for row in session.query(sql))
    count, rows = read_all(database, session, sql, parallel=4)
    assert count == 4
    assert sorted(row["id"] for row in rows) == expected
    assert len(expected) == 1800


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) AS id FROM plain",
        "SELECT odd_sum(n) AS id FROM plain",
        "SELECT DISTINCT n AS id FROM plain",
        "SELECT id FROM plain ORDER BY id LIMIT 10",
        "SELECT row_number() OVER (ORDER BY id) AS id FROM plain",
        "SELECT p.id FROM plain AS p JOIN child AS c USING (id)",
        "SELECT id FROM plain UNION ALL SELECT 1",
        "SELECT id FROM cut UNION ALL SELECT unnest(ARRAY[1, 2])",
        "SELECT id FROM plain UNION ALL VALUES (1), (2)",
        "SELECT id FROM plain UNION ALL SELECT x FROM (SELECT 1 AS x OFFSET 0) AS y WHERE x > 0",
        "WITH w AS (SELECT id FROM plain) SELECT a.id FROM w AS a JOIN w AS b ON a.id = b.id",
        "SELECT id FROM big",
        "SELECT id FROM mixed",
        "SELECT count(*) AS id FROM cut GROUP BY n",
        "SELECT id, ctid FROM plain",
        "SELECT id FROM plain WHERE id = 17 AND n = (SELECT max(n) FROM plain)",
        "SELECT g AS id FROM generate_series(1, 5) AS g",
        "SELECT id FROM plain, unnest(ARRAY[1, 2]) AS u",
        "SELECT id FROM plain TABLESAMPLE SYSTEM (100)",
    ],
)
@pytest.mark.usefixtures("pages")
def test_anything_else_is_read_whole(database: Postgres, session: PostgresSession, sql: str) -> None:
    expected = sorted(row[0] for row in session.query(sql))
    count, rows = read_all(database, session, sql, parallel=4)
    assert count == 1
    assert sorted(row["id"] for row in rows) == expected


@pytest.mark.usefixtures("pages")
def test_a_partition_that_comes_meanwhile_is_in_no_part(database: Postgres, session: PostgresSession) -> None:
    session.execute("DROP TABLE cut_few, cut_none; CREATE TABLE late AS SELECT id + 9000 AS id, v, n FROM big")
    opened = database.open_read(session, "SELECT id FROM cut", 4)
    assert opened.resources is not None
    with opened.resources:
        results = [list(database.read(split)) for split in opened.splits[:2]]
        session.execute("ALTER TABLE cut ATTACH PARTITION late FOR VALUES FROM (9000) TO (99000)")
        results += [list(database.read(split)) for split in opened.splits[2:]]
    assert len(results) == 4
    ids = sorted(row["id"] for batches in results for batch in batches for row in batch.to_pylist())
    assert ids == list(range(1, 2990))


@pytest.mark.usefixtures("pages")
def test_large_parts_are_cut_again_and_small_tables_are_not_cut(
    database: Postgres, session: PostgresSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = "SELECT id FROM plain"
    pages = session.query("SELECT pg_relation_size('plain') / 8192")[0][0]
    monkeypatch.setattr(postgres_splits, "SPLIT_PAGES", 10)
    count, rows = read_all(database, session, sql, parallel=2)
    assert count == -(-pages // 10) > 2
    assert sorted(row["id"] for row in rows) == list(range(1, 3001))
    monkeypatch.setattr(postgres_splits, "MIN_PAGES", pages)
    assert read_all(database, session, sql, parallel=64)[0] == 1


def test_free_connections_are_what_server_database_and_role_leave(
    database: Postgres, session: PostgresSession, postgres_url: str
) -> None:
    name = session.query("SELECT current_database()")[0][0]
    assert session.free_connections() <= 300, "the limit of the server"
    session.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT 9')
    assert session.free_connections() == 8
    with closing(database.session()):
        assert session.free_connections() == 7
    session.execute("CREATE ROLE few LOGIN PASSWORD 'few' CONNECTION LIMIT 3")
    try:
        address = urlsplit(postgres_url)
        url = address._replace(netloc=f"few:few@{address.hostname}:{address.port}").geturl()
        with closing(Postgres(PostgresConnection("few", url=url)).session()) as limited:
            assert limited.free_connections() == 2
    finally:
        session.execute("DROP ROLE few")
