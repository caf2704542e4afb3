"""MySQL: an attempt is staged whole or not at all, and only named attempts count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pymysql
import pytest

from ematix_flow import failpoints
from ematix_flow import types as t
from ematix_flow.connect.base.stage import StageColumn, StageSpec, WorkTable
from ematix_flow.connect.mysql import stager as mysql_stage
from ematix_flow.connect.mysql.database import MySQL
from ematix_flow.connect.types.arrow import REJECTS, staged_schema
from ematix_flow.declare.connection.registry import MySQLConnection
from ematix_flow.errors import CommitError, RunError
from ematix_flow.records import TaskReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ematix_flow.connect.base.stage import Stager
    from ematix_flow.connect.mysql.session import MySQLSession
    from tests.services.mariadb import MariaDBServer

pytestmark = pytest.mark.service

COLUMNS = (StageColumn("id", t.BigInt(), in_key=True), StageColumn("na`me", t.String(10), in_key=True))
SCHEMA = staged_schema(COLUMNS)
SPEC = StageSpec("flow stage`1", SCHEMA.serialize().to_pybytes(), columns=COLUMNS)


@pytest.fixture
def database(mysql_url: str) -> MySQL:
    return MySQL(MySQLConnection("shop", url=mysql_url))


@pytest.fixture
def session(database: MySQL) -> Iterator[MySQLSession]:
    session = database.session()
    yield session
    session.close()


def rows(*ids: int, name: str = "x") -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(ids, pa.int64()), pa.array([name] * len(ids))], schema=SCHEMA)


def rejects(*reasons: str) -> pa.RecordBatch:
    columns = [list(reasons), ["id"] * len(reasons), [None] * len(reasons), ["{}"] * len(reasons)]
    return pa.RecordBatch.from_arrays([pa.array(c, pa.string()) for c in columns], schema=REJECTS)


def staged(stager: Stager, *batches: pa.RecordBatch) -> None:
    for batch in batches:
        stager.write(batch)
    assert stager.finish() == ("", "")


def loaded(database: MySQL, session: MySQLSession, parts: Sequence[TaskReport], spec: StageSpec = SPEC) -> list[Any]:
    relation = database.staged_relation(session, spec, parts)
    return [row[0] for row in session.query(f"SELECT s.id FROM {relation} AS s ORDER BY s.id")]


def test_only_the_named_attempt_of_a_partition_counts(database: MySQL, session: MySQLSession) -> None:
    spec = database.open_stage(session, SPEC)
    staged(database.stager(spec, 0, 0), rows(1, 2), rows(3))
    staged(database.stager(spec, 0, 4), rows(1, 2, 3))
    staged(database.stager(spec, 1, 2), rows(4))
    staged(database.stager(spec, 2, 3))
    parts = [TaskReport(0, 4, 3), TaskReport(1, 2, 1), TaskReport(2, 3, 0)]
    database.verify_stage(session, spec, parts)
    assert loaded(database, session, parts) == [1, 2, 3, 4]
    assert loaded(database, session, []) == []


def test_staging_that_was_changed_from_outside_is_refused(database: MySQL, session: MySQLSession) -> None:
    spec = database.open_stage(session, SPEC)
    staged(database.stager(spec, 0, 1), rows(1, 2))
    for parts in ([TaskReport(0, 1, 3)], [TaskReport(0, 1, 2, rejected=1)], [TaskReport(0, 1, 2), TaskReport(1, 9, 1)]):
        with pytest.raises(CommitError, match="changed from outside"):
            database.verify_stage(session, spec, parts)
    session.execute("DELETE FROM `flow stage``1`")
    with pytest.raises(CommitError, match="has 0 rows and 0 rejects of partition 0, 2 and 0 were staged"):
        database.verify_stage(session, spec, [TaskReport(0, 1, 2)])
    database.drop_stage(session, spec)
    with pytest.raises(CommitError, match="is gone"):
        database.verify_stage(session, spec, [TaskReport(0, 1, 2)])


def test_a_name_that_is_taken_is_an_error(database: MySQL, session: MySQLSession) -> None:
    database.open_stage(session, SPEC)
    with pytest.raises(pymysql.Error, match="already exists"):
        database.open_stage(session, SPEC)


def test_rows_and_rejects_may_take_turns(database: MySQL, session: MySQLSession) -> None:
    spec = database.open_stage(session, SPEC)
    stager = database.stager(spec, 0, 8)
    for number in range(4):
        stager.write(rows(number, number + 10))
        stager.reject(rejects(f"bad {number}\t\\"))
    stager.finish()
    other = database.stager(spec, 1, 9)
    other.reject(rejects("of another partition"))
    other.finish()
    parts = [TaskReport(0, 8, 8, rejected=4)]
    database.verify_stage(session, spec, parts)
    relation = database.reject_relation(session, spec, parts)
    stored_rows = session.query(
        f"SELECT reason, column_name, source_position, row_json FROM {relation} AS r ORDER BY 1"
    )
    assert stored_rows == [(f"bad {number}\t\\", "id", None, "{}") for number in range(4)]


@pytest.mark.parametrize("end", ["abandon", "failpoint", "connection"])
def test_an_attempt_that_did_not_finish_leaves_no_row(database: MySQL, session: MySQLSession, end: str) -> None:
    spec = database.open_stage(session, SPEC)
    stager = database.stager(spec, 0, 1)
    stager.write(rows(1, 2))
    if end == "failpoint":
        failpoints.arm("stage.before_task_commit=raise")
        with pytest.raises(failpoints.FailpointError):
            stager.finish()
        failpoints.arm("")
    if end == "connection":
        mine = session.query("SELECT CONNECTION_ID()")[0][0]
        own = "SELECT id FROM information_schema.processlist WHERE id <> ? AND db = DATABASE()"
        for (number,) in session.query(own, (mine,)):
            session.execute(f"KILL {number}")
        with pytest.raises(pymysql.Error) as caught:
            stager.finish()
        assert database.is_transient(caught.value)
    stager.abandon()
    with pytest.raises(CommitError):
        database.verify_stage(session, spec, [TaskReport(0, 1, 2)])
    assert loaded(database, session, [TaskReport(0, 1, 2)]) == []


@pytest.mark.parametrize(
    ("kind", "value"),
    [(t.String(3), "four"), (t.JSON(), "{no json"), (t.Text(), "x" * 300), (t.Numeric(38, 2), "1" * 40)],
)
def test_what_the_column_cannot_hold_is_an_error_not_a_warning(
    database: MySQL, session: MySQLSession, kind: t.ColumnType, value: str
) -> None:
    columns = (StageColumn("v", kind, in_key=kind.kind == "text"),)
    schema = pa.schema([pa.field("v", pa.string())])
    spec = database.open_stage(session, StageSpec("strict", schema.serialize().to_pybytes(), columns=columns))
    stager = database.stager(spec, 0, 1)
    stager.write(pa.RecordBatch.from_arrays([pa.array([value])], schema=schema))
    with pytest.raises(RunError, match=r"could not store the rows as they are: .*v"):
        stager.finish()
    stager.abandon()
    assert session.query("SELECT COUNT(*) FROM `strict`") == [(0,)]


def test_a_server_that_refuses_local_files_gets_statements(
    database: MySQL, session: MySQLSession, mysql_server: MariaDBServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql_stage, "INSERT_BYTES", 200)
    spec = database.open_stage(session, SPEC)
    mysql_server.execute("SET GLOBAL local_infile = 0")
    try:
        stager = database.stager(spec, 0, 1)
        stager.write(rows(*range(100), name="it's \\"))
        stager.write(rows(*range(100, 150)))
        stager.reject(rejects("r" * 1000, "b"))
        stager.finish()
    finally:
        mysql_server.execute("SET GLOBAL local_infile = 1")
    parts = [TaskReport(0, 1, 150, rejected=2)]
    database.verify_stage(session, spec, parts)
    assert loaded(database, session, parts) == list(range(150))
    assert session.query("SELECT DISTINCT `na``me` FROM `flow stage``1` ORDER BY 1") == [("it's \\",), ("x",)]


def test_two_attempts_stage_at_the_same_time(database: MySQL, session: MySQLSession) -> None:
    spec = database.open_stage(session, SPEC)
    first, second = database.stager(spec, 0, 1), database.stager(spec, 1, 2)
    for number in range(3):
        first.write(rows(number))
        second.write(rows(number + 10))
    second.finish()
    first.finish()
    database.verify_stage(session, spec, [TaskReport(0, 1, 3), TaskReport(1, 2, 3)])


def test_columns_may_have_the_names_of_ours(database: MySQL, session: MySQLSession) -> None:
    columns = tuple(StageColumn(name, t.BigInt(), in_key=True) for name in ("id", "_Attempt", "_row", "__row"))
    schema = staged_schema(columns)
    spec = StageSpec("clash", schema.serialize().to_pybytes(), columns=columns, lookup=False)
    spec = database.open_stage(session, spec)
    staged(
        database.stager(spec, 0, 3), pa.RecordBatch.from_arrays([pa.array([n]) for n in (1, 2, 3, 4)], schema=schema)
    )
    database.verify_stage(session, spec, [TaskReport(0, 3, 1)])
    relation = database.staged_relation(session, spec, [TaskReport(0, 3, 1)])
    assert session.query(f"SELECT * FROM {relation} AS s") == [(1, 2, 3, 4)]


def test_the_key_of_staged_rows_has_an_index_where_it_pays(database: MySQL, session: MySQLSession) -> None:
    kinds = (
        t.Text(),
        t.String(500),
        t.String(9),
        t.Bytes(),
        t.UUID(),
        t.TimestampTZ(),
        t.Numeric(9, 2),
        t.String(20_000),
    )
    columns = tuple(StageColumn(f"k{i}", kind, in_key=True) for i, kind in enumerate(kinds))
    for lookup, expected in ((True, 8), (False, 0)):
        name = f"index_{lookup}"
        schema = staged_schema(columns).serialize().to_pybytes()
        database.open_stage(session, StageSpec(name, schema, columns=columns, lookup=lookup))
        indexes = session.query(f"SHOW INDEX FROM {name} WHERE Key_name <> 'PRIMARY'")
        assert len(indexes) == expected


def test_staging_is_listed_with_its_age_and_dropped(database: MySQL, session: MySQLSession) -> None:
    session.execute("CREATE TABLE users_own (a INT) COMMENT='ematix'")
    database.open_stage(session, SPEC)
    other = database.session()
    work = database.create_work_table(other, WorkTable("_flow_changes", COLUMNS, ("id",)), "abc_1")
    assert work == "`_flow_changes_abc_1`"
    stages = dict(database.stages(session))
    assert set(stages) == {"flow stage`1", "_flow_changes_abc_1"}
    assert all(0 <= age < 600 for age in stages.values())
    other.wire.break_off()
    for name in stages:
        database.drop_stage(session, StageSpec(name, b""))
        database.drop_stage(session, StageSpec(name, b""))
    assert list(database.stages(session)) == []
    assert session.query("SHOW TABLES") == [("users_own",)]


def test_scratch_tables_end_with_their_session_and_can_be_made_again(database: MySQL, session: MySQLSession) -> None:
    work = WorkTable("_flow_changes", (*COLUMNS, StageColumn("note", t.JSON())), ("id", "na`me"))
    broken = database.session()
    database.create_work_table(broken, work, "abc_1")
    broken.wire.break_off()
    again = database.session()
    name = database.create_work_table(again, work, "abc_1")
    again.begin()
    assert again.execute(f"INSERT INTO {name} (id, `na``me`, note) VALUES (1, 'a', '[]'), (1, 'a', NULL)") == 2
    assert len(again.query(f"SELECT * FROM {name} AS x JOIN {name} AS y ON x.id = y.id")) == 4
    again.close()
    assert session.query("SHOW TABLES") == []
