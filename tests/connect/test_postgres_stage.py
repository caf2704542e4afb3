"""Staging on PostgreSQL: rows by attempt, rejects, verification and clean-up, on a real server."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest

from ematix_flow.connect.base.session import Split
from ematix_flow.connect.base.stage import StageColumn, StageSpec, WorkTable
from ematix_flow.connect.postgres.database import Postgres
from ematix_flow.connect.types.arrow import REJECTS, staged_schema
from ematix_flow.declare.connection.registry import PostgresConnection
from ematix_flow.declare.table.types import ALL_TYPES, JSON, BigInt, Integer, Numeric, String, Text, Timestamp
from ematix_flow.errors import CommitError, FlowError, RunError, TransientError
from ematix_flow.records import TaskReport
from tests.services.postgres import wait_for_backends

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ematix_flow.connect.postgres.session import PostgresSession

pytestmark = pytest.mark.service

ID = "2b0e3c1a-7c55-4f0e-9c5e-000000000001"
EXTREMES: dict[str, list[Any]] = {
    "small_int": [-(2**15), 2**15 - 1],
    "integer": [-(2**31), 2**31 - 1],
    "big_int": [-(2**63), 2**63 - 1],
    "float": [float("-inf"), 1.5],
    "double": [-1.7976931348623157e308, 5e-324],
    "boolean": [True, False],
    "text": ["", "emoji 🎈 'quote' \\ back\ttab\nline %s ?"],
    "date": [date(1, 1, 1), date(9999, 12, 31)],
    "timestamp": [datetime(1, 1, 1, 0, 0, 0, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)],  # noqa: DTZ001
    "timestamp_tz": [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)],
    "json": ['{"b": 1,  "a": [1, null]}', '"x"'],
    "jsonb": ['{"a": [1, null], "b": 1}', "1.50"],
    "uuid": [ID, ID.replace("1", "f")],
    "bytes": [bytes(range(256)), b""],
    "string": ["ü" * 20, ""],
    "numeric": [Decimal("-" + "9" * 28 + "." + "9" * 10), Decimal("0.0000000001")],
}


@pytest.fixture
def database(postgres_url: str) -> Postgres:
    return Postgres(PostgresConnection("pg", url=postgres_url))


@pytest.fixture
def session(database: Postgres) -> Iterator[PostgresSession]:
    with closing(database.session()) as opened:
        yield opened


def spec_of(*columns: StageColumn, name: str = "stg_1") -> StageSpec:
    return StageSpec(name, staged_schema(columns).serialize().to_pybytes(), columns=columns)


def staged(
    database: Postgres, spec: StageSpec, attempt: int, rows: Sequence[dict[str, Any]], bad: int = 0
) -> TaskReport:
    stager = database.stager(spec, 0, attempt)
    if rows:
        stager.write(pa.RecordBatch.from_pylist(list(rows), schema=staged_schema(spec.columns)))
    if bad:
        reject = {"reason": "why\0", "column_name": "a", "source_position": None, "row_json": "{}"}
        stager.reject(pa.RecordBatch.from_pylist([reject] * bad, schema=REJECTS))
    assert stager.finish() == ("", "")
    return TaskReport(0, attempt, len(rows), bad)


def test_every_type_keeps_its_extremes_through_staging_and_reading(
    database: Postgres, session: PostgresSession
) -> None:
    arguments = {String: (20,), Numeric: (38, 10)}
    columns = [StageColumn(cls.kind, cls(*arguments.get(cls, ()))) for cls in ALL_TYPES]
    spec = database.open_stage(session, spec_of(*columns))
    rows = [{kind: values[index] for kind, values in EXTREMES.items()} for index in (0, 1)]
    rows.append(dict.fromkeys(EXTREMES))
    part = staged(database, spec, 7, rows)
    database.verify_stage(session, spec, [part])
    relation = database.staged_relation(session, spec, [part])
    types = [column.native for column in database.describe(session, f"SELECT * FROM {relation} AS s")]
    assert types == ["TEXT" if c.type.kind == "json" else database.ddl_type(c.type) for c in columns]
    results = [
        row
        for batch in database.read(Split(database._exact(session, f"SELECT * FROM {relation} AS s")))
        for row in batch.to_pylist()
    ]
    assert results == rows


def test_only_the_named_attempt_counts(database: Postgres, session: PostgresSession) -> None:
    spec = database.open_stage(session, spec_of(StageColumn("a", Integer(), in_key=True)))
    staged(database, spec, 1, [{"a": 1}, {"a": 2}])
    part = staged(database, spec, 2, [{"a": 1}, {"a": 2}, {"a": 3}], bad=2)
    database.verify_stage(session, spec, [part])
    relation, rejects = (f(session, spec, [part]) for f in (database.staged_relation, database.reject_relation))
    assert session.query(f"SELECT a FROM {relation} AS s ORDER BY a") == [(1,), (2,), (3,)]
    assert session.query(f"SELECT * FROM {rejects} AS s") == [("why\\0", "a", None, "{}")] * 2
    assert session.query(f"SELECT * FROM {database.staged_relation(session, spec, [])} AS s") == []


def test_an_empty_attempt_needs_no_connection(database: Postgres, session: PostgresSession) -> None:
    spec = database.open_stage(session, spec_of(StageColumn("a", Integer())))
    database.verify_stage(session, spec, [staged(database, spec, 1, [])])


@pytest.mark.parametrize("harm", ["TRUNCATE {rows}", "DELETE FROM {rejects}", "DROP TABLE {rows}, {rejects}"])
def test_staging_that_was_changed_from_outside_is_refused(
    database: Postgres, session: PostgresSession, harm: str
) -> None:
    spec = database.open_stage(session, spec_of(StageColumn("a", Integer())))
    part = staged(database, spec, 1, [{"a": 1}], bad=1)
    database.verify_stage(session, spec, [part])
    session.execute(harm.format(rows="ematix_flow_stage.stg_1", rejects="ematix_flow_stage.stg_1_r"))
    session.begin()
    with pytest.raises(CommitError, match="stg_1"):
        database.verify_stage(session, spec, [part])
    session.rollback()


def test_a_staging_name_is_used_once(database: Postgres, session: PostgresSession) -> None:
    spec = database.open_stage(session, spec_of(StageColumn("a", Integer())))
    with pytest.raises(psycopg.errors.DuplicateTable):
        database.open_stage(session, spec)


def test_an_abandoned_attempt_leaves_nothing(database: Postgres, session: PostgresSession) -> None:
    spec = database.open_stage(session, spec_of(StageColumn("a", Integer())))
    stager = database.stager(spec, 0, 1)
    batch = pa.RecordBatch.from_pylist([{"a": 1}] * 1000, schema=staged_schema(spec.columns))
    for _ in range(5):
        stager.write(batch)
    stager.abandon()
    stager.abandon()
    assert session.query("SELECT count(*) FROM ematix_flow_stage.stg_1") == [(0,)]
    wait_for_backends(session)


def test_rows_that_staging_refuses_are_an_error_in_the_writer(database: Postgres, session: PostgresSession) -> None:
    spec = database.open_stage(session, spec_of(StageColumn("a", String(3))))
    stager = database.stager(spec, 0, 1)
    stager.write(pa.RecordBatch.from_pylist([{"a": "long"}], schema=staged_schema(spec.columns)))
    with pytest.raises(RunError, match="too long"):
        stager.finish()
    stager.abandon()


def test_a_wrong_password_in_a_task_stays_secret(database: Postgres, postgres_url: str) -> None:
    wrong = Postgres(PostgresConnection("pg", url=postgres_url.replace("7Q2x", "wrong-7Q2y")))
    with pytest.raises(FlowError, match="authentication failed") as reading:
        list(wrong.read(Split("SELECT 1")))
    stager = wrong.stager(spec_of(StageColumn("a", Integer())), 0, 1)
    with pytest.raises(FlowError, match="authentication failed") as staging:
        stager.write(pa.RecordBatch.from_pylist([{"a": 1}], schema=pa.schema([("a", pa.int32())])))
    assert "7Q2y" not in f"{reading.value}{staging.value}"


def test_hostile_columns_and_our_own_column_name_are_staged(database: Postgres, session: PostgresSession) -> None:
    names = ("_attempt", "select", 'quo"te', "ünï ✓", "$1 %s ? {x}", "x" * 63, "a;drop table t;--")
    spec = database.open_stage(session, spec_of(*(StageColumn(n, Text(), in_key=True) for n in names), name="s'\"t"))
    rows = [dict.fromkeys(names, str(number)) for number in range(20_000)]
    part = staged(database, spec, 3, rows)
    database.verify_stage(session, spec, [part])
    relation = database.staged_relation(session, spec, [part])
    assert session.query(f'SELECT count(DISTINCT "quo""te"), min(_attempt) FROM {relation} AS s') == [(20_000, "0")]
    assert session.query("SELECT count(*) > 0 FROM pg_stats WHERE schemaname = 'ematix_flow_stage'") == [(True,)]
    assert [name for name, _ in database.stages(session)] == ["s'\"t"]


def test_staging_is_listed_with_its_age_and_dropped_whole(database: Postgres, session: PostgresSession) -> None:
    spec = database.open_stage(session, spec_of(StageColumn("a", Integer())))
    session.execute("CREATE TABLE ematix_flow_stage.foreign_one (a int)")
    ((name, age),) = database.stages(session)
    assert (name, 0 <= age < 60) == ("stg_1", True)
    database.drop_stage(session, StageSpec("stg_1", b""))
    database.drop_stage(session, spec)
    assert list(database.stages(session)) == []
    assert session.query("SELECT relname FROM pg_stat_user_tables") == [("foreign_one",)]


def test_a_task_that_still_holds_its_staging_delays_the_drop(
    database: Postgres, session: PostgresSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ematix_flow.connect.postgres.database.DROP_WAIT", "50ms")
    spec = database.open_stage(session, spec_of(StageColumn("a", Integer())))
    with closing(database.session()) as zombie:
        zombie.begin()
        zombie.execute("INSERT INTO ematix_flow_stage.stg_1 VALUES (1, 1)")
        with pytest.raises(psycopg.Error) as caught:
            database.drop_stage(session, spec)
    assert database.is_transient(caught.value)
    database.drop_stage(session, spec)


def test_work_tables_are_private_and_can_be_made_again(database: Postgres, session: PostgresSession) -> None:
    table = WorkTable("_flow_changes", (StageColumn("id", BigInt()), StageColumn("doc", JSON())), ("id",))
    for _ in range(2):
        name = database.create_work_table(session, table, "x")
        session.execute(f"INSERT INTO {name} VALUES (1, '{{}}')")
    assert session.query(f"SELECT count(DISTINCT doc) FROM {name}") == [(1,)]
    with closing(database.session()) as other, pytest.raises(psycopg.errors.UndefinedTable):
        other.query(f"SELECT * FROM {name}")


def test_rejects_are_json_that_can_be_read_again(database: Postgres, session: PostgresSession) -> None:
    spec = database.open_stage(session, spec_of(StageColumn("a", Integer())))
    stager = database.stager(spec, 0, 1)
    text = json.dumps({"a": "NUL \0 and 🎈"})
    rows = [{"reason": "r", "column_name": "a", "source_position": "f:1", "row_json": text}]
    stager.reject(pa.RecordBatch.from_pylist(rows, schema=REJECTS))
    stager.finish()
    relation = database.reject_relation(session, spec, [TaskReport(0, 1, 0, 1)])
    assert json.loads(session.query(f"SELECT row_json FROM {relation} AS r")[0][0]) == {"a": "NUL \0 and 🎈"}


def test_a_value_that_the_driver_cannot_write_is_no_reason_to_try_again(
    database: Postgres, session: PostgresSession
) -> None:
    spec = database.open_stage(session, spec_of(StageColumn("a", Timestamp())))
    stager = database.stager(spec, 0, 1)
    rows = pa.array([-(2**63)], pa.int64()).cast(pa.timestamp("us"))
    stager.write(pa.RecordBatch.from_arrays([rows], names=["a"]))
    with pytest.raises(RunError, match="beyond what PostgreSQL's types can hold") as caught:
        stager.finish()
    stager.abandon()
    assert not isinstance(caught.value, TransientError)
