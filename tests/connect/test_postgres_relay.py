"""Rows passed from PostgreSQL to PostgreSQL as bytes: the same as through Arrow, or not at all."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ematix_flow.connect.base.session import Split
from ematix_flow.connect.base.stage import StageColumn, StageSpec
from ematix_flow.connect.postgres.database import Postgres
from ematix_flow.connect.types.arrow import staged_schema
from ematix_flow.declare.connection.registry import PostgresConnection
from ematix_flow.declare.table.types import ALL_TYPES, BigInt, Numeric, String, Text
from ematix_flow.errors import RunError, TransientError
from ematix_flow.records import TaskReport
from ematix_flow.run.stage.conform import Rules
from ematix_flow.run.stage.tasks import StageWork, stage_split
from tests.services.postgres import wait_for_backends

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.postgres.session import PostgresSession

pytestmark = pytest.mark.service


@pytest.fixture
def database(postgres_url: str) -> Postgres:
    return Postgres(PostgresConnection("pg", url=postgres_url))


@pytest.fixture
def session(database: Postgres) -> Iterator[PostgresSession]:
    with closing(database.session()) as opened:
        yield opened


def spec_of(*columns: StageColumn) -> StageSpec:
    return StageSpec("stg_1", staged_schema(columns).serialize().to_pybytes(), columns=columns)


def test_every_type_arrives_as_it_was(database: Postgres, session: PostgresSession) -> None:
    arguments = {String: (20,), Numeric: (38, 10)}
    columns = [StageColumn(f"{cls.kind} ✓", cls(*arguments.get(cls, ()))) for cls in ALL_TYPES]
    listed = ", ".join(f'"{c.name}" {database.ddl_type(c.type)}' for c in columns)
    session.execute(f"CREATE TABLE t ({listed})")
    session.execute(
        "INSERT INTO t SELECT (g % 9)::int2, g, g, 'NaN', 0.1::float8 * g, g % 2 = 0, 'text 🎈 ' || g, 'infinity', "
        "timestamp '0001-01-01' + g * interval '1 us', '-infinity', '{\"a\":  1}', '{\"b\": 2}', gen_random_uuid(), "
        "sha256(g::text::bytea), 'ü', g / 7.0 FROM generate_series(1, 5000) AS g;"
        "INSERT INTO t DEFAULT VALUES"
    )
    spec = database.open_stage(session, spec_of(*columns))
    opened = database.open_read(session, "SELECT * FROM t", 1)
    assert opened.resources is not None
    with opened.resources:
        (split,) = opened.splits
        assert database.relays(database, session, split, spec)
        part = TaskReport(0, 4, database.relay(database, split, spec, 4, lambda _: None))
    assert part.rows == 5001
    database.verify_stage(session, spec, [part])
    relation = database.staged_relation(session, spec, [part])
    names = ", ".join(f'CAST("{c.name}" AS TEXT)' for c in columns)
    missing = f"SELECT {names} FROM t EXCEPT ALL SELECT {names} FROM {relation} AS s"
    assert session.query(missing) == []


def test_a_relay_reads_the_snapshot(database: Postgres, session: PostgresSession) -> None:
    session.execute("CREATE TABLE t (id int); INSERT INTO t VALUES (1)")
    spec = database.open_stage(session, spec_of(StageColumn("id", BigInt())))
    opened = database.open_read(session, "SELECT id FROM t", 1)
    session.execute("INSERT INTO t VALUES (2)")
    assert opened.resources is not None
    with opened.resources:
        assert database.relay(database, opened.splits[0], spec, 1, lambda _: None) == 1
    wait_for_backends(session)
    with pytest.raises(TransientError, match="snapshot"):
        database.relay(database, opened.splits[0], spec, 2, lambda _: None)
    assert session.query('SELECT id, "_attempt" FROM ematix_flow_stage.stg_1') == [(1, 1)]


@pytest.mark.parametrize(
    ("sql", "column", "possible"),
    [
        ("SELECT 1::int AS a", StageColumn("a", BigInt()), True),
        ("SELECT 1::bigint AS a -- end", StageColumn("a", BigInt()), True),
        ("SELECT 'x'::varchar(3) AS a", StageColumn("a", Text()), True),
        ("SELECT 1::numeric(5,1) AS a", StageColumn("a", Numeric(9, 2)), True),
        ("SELECT 1::numeric AS a", StageColumn("a", Numeric(9, 2)), False),
        ("SELECT 'xyz'::text AS a", StageColumn("a", String(3)), True),
        ("SELECT 'xyz'::varchar(9) AS a", StageColumn("a", String(3)), True),
        ("SELECT 'xyz'::char(3) AS a", StageColumn("a", String(3)), False),
        ("SELECT 1::bigint AS b", StageColumn("a", BigInt()), False),
        ("SELECT 1::bigint AS a, 'why' AS _flow_failed", StageColumn("a", BigInt()), False),
    ],
)
def test_only_types_that_lose_nothing_are_passed_on(
    database: Postgres, session: PostgresSession, sql: str, column: StageColumn, possible: bool
) -> None:
    spec = database.open_stage(session, spec_of(column))
    assert database.relays(database, session, Split(sql), spec) is possible
    if possible:
        assert database.relay(database, Split(sql), spec, 1, lambda _: None) == 1
    else:
        with pytest.raises(RunError, match="columns changed"):
            database.relay(database, Split(sql), spec, 1, lambda _: None)


def test_a_relay_that_breaks_leaves_nothing(database: Postgres, session: PostgresSession) -> None:
    spec = database.open_stage(session, spec_of(StageColumn("a", BigInt())))
    split = Split("SELECT 1 / (90000 - g) AS a FROM generate_series(1, 100000) AS g")
    with pytest.raises(RunError, match="division by zero") as caught:
        database.relay(database, split, spec, 1, lambda _: None)
    assert not isinstance(caught.value, TransientError)
    assert session.query("SELECT count(*) FROM ematix_flow_stage.stg_1") == [(0,)]
    wait_for_backends(session)


def test_a_row_that_staging_refuses_is_found_by_reading(database: Postgres, session: PostgresSession) -> None:
    columns = (StageColumn("id", BigInt(), in_key=True), StageColumn("name", Text()))
    spec = database.open_stage(session, replace(spec_of(*columns), required=frozenset({"id", "name"})))
    split = Split("SELECT g::bigint AS id, CASE WHEN g <> 7 THEN 'x' END AS name FROM generate_series(1, 9) AS g")
    assert database.relays(database, session, split, spec)
    work = StageWork(database, spec, Rules(columns, spec.required))
    part = stage_split(work, database, split, (0, 0), relayed=True)
    assert (part.rows, part.rejected) == (8, 1)
    assert part.first_reject.startswith("name: is NULL but the column is NOT NULL")
    database.verify_stage(session, spec, [part])


@pytest.mark.parametrize("text", ["abcd", "abc ", "üüüü"])
def test_a_text_that_is_too_long_is_refused_and_never_cut(
    database: Postgres, session: PostgresSession, text: str
) -> None:
    columns = (StageColumn("a", String(3)),)
    spec = database.open_stage(session, spec_of(*columns))
    split = Split(f"SELECT a::text FROM (VALUES ('ok'), ('{text}'), (NULL)) AS v(a)")
    work = StageWork(database, spec, Rules(columns, frozenset()))
    part = stage_split(work, database, split, (0, 0), relayed=database.relays(database, session, split, spec))
    assert (part.rows, part.rejected) == (2, 1)
    assert part.first_reject.startswith("a: is longer than 3 characters")
