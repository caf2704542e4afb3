"""The interface of a database, promise by promise, on every system."""

from __future__ import annotations

import json
import pickle
import uuid
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ematix_flow.commit.ledger import HistoryRow, Ledger
from ematix_flow.connect.base.stage import StageColumn, StageSpec, WorkTable
from ematix_flow.connect.types.arrow import REJECTS, staged_schema
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, String, Text
from ematix_flow.errors import CommitError, FencedError
from ematix_flow.plan.sql.ddl import create_table_sql, differences, table_definition
from ematix_flow.plan.sql.render import native_column, native_name
from ematix_flow.records import Counts, SourceWatermark, TaskReport, Token
from tests.contracts.loads import Loader
from tests.contracts.values import COLUMNS, EVERY_TYPE, ROWS, read_back

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.database import Database
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.stage import Stager
    from tests.contracts.systems import System

pytestmark = pytest.mark.slow

AT = datetime(2026, 5, 1, 12, 30, 0, 250000, tzinfo=UTC)
SMALL = (StageColumn("id", BigInt(), in_key=True), StageColumn("note", Text()))


def stage_spec(database: Database, session: Session, columns: Sequence[StageColumn] = SMALL) -> StageSpec:
    schema = staged_schema(columns).serialize().to_pybytes()
    return database.open_stage(session, StageSpec(f"stg_{uuid.uuid4().hex[:24]}", schema, columns=tuple(columns)))


def attempt(stager: Stager, rows: Sequence[int], rejects: Sequence[str] = (), *, number: int) -> TaskReport:
    if rows:
        arrays = [pa.array(rows, pa.int64()), pa.array([f"attempt {number}"] * len(rows), pa.string())]
        stager.write(pa.RecordBatch.from_arrays(arrays, schema=staged_schema(SMALL)))
    if rejects:
        columns = [
            pa.array(values, pa.string())
            for values in (rejects, ["note"] * len(rejects), [None] * len(rejects), ["{}"] * len(rejects))
        ]
        stager.reject(pa.RecordBatch.from_arrays(columns, schema=REJECTS))
    path, reject_path = stager.finish()
    return TaskReport(0, number, len(rows), len(rejects), path, reject_path)


def staged(database: Database, session: Session, spec: StageSpec, parts: Sequence[TaskReport]) -> list[tuple[Any, ...]]:
    relation = database.staged_relation(session, spec, parts)
    note = native_column("note", database.dialect)
    return sorted(session.query(f"SELECT id, {note} FROM {relation} AS s"))


@pytest.mark.parametrize("mode", ["append", "scd2"])
def test_a_table_right_after_its_creation_does_not_differ_from_its_declaration(
    database: Database, session: Session, mode: str
) -> None:
    definition = table_definition(EVERY_TYPE, mode, database)
    assert database.find_table(session, definition.place) is None
    database.create_schema(session, definition.place.schema)
    session.execute(create_table_sql(definition, database))
    existing = database.find_table(session, definition.place)
    assert existing is not None
    assert differences(definition, existing, database) == ()
    assert [column.name for column in existing.columns] == [column.column.name for column in definition.columns]
    assert existing.primary_key == definition.primary_key
    assert existing.problem == ""


def test_unique_constraints_and_the_order_of_a_key_are_found(database: Database, session: Session) -> None:
    columns = [Column(String(20), nullable=False, primary_key=name in "ca", name=name) for name in ("c", "b", "a")]
    definition = table_definition(
        Table("main", "keyed", tuple(columns), unique_constraints=(("b", "a"), ("b",))), "append", database
    )
    database.create_schema(session, definition.place.schema)
    session.execute(create_table_sql(definition, database))
    existing = database.find_table(session, definition.place)
    assert existing is not None
    assert existing.primary_key == ("c", "a")
    assert sorted(map(sorted, existing.unique)) == [["a", "b"], ["b"]]


def test_every_type_comes_back_as_it_was_loaded(database: Database) -> None:
    loader = Loader(database, EVERY_TYPE, {"mode": "append"})
    committed = loader.load(ROWS, parts=2)
    assert committed.counts == Counts(staged=len(ROWS), inserted=len(ROWS))
    with closing(database.session()) as session:
        assert read_back(database, session, EVERY_TYPE) == sorted(ROWS, key=lambda row: row["id"])


def test_infinity_and_nul_are_kept_where_the_system_has_them(database: Database, system: System) -> None:
    infinite, nul = float("inf") if system.infinity else 1.0, "a\0b" if system.nul else "ab"
    row = ROWS[3] | {"back`tick": infinite, "semi;colon--": nul}
    Loader(database, EVERY_TYPE, {"mode": "append"}).load([row])
    with closing(database.session()) as session:
        assert read_back(database, session, EVERY_TYPE) == [row]


def test_staged_rows_come_back_in_the_targets_types(database: Database, session: Session) -> None:
    spec = stage_spec(database, session, COLUMNS)
    stager = database.stager(spec, 0, 1)
    stager.write(pa.RecordBatch.from_pylist(ROWS, schema=staged_schema(COLUMNS)))
    part = TaskReport(0, 1, len(ROWS), 0, *stager.finish())
    database.verify_stage(session, spec, [part])
    relation = database.staged_relation(session, spec, [part])
    assert session.query(f"SELECT COUNT(*) FROM {relation} AS s") == [(len(ROWS),)]


def test_only_the_named_attempt_of_a_partition_counts(database: Database, session: Session) -> None:
    spec = stage_spec(database, session)
    attempt(database.stager(spec, 0, 1), [1, 2, 3], ["lost"], number=1)
    winner = attempt(database.stager(spec, 0, 2), [1, 2], ["kept"], number=2)
    database.verify_stage(session, spec, [winner])
    assert staged(database, session, spec, [winner]) == [(1, "attempt 2"), (2, "attempt 2")]
    rejected = database.reject_relation(session, spec, [winner])
    assert session.query(f"SELECT reason, row_json FROM {rejected} AS r") == [("kept", "{}")]


def test_an_abandoned_attempt_leaves_nothing_that_counts(database: Database, session: Session) -> None:
    spec = stage_spec(database, session)
    lost = database.stager(spec, 0, 1)
    arrays = [pa.array([9], pa.int64()), pa.array(["lost"], pa.string())]
    lost.write(pa.RecordBatch.from_arrays(arrays, schema=staged_schema(SMALL)))
    lost.abandon()
    empty = attempt(database.stager(spec, 0, 2), [], number=2)
    database.verify_stage(session, spec, [empty])
    assert staged(database, session, spec, [empty]) == []


@pytest.mark.parametrize("claim", [{"rows": 3}, {"rejected": 1}, {"rows": 1}])
def test_a_staging_that_differs_from_its_reports_is_refused(
    database: Database, session: Session, claim: dict[str, int]
) -> None:
    spec = stage_spec(database, session)
    part = attempt(database.stager(spec, 0, 1), [1, 2], number=1)
    report = {"rows": part.rows, "rejected": part.rejected} | claim
    wrong = TaskReport(
        0, 1, report["rows"], report["rejected"], part.path, part.reject_path or ("gone" if "rejected" in claim else "")
    )
    with pytest.raises(CommitError):
        database.verify_stage(session, spec, [wrong])


def test_stagings_are_listed_until_they_are_dropped(database: Database, session: Session) -> None:
    spec = stage_spec(database, session)
    attempt(database.stager(spec, 0, 1), [1], ["bad"], number=1)
    listed = dict(database.stages(session))
    assert spec.name in listed
    assert -60 < listed[spec.name] < 600
    with pytest.raises((OSError, *database.errors)):
        database.open_stage(session, spec)
    session.rollback()
    database.drop_stage(session, spec)
    database.drop_stage(session, spec)
    assert spec.name not in dict(database.stages(session))


def test_a_work_table_can_be_filled_and_read_several_times_in_one_statement(
    database: Database, session: Session
) -> None:
    work = WorkTable("_flow_work", COLUMNS, ("id",))
    name = database.create_work_table(session, work, "0123456789abcdef_1")
    session.begin()
    assert session.execute(f"INSERT INTO {name} (id) VALUES (1), (2)") == 2
    twice = f"SELECT COUNT(*) FROM {name} AS a JOIN {name} AS b ON a.id = b.id WHERE EXISTS (SELECT 1 FROM {name} AS c WHERE c.id = a.id)"
    assert session.query(twice) == [(2,)]
    session.rollback()


def test_statements_tell_their_rows_and_transactions_hold(database: Database, session: Session) -> None:
    table_name = database.table_name("main", "counted")
    database.create_schema(session, table_name.schema)
    name = native_name(table_name, database.dialect)
    session.execute(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, n BIGINT)")
    session.begin()
    assert session.execute(f"INSERT INTO {name} VALUES (?, ?), (?, ?)", (1, 5, 2, None)) == 2
    session.commit()
    assert session.execute(f"UPDATE {name} SET n = 5 WHERE id <= ?", (2,)) == 2, "matched rows, changed or not"
    session.begin()
    assert session.execute(f"DELETE FROM {name}") == 2
    session.rollback()
    session.rollback()
    assert session.query(f"SELECT id, n FROM {name} ORDER BY id") == [(1, 5), (2, 5)]
    with pytest.raises(database.errors) as refused:
        session.execute(f"INSERT INTO {name} VALUES (1, 1)")
    assert database.is_duplicate_key(refused.value)
    assert not database.is_transient(refused.value)


def test_the_ledger_works_on_every_system(database: Database, session: Session) -> None:
    ledger, token = Ledger(database), Token("orders", "target:a.b", "slot 'one'")
    assert not ledger.exists(session)
    ledger.ensure(session)
    ledger.ensure(session)
    ledger.ensure_fence(session, "orders", AT)
    ledger.ensure_fence(session, "orders", AT)
    old = ledger.take_fence(session, "orders", AT)
    new = ledger.take_fence(session, "orders", AT)
    assert (old.epoch, new.epoch) == (1, 2)
    session.begin()
    with pytest.raises(FencedError):
        ledger.lock_fence(session, old)
    ledger.lock_fence(session, new)
    ledger.insert_token(session, token, new, "hash", AT)
    ledger.finish_token(session, token, Counts(5, 4, 3, 2, 1, 6, 7), "1", "2")
    ledger.move_watermark(session, "orders", None, SourceWatermark("at", "2026-01-01 00:00:00.000001"), AT)
    history = HistoryRow(token.run_id, "orders", "a", "b", "append", "cross_db", AT, "running")
    ledger.record(session, history)
    ledger.record(session, history)
    session.commit()
    record = ledger.find(session, token)
    assert record is not None
    assert (record.counts, record.committed_at, record.replayed) == (Counts(5, 4, 3, 2, 1, 6, 7), AT, True)
    assert ledger.watermark(session, "orders") == SourceWatermark("at", "2026-01-01 00:00:00.000001")
    assert session.query(f"SELECT COUNT(*) FROM {ledger.name('run_history')}") == [(1,)]
    with pytest.raises(FencedError, match="moved"):
        ledger.move_watermark(session, "orders", None, SourceWatermark("at", "later"), AT)
    with pytest.raises(database.errors) as duplicate:
        ledger.insert_token(session, token, new, "hash", AT)
    assert database.is_duplicate_key(duplicate.value)


def test_a_query_is_described_without_its_rows(database: Database, session: Session) -> None:
    odd = native_column('odd "name"', database.dialect)
    described = database.describe(
        session, f"SELECT 1 AS n, 'x' AS t, 1.5 AS d, NULL AS unknown_one, 2 AS {odd} -- comment"
    )
    families = {column.name: column.family for column in described}
    assert list(families) == ["n", "t", "d", "unknown_one", 'odd "name"']
    assert (families["n"], families["t"]) == ("integer", "text")
    assert families["d"] in ("decimal", "float")
    with pytest.raises(database.errors):
        database.describe(session, "SELECT missing FROM no_such_table")
    session.rollback()
    database.explain(session, "SELECT 1")


def test_a_system_is_small_enough_to_send_to_a_task(database: Database) -> None:
    copy = pickle.loads(pickle.dumps(database))  # noqa: S301 - our own bytes
    assert copy.identity() == database.identity()
    assert json.dumps(dict(database.info()))
    assert database.probe()
