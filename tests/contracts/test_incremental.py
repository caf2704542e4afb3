"""Incremental loads as pipelines: (lo, hi] with hi fixed first, and no row lost in silence."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Date, Double, Float, Numeric, Text, Timestamp, TimestampTZ
from ematix_flow.errors import CommitError, DeclareError, PlanError, RunError
from tests.contracts.flows import START, in_and_out
from tests.contracts.systems import only

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.table.types import ColumnType
    from tests.contracts.flows import Flow, Row

    Flows = Callable[..., Flow]

pytestmark = pytest.mark.slow

APPEND: dict[str, Any] = {"mode": "append", "incremental_column": "at"}
MERGE: dict[str, Any] = {"mode": "merge", "incremental_column": "at"}


def table_of(kind: ColumnType) -> Table:
    columns = (Column(BigInt(), primary_key=True, name="id"), Column(kind, name="at"), Column(Text(), name="note"))
    return Table("analytics", "log", columns)


LOG = table_of(TimestampTZ())


def entry(key: int, hours: float | None, note: str = "n") -> Row:
    return {"id": key, "at": None if hours is None else START + timedelta(hours=hours), "note": note}


def ids(flow: Flow) -> list[int]:
    return [row["id"] for row in flow.rows()]


@pytest.mark.every_system
@in_and_out
def test_a_load_takes_what_is_above_the_last_one_and_remembers_how_far_it_came(flows: Flows) -> None:
    flow = flows(LOG, **APPEND)
    first = flow.run([entry(1, 1), entry(2, 2), entry(3, 2)])
    assert first["rows_inserted"] == 3, "rows that share the highest value belong to one load"
    flow.add([entry(4, 1.5), entry(5, 2), entry(6, 3)])
    assert flow.run()["rows_inserted"] == 1
    assert ids(flow) == [1, 2, 3, 6], "not above the watermark: the business of lookback"
    assert flow.run()["rows_inserted"] == 0
    [watermark] = flow.points("watermarks")
    assert (watermark["pipeline_name"], watermark["column_name"]) == ("flow", "at")
    assert watermark["updated_at"] == START + timedelta(hours=2), "a load that read nothing does not move it"
    assert [row["rows_inserted"] for row in flow.points("ledger")] == [3, 1, 0]


@in_and_out
def test_the_ledger_keeps_the_range_of_each_load(flows: Flows) -> None:
    flow = flows(table_of(BigInt()), **APPEND)
    flow.run([{"id": 1, "at": 10, "note": "a"}])
    flow.add([{"id": 2, "at": 20, "note": "b"}])
    flow.run()
    assert [(r["watermark_lo"], r["watermark_hi"]) for r in flow.points("ledger")] == [(None, "10"), ("10", "20")]


NAIVE = datetime(2026, 1, 1, 12, 0, 0, 1)  # noqa: DTZ001 - a column without a zone
VALUES: list[tuple[ColumnType, list[Any]]] = [
    (TimestampTZ(), [START, START + timedelta(microseconds=1), START + timedelta(microseconds=2)]),
    (Timestamp(), [NAIVE, NAIVE + timedelta(microseconds=1), NAIVE + timedelta(days=400)]),
    (Date(), [date(999, 12, 31), date(2026, 1, 1), date(2026, 1, 2)]),
    (BigInt(), [-(2**63), 9, 10]),
    (Numeric(12, 4), [Decimal("-1.5"), Decimal("9.0001"), Decimal("10.0001")]),
]


@in_and_out
def test_values_are_compared_in_the_sources_own_precision(flows: Flows) -> None:
    for number, (kind, values) in enumerate(VALUES):
        flow = flows(replace(table_of(kind), name=f"log_{number}"), f"flow {number}", **APPEND)
        for key, value in enumerate(values):
            flow.add([{"id": key, "at": value, "note": "n"}])
            assert flow.run()["rows_inserted"] == 1, kind
        assert [row["at"] for row in flow.rows()] == values
        assert flow.run()["rows_inserted"] == 0


FLOATS: list[tuple[ColumnType, list[float]]] = [
    (Float(), [-1.1, 0.1, 0.7, 1.1, 1234567, 1234568, 1.5e30]),
    (Double(), [-1e-7, 1.1, 1767225601.123456, 1767225601.123458, 1767225602.123454, 12345678901234.567, 1e300]),
]
"""Numbers that are others with fewer digits, and a narrow one that is above its text."""


@in_and_out
def test_floating_point_numbers_are_compared_as_they_are(flows: Flows) -> None:
    for number, (kind, values) in enumerate(FLOATS):
        flow = flows(replace(table_of(kind), name=f"log_{number}"), f"flow {number}", **APPEND)
        for key, value in enumerate(values):
            flow.add([{"id": key, "at": value, "note": "n"}])
            assert flow.run()["rows_inserted"] == 1, (kind, value)
        assert ids(flow) == [*range(len(values))]
        assert flow.run()["rows_inserted"] == 0


@in_and_out
def test_floating_point_watermarks_of_earlier_versions_go_on(flows: Flows) -> None:
    flow = flows(table_of(Double()), **APPEND)
    flow.run([{"id": 1, "at": 1.25, "note": "n"}])
    flow.execute(f"UPDATE {flow.metadata_name('watermarks')} SET last_value = '1.25'")
    flow.add([{"id": 2, "at": 1.2500000000000002, "note": "the next number that there is"}])
    assert flow.run()["rows_inserted"] == 1
    [watermark] = flow.points("watermarks")
    assert watermark["last_value"] == "1.2500000000000002e0"


def test_long_decimals_keep_every_digit_or_are_refused(flows: Flows, system: Any) -> None:
    flow = flows(table_of(Numeric(38, 10)), **APPEND)
    if system.kind == "sqlite":
        with pytest.raises(PlanError, match="no order that is safe"):
            flow.run([{"id": 1, "at": Decimal(1), "note": "kept as text, which orders 10 below 9"}])
        return
    for key, value in enumerate(("9.0000000001", "10000000000000000000.0000000001", "10000000000000000000.0000000002")):
        flow.add([{"id": key, "at": Decimal(value), "note": "n"}])
        assert flow.run()["rows_inserted"] == 1


@only("postgres", "duckdb")  # which have a type for an instant with a zone of its own
@in_and_out
def test_instants_in_other_zones_are_the_same_instants(flows: Flows, system: Any) -> None:
    flow = flows(LOG, **APPEND)
    insert = f"INSERT INTO {flow.source_name} VALUES "
    flow.execute(f"{insert} (1, '2026-03-29 01:30:00+01:00', 'n'), (2, '2026-03-29 02:00:00+02:00', 'earlier')")
    assert flow.run()["rows_inserted"] == 2
    assert [row["at"] for row in flow.rows()] == [
        datetime(2026, 3, 29, 0, 30, tzinfo=UTC),
        datetime(2026, 3, 29, 0, 0, tzinfo=UTC),
    ]
    flow.execute(f"{insert} (3, '2026-03-28 19:31:00-05:00', 'n')")
    assert flow.run()["rows_inserted"] == 1


@in_and_out
def test_null_in_the_watermark_column_is_refused_by_default(flows: Flows) -> None:
    flow = flows(LOG, **APPEND)
    with pytest.raises(RunError, match="NULL in 'at'"):
        flow.run([entry(1, 1), entry(2, None)])
    flow.give([entry(1, 1)])
    flow.run()
    flow.add([entry(2, None), entry(3, 3)])
    with pytest.raises(RunError, match="1 row with NULL"):
        flow.run()
    assert ids(flow) == [1]


@in_and_out
def test_null_in_the_watermark_column_can_be_merged_in_every_run(flows: Flows) -> None:
    flow = flows(LOG, null_watermark="load", **MERGE)
    assert flow.run([entry(1, 1), entry(2, None)])["rows_inserted"] == 2
    flow.add([entry(3, None), entry(4, 4)])
    result = flow.run()
    assert (result["rows_inserted"], result["rows_unchanged"]) == (2, 1)
    assert ids(flow) == [1, 2, 3, 4]


@in_and_out
def test_a_source_of_nulls_only_is_loaded_too(flows: Flows) -> None:
    flow = flows(LOG, null_watermark="load", **MERGE)
    assert flow.run([entry(1, None)])["rows_inserted"] == 1
    assert flow.points("watermarks") == []


def test_null_cannot_be_loaded_by_append_which_would_double_it() -> None:
    from ematix_flow.declare.pipeline.write import write

    with pytest.raises(DeclareError, match="null_watermark"):
        write(null_watermark="load", **APPEND)


def test_null_in_the_watermark_column_can_be_rejected(flows: Flows) -> None:
    flow = flows(LOG, null_watermark="reject", **APPEND)
    result = flow.run([entry(1, 1), entry(2, None)])
    assert (result["rows_inserted"], result["rows_rejected"]) == (1, 1)
    assert ids(flow) == [1]
    [reject] = flow.points("rejects")
    assert (reject["column_name"], reject["status"]) == ("at", "pending")
    flow.add([entry(3, 3)])
    assert flow.run()["rows_inserted"] == 1
    assert len(flow.points("rejects")) == 1, "the same row is not rejected anew in every run"


@in_and_out
def test_look_back_reads_a_tail_again_and_finds_late_rows(flows: Flows) -> None:
    flow = flows(LOG, lookback=timedelta(minutes=90), **MERGE)
    flow.run([entry(1, 1), entry(2, 5)])
    flow.add([entry(3, 4), entry(4, 3), entry(5, 6)])
    result = flow.run()
    assert (result["rows_inserted"], result["rows_unchanged"]) == (2, 1)
    assert ids(flow) == [1, 2, 3, 5], "the fourth is older than the look-back"
    flow.execute(f"UPDATE {flow.source_name} SET note = 'changed' WHERE id = 5")
    assert flow.run()["rows_updated"] == 1


@pytest.mark.every_system
@in_and_out
def test_look_back_counts_fractions_of_a_second(flows: Flows) -> None:
    flow = flows(LOG, lookback=timedelta(milliseconds=1500), **MERGE)
    flow.run([entry(1, 0)])
    part = timedelta(milliseconds=1)
    flow.add([{"id": 2, "at": START - timedelta(seconds=1.5) + part, "note": "n"}])
    flow.add([{"id": 3, "at": START - timedelta(seconds=1.5) - part, "note": "older than the look-back"}])
    assert flow.run()["rows_inserted"] == 1
    assert ids(flow) == [1, 2]


@in_and_out
def test_look_back_from_a_number_counts_in_seconds(flows: Flows) -> None:
    for number, (kind, values) in enumerate([(BigInt(), [100, 70, 69]), (Double(), [100.5, 70.5, 69.9])]):
        flow = flows(
            replace(table_of(kind), name=f"log_{number}"), f"flow {number}", lookback=timedelta(seconds=30.5), **MERGE
        )
        first, late, old = ({"id": key, "at": value, "note": "n"} for key, value in enumerate(values))
        flow.run([first])
        flow.add([late, old])
        assert flow.run()["rows_inserted"] == 1, kind
        assert ids(flow) == [0, 1]


@in_and_out
def test_a_source_that_went_backwards_loads_nothing_and_keeps_the_watermark(flows: Flows) -> None:
    flow = flows(LOG, **MERGE)
    flow.run([entry(1, 5)])
    before = flow.points("watermarks")
    flow.give([entry(1, 2), entry(2, 3)])
    assert flow.run()["rows_inserted"] == 0
    assert flow.points("watermarks") == before
    flow.add([entry(3, 6)])
    assert flow.run()["rows_inserted"] == 1


@in_and_out
def test_a_load_that_fails_leaves_the_watermark(flows: Flows) -> None:
    flow = flows(LOG, **APPEND)
    flow.run([entry(1, 1)])
    before = flow.points("watermarks")
    flow.add([entry(2, 2), entry(1, 3, "the key is taken")])
    with pytest.raises(CommitError):
        flow.run()
    assert flow.points("watermarks") == before
    flow.execute(f"DELETE FROM {flow.source_name} WHERE note <> 'n'")
    assert flow.run()["rows_inserted"] == 1


@in_and_out
def test_another_watermark_column_starts_from_the_beginning(flows: Flows) -> None:
    columns = (*LOG.columns, Column(BigInt(), name="number"))
    flow = flows(Table("analytics", "log", columns), **MERGE)
    flow.run([entry(1, 1) | {"number": 1}, entry(2, 2) | {"number": 2}])
    flow.write["incremental_column"] = "number"
    flow.add([entry(3, 0) | {"number": 3}])
    assert flow.run()["rows_inserted"] == 1
    [watermark] = flow.points("watermarks")
    assert (watermark["column_name"], watermark["last_value"]) == ("number", "3")


@only("postgres", "mysql")  # the others order text by its bytes
def test_a_column_without_a_safe_order_is_refused(flows: Flows, system: Any) -> None:
    flow = flows(LOG, mode="append", incremental_column="note")
    with pytest.raises(PlanError, match="no order that is safe"):
        flow.run([entry(1, 1)])


@only("duckdb")
@pytest.mark.parametrize("native", ["ENUM('z', 'm', 'a')", "INTEGER[]", "STRUCT(a INTEGER)"])
def test_a_type_that_is_not_compared_in_its_order_is_refused(flows: Flows, native: str) -> None:
    flow = flows(LOG, **APPEND)
    flow.query = f"SELECT id, CAST(NULL AS {native}) AS at, note FROM {flow.source_name}"
    with pytest.raises(PlanError, match=r"'at' is .*no order that is safe"):
        flow.run([entry(1, 1)])


@in_and_out
def test_an_unknown_watermark_column_is_refused_with_the_nearest_name(flows: Flows) -> None:
    flow = flows(LOG, mode="append", incremental_column="ats")
    with pytest.raises(PlanError, match="did you mean 'at'"):
        flow.run([entry(1, 1)])
