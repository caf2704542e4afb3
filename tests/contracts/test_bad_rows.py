"""Rows that do not fit: the load fails as a whole, or they are kept with reason and row and the rest loads."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import (
    BigInt,
    Boolean,
    Date,
    Double,
    Integer,
    Numeric,
    SmallInt,
    String,
    Text,
    Timestamp,
    TimestampTZ,
)
from ematix_flow.engine.rejects import replay_rejects
from ematix_flow.errors import BadRowsError, CommitError, RunError
from ematix_flow.plan.sql.ddl import create_table_sql, table_definition
from ematix_flow.plan.sql.render import native_name
from tests.contracts.flows import in_and_out
from tests.contracts.systems import only

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contracts.flows import Flow, Row

    Flows = Callable[..., Flow]

pytestmark = pytest.mark.slow

TARGET = Table(
    "analytics",
    "strict",
    (
        Column(BigInt(), primary_key=True, name="id"),
        Column(Text(), nullable=False, name="must"),
        Column(SmallInt(), name="small"),
        Column(String(5), name="short"),
        Column(Numeric(6, 2), name="amount"),
        Column(Integer(), name="number"),
        Column(Date(), name="day"),
        Column(Boolean(), name="flag"),
    ),
)
SOURCE = (
    Column(BigInt(), name="id"),
    Column(Text(), name="must"),
    Column(BigInt(), name="small"),
    Column(Text(), name="short"),
    Column(Numeric(38, 10), name="amount"),
    Column(Text(), name="number"),
    Column(Text(), name="day"),
    Column(Text(), name="flag"),
)
BAD: dict[str, dict[str, Any]] = {
    "null": {"must": None},
    "overflow": {"small": 40000},
    "length": {"short": "äöüßéx"},
    "digits": {"amount": Decimal("12345.6")},
    "parse": {"number": "12x"},
    "day": {"day": "2026-02-30"},
    "flag": {"flag": "perhaps"},
}


def given(key: int, **values: Any) -> Row:
    good = {
        "must": "m",
        "small": 1,
        "short": "äöüßé",
        "amount": Decimal("1234.56"),
        "number": "12",
        "day": "2026-02-28",
    }
    return {"id": key, **good, "flag": "true"} | values


def loaded(flow: Flow) -> list[int]:
    return [row["id"] for row in flow.rows()]


@in_and_out
def test_one_bad_row_fails_the_load_by_default(flows: Flows, path: str) -> None:
    flow = flows(TARGET, source=SOURCE, mode="append")
    flow.run([given(1)])
    for bad in BAD.values():
        expected = BadRowsError if path == "staged" else RunError
        with pytest.raises(expected, match=next(iter(bad)) if path == "staged" else None):
            flow.run([given(2), given(3, **bad)])
    assert loaded(flow) == [1]
    assert flow.points("rejects") == []
    assert flow.slept == []


@pytest.mark.every_system
@pytest.mark.parametrize("mode", ["append", "truncate", "merge", "scd2"])
def test_bad_rows_are_kept_with_reason_and_row_and_the_rest_loads(flows: Flows, mode: str) -> None:
    flow = flows(TARGET, source=SOURCE, mode=mode, on_bad_row="reject")
    rows = [given(1), *(given(10 + n, **bad) for n, bad in enumerate(BAD.values())), given(2)]
    result = flow.run(rows)
    assert (result["rows_inserted"], result["rows_rejected"]) == (2, len(BAD))
    assert result["rows_inserted"] + result["rows_rejected"] == len(rows)
    assert loaded(flow) == [1, 2]
    rejects = {reject["column_name"]: reject for reject in flow.points("rejects")}
    assert set(rejects) == {next(iter(bad)) for bad in BAD.values()}
    for bad in BAD.values():
        [(name, value)] = bad.items()
        rejected_row = json.loads(rejects[name]["row_json"], parse_float=Decimal)
        assert (Decimal(rejected_row[name]) if isinstance(value, Decimal) else rejected_row[name]) == value
        assert rejects[name]["reason"]
        assert (rejects[name]["status"], rejects[name]["run_id"]) == ("pending", result["run_id"])


@only("duckdb", "sqlite", "postgres")
def test_a_number_that_is_none_is_a_bad_row_where_the_target_has_no_such_number(flows: Flows, system: Any) -> None:
    table = Table("analytics", "floats", (Column(BigInt(), primary_key=True, name="id"), Column(Double(), name="x")))
    flow = flows(table, mode="append", on_bad_row="reject")
    rows = [{"id": 1, "x": 1.5}, {"id": 2, "x": float("inf")}, {"id": 3, "x": -0.0}]
    result = flow.run(rows)
    assert result["rows_inserted"] + result["rows_rejected"] == 3
    assert result["rows_inserted"] == 3


@pytest.mark.every_system
@only("postgres", "mysql", "sqlite")
def test_dates_and_times_that_the_target_has_no_place_for_are_bad_rows(flows: Flows) -> None:
    columns = (
        Column(BigInt(), primary_key=True, name="id"),
        Column(Date(), name="day"),
        Column(Timestamp(), name="wall"),
    )
    flow = flows(Table("analytics", "far", (*columns, Column(TimestampTZ(), name="at"))), mode="append")
    flow.write["on_bad_row"] = "reject"
    times = flow.database.capabilities.times
    assert times is not None
    (first, last), (least, most) = times.days, times.micros
    days = [first, last, first - 1, last + 1, None, None, None, None, -(2**31), 2**31 - 1]
    micros = [least, most, None, None, least - 1, most + 1, -(2**63), 2**63 - 1, None, None]
    rows = pa.table(
        {
            "id": list(range(len(days))),
            "day": pa.array(days, pa.int32()).cast(pa.date32()),
            "wall": pa.array(micros, pa.int64()).cast(pa.timestamp("us")),
            "at": pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC")),
        }
    )
    flow.declared = {"function": lambda: rows, "force_path": None}
    result = flow.run()
    assert (result["rows_inserted"], result["rows_rejected"]) == (2, 8)
    assert sorted(flow.select(f"SELECT id FROM {flow.target_name}")) == [(0,), (1,)]
    reasons = {(reject["column_name"], reject["reason"]) for reject in flow.points("rejects")}
    message = "is not between the years {}, and the target cannot store it"
    assert reasons == {("day", message.format(times.of_dates)), ("wall", message.format(times.of_instants))}
    with pytest.raises(BadRowsError, match="not between the years"):
        replace(flow, write={"mode": "append"}).run()


PARENT = "analytics_parents"


@pytest.fixture
def guarded(flows: Flows) -> Flow:
    """Return a flow into a table with a unique constraint, a foreign key and a check of its own."""
    columns = (
        Column(BigInt(), primary_key=True, name="id"),
        Column(String(20), name="code"),
        Column(BigInt(), name="parent"),
        Column(BigInt(), name="amount"),
    )
    table = Table("analytics", "guarded", columns, unique_constraints=(("code",),))
    flow = flows(table, mode="append")
    database = flow.database
    parents = native_name(database.table_name("analytics", "parents"), database.dialect)
    create = create_table_sql(table_definition(table, "append", database), database)
    own = f"FOREIGN KEY (parent) REFERENCES {parents} (id),\n  CHECK (amount > 0),\n  PRIMARY KEY"
    with closing(database.session()) as session:
        session.execute(f"CREATE TABLE {parents} (id BIGINT PRIMARY KEY){database.table_options()}")
        session.execute(f"INSERT INTO {parents} VALUES (1), (2)")
        session.execute(create.replace("PRIMARY KEY", own, 1))
    return flow


def guarded_row(key: int, **values: Any) -> Row:
    return {"id": key, "code": f"c{key}", "parent": 1, "amount": 5} | values


REFUSED: dict[str, dict[str, Any]] = {
    "unique": {"code": "c1"},
    "foreign key": {"parent": 9},
    "check": {"amount": 0},
    "primary key": {"id": 1},
}


@in_and_out
def test_a_constraint_of_the_target_refuses_the_load_once(guarded: Flow) -> None:
    guarded.run([guarded_row(1)])
    for bad in REFUSED.values():
        with pytest.raises(CommitError):
            guarded.run([guarded_row(2), guarded_row(3) | bad])
    assert loaded(guarded) == [1]
    assert guarded.slept == [], "trying again would not help"
    failed = [row for row in guarded.points("run_history") if row["status"] == "failed"]
    assert len(failed) == len(REFUSED)
    assert all(row["error_message"] for row in failed)


def test_rows_that_a_constraint_refuses_can_be_rejected(guarded: Flow) -> None:
    guarded.write["on_bad_row"] = "reject"
    guarded.run([guarded_row(1)])
    result = guarded.run([guarded_row(2), *(guarded_row(10 + n) | bad for n, bad in enumerate(REFUSED.values()))])
    assert (result["rows_inserted"], result["rows_rejected"]) == (1, 4)
    assert loaded(guarded) == [1, 2]
    rejected_rows = [json.loads(reject["row_json"]) for reject in guarded.points("rejects")]
    assert sorted(row["id"] for row in rejected_rows) == [1, 10, 11, 12]
    assert all(reject["reason"] for reject in guarded.points("rejects"))


def test_of_two_rows_that_exclude_each_other_one_is_loaded(guarded: Flow) -> None:
    guarded.write["on_bad_row"] = "reject"
    result = guarded.run([guarded_row(1, code="same"), guarded_row(2, code="same"), guarded_row(3)])
    assert (result["rows_inserted"], result["rows_rejected"]) == (2, 1)
    assert loaded(guarded) == [1, 3]


@in_and_out
def test_a_load_of_bad_rows_only_loads_nothing(flows: Flows, path: str) -> None:
    flow = flows(TARGET, source=SOURCE, mode="append")
    if path != "same_db":
        flow.write["on_bad_row"] = "reject"
        assert flow.run([given(1, must=None), given(2, small=2**40)])["rows_rejected"] == 2
    else:
        with pytest.raises(RunError):
            flow.run([given(1, must=None)])
    assert loaded(flow) == []


def test_a_replayed_reject_has_every_value_that_the_source_had(flows: Flows) -> None:
    digits = Decimal("1234567890123456789.0123456789")
    columns = (
        Column(BigInt(), primary_key=True, name="id"),
        Column(Numeric(38, 10), name="exact"),
        Column(SmallInt(), name="small"),
    )
    wide = (*columns[:2], Column(BigInt(), name="small"))
    flow = flows(Table("analytics", "mended", columns), source=wide, mode="append", on_bad_row="reject")
    flow.run([{"id": 1, "exact": digits, "small": 1}, {"id": 2, "exact": digits, "small": 40000}])
    flow.execute(f"DROP TABLE {flow.target_name}")
    flow.table = Table("analytics", "mended", wide)
    done = replay_rejects(flow.pipeline, options=flow.options())
    assert (done["replayed"], done["rejected"]) == (1, 0)
    assert flow.rows() == [{"id": 2, "exact": digits, "small": 40000}]
