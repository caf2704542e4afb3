"""Expectations on every system: measured before the rows become visible; one that fails keeps the target as it was."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.quality.expectations import quality_of
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import UUID, BigInt, Boolean, Date, Double, Numeric, Text, Timestamp, TimestampTZ
from ematix_flow.errors import QualityCheckFailed, QualityUnrunnable
from tests.contracts.flows import START, in_and_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.quality.tester import Tester
    from tests.contracts.flows import Flow, Row

pytestmark = pytest.mark.slow

ORDERS = Table(
    "analytics",
    "orders",
    (
        Column(BigInt(), name="id", primary_key=True),
        Column(Text(), name="code"),
        Column(Numeric(12, 2), name="amount"),
        Column(TimestampTZ(), name="at"),
    ),
)
GOOD = [
    {"id": 1, "code": "ab", "amount": Decimal("1.50"), "at": START},
    {"id": 2, "code": "cd", "amount": Decimal("99.99"), "at": START},
    {"id": 3, "code": None, "amount": None, "at": None},
]
BAD = [
    {"id": 4, "code": "AB", "amount": Decimal("-0.01"), "at": START - timedelta(days=400)},
    {"id": 5, "code": "ab", "amount": Decimal("100.01"), "at": START},
]


def expecting(flow: Flow, expectations: Any, policy: str | None = None, **more: Any) -> Flow:
    """Return the flow with expectations of its target."""
    options = {"expectations": expectations, "on_quality_failure": policy, **more}
    flow.declared = {"targets": (replace(flow.target, quality=quality_of(options, flow.table, flow.target.write)),)}
    return flow


def metadata_of(flow: Flow) -> Row:
    """Return what the books say, without the history of runs that failed."""
    history = [row for row in flow.points("run_history") if row["status"] != "failed"]
    return {"history": history, **{name: flow.points(name) for name in ("ledger", "watermarks", "rejects")}}


def verdicts(result: Row) -> dict[str, tuple[str, int | None]]:
    return {one["name"]: (one["verdict"], one["failed_rows"]) for one in result["quality"]["checks"]}


def every(t: Tester) -> None:
    """Expect one thing of each kind, all of which the good rows satisfy and each of which a bad one does not."""
    t.column("id").not_null()
    t.column("code").unique()
    t.column("amount").between(0, Decimal("100.00"))
    t.column("code").is_in(["ab", "cd", "it's"])
    t.column("code").regex("^[a-z]{2}$")
    t.column("at").between(datetime(2025, 6, 1, tzinfo=UTC), None)
    t.row_count(at_least=1, at_most=4)
    t.freshness("at", within="6h")
    t.sql("not free", "amount > 0 OR code = 'x''y'")
    t.sql("no four", "id NOT IN (SELECT 4)")
    t.query("few", "SELECT code, COUNT(*) AS n FROM rows GROUP BY code HAVING COUNT(*) > 1")
    t.python("sums", lambda rows: sum(1 for row in rows if (row["amount"] or 0) > 100))
    t.python("asks", lambda rows: rows.query("SELECT COUNT(*) FROM rows")[0][0] < 5 and len(rows) < 5)


@in_and_out
def test_every_expectation_holds_for_good_rows_and_is_told_of_bad_ones(flows: Callable[..., Flow], path: str) -> None:
    flow = expecting(flows(ORDERS, mode="append"), every)
    good = flow.run(GOOD)
    assert good["quality"]["outcome"] == "pass", good["quality"]
    assert {verdict for verdict, _ in verdicts(good).values()} == {"pass"}
    assert [one["total"] for one in good["quality"]["checks"]] == [3] * len(good["quality"]["checks"])
    bad = flow.run(BAD + [{**row, "id": row["id"] + 9} for row in GOOD])
    assert bad["rows_inserted"] == 5
    assert bad["quality"]["outcome"] == "fail"
    assert verdicts(bad) == {
        "not_null(id)": ("pass", 0),
        "unique(code)": ("fail", 2),
        "between(amount)": ("fail", 2),
        "is_in(code)": ("fail", 1),
        "regex(code)": ("fail", 1),
        "between(at)": ("fail", 1),
        "row_count": ("fail", None),
        "freshness(at)": ("pass", 0),
        "not free": ("fail", 1),
        "no four": ("fail", 1),
        "few": ("fail", 1),
        "sums": ("fail", 1),
        "asks": ("fail", None),
        "unique(id)": ("pass", 0),
    }
    samples = {one["name"]: one["sample"] for one in bad["quality"]["checks"]}
    assert samples["is_in(code)"] == [{"id": 4, "code": "AB"}]
    assert samples["few"] == [{"code": "ab", "n": 2}]


@pytest.mark.parametrize("mode", ["append", "truncate", "merge", "scd2"])
@in_and_out
def test_an_expectation_that_fails_keeps_the_target_as_it_was(flows: Callable[..., Flow], mode: str, path: str) -> None:
    more = {"incremental_column": "id"} if mode in ("append", "merge") else {}
    flow = expecting(flows(ORDERS, mode=mode, **more), lambda t: t.column("amount").between(0, 100), "fail")
    assert flow.run(GOOD)["quality"]["outcome"] == "pass"
    rows = flow.versions if mode == "scd2" else flow.rows
    before, stamps, remembered = rows(), flow.stamps(), metadata_of(flow)
    with pytest.raises(QualityCheckFailed, match=r"between\(amount\): 2 of \d rows; first: \{'id': \d") as caught:
        flow.run([*GOOD[1:], *BAD])
    assert isinstance(caught.value, AssertionError)
    assert (rows(), flow.stamps(), metadata_of(flow)) == (before, stamps, remembered)
    failed = next(row for row in flow.points("run_history") if row["status"] == "failed")
    assert '"verdict": "fail"' in failed["metrics_json"]
    runs, _ = flow.run_log.list_runs(status="failed")
    assert runs[0].extras["quality"]["outcome"] == "fail"  # type: ignore[index]
    loaded = flow.run([*GOOD, {**BAD[0], "amount": Decimal("1.00")}] if more else GOOD[1:])
    assert loaded["quality"]["outcome"] == "pass"


@pytest.mark.in_turn
@pytest.mark.every_system
@pytest.mark.parametrize("mode", ["append", "merge", "scd2"])
@in_and_out
def test_offending_rows_are_set_aside_and_the_others_load(flows: Callable[..., Flow], mode: str, path: str) -> None:
    def picky(t: Tester) -> None:
        t.column("amount").between(0, 100)
        t.column("code").unique()
        t.column("code").regex("^[a-z]+$")
        t.sql("not free", "amount > 0")
        t.column("id").exists_in("analytics.src_orders", "id")

    flow = expecting(flows(ORDERS, mode=mode), picky, "reject")
    if flow.origin is not None:
        flow = expecting(flow, lambda t: (picky(t), t.expectations.pop()), "reject")  # its source is elsewhere
    duplicate = {"id": 6, "code": "ab", "amount": Decimal("7.00"), "at": START}
    result = flow.run([*GOOD[1:], *BAD, duplicate])
    assert (result["rows_inserted"], result["rows_rejected"]) == (2, 3)
    assert result["quality"]["outcome"] == "fail"
    assert [row["id"] for row in flow.rows()] == [2, 3]
    rejects = {row["reason"] for row in flow.points("rejects")}
    assert rejects == {"does not satisfy between(amount)", "does not satisfy unique(code)"}
    assert all('"code"' in row["row_json"] for row in flow.points("rejects"))
    assert flow.run(GOOD[1:] if mode != "append" else [])["rows_rejected"] == 0


KINDS = Table(
    "analytics",
    "kinds",
    (
        Column(BigInt(), name="id", primary_key=True),
        Column(Date(), name="day"),
        Column(Timestamp(), name="wall"),
        Column(Double(), name="share"),
        Column(Boolean(), name="flag"),
        Column(UUID(), name="tag"),
        Column(Numeric(30, 4), name="large"),
    ),
)
TAG = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"
KIND = {
    "id": 1, "day": date(2026, 1, 1), "wall": datetime.fromisoformat("2026-01-01T12:00:00"), "share": 0.5, "flag": True, "tag": TAG,
    "large": Decimal("99999999999999999999.5"),
}  # fmt: skip
OTHER = {
    "id": 2, "day": date(2025, 12, 31), "wall": datetime.fromisoformat("2026-01-01T13:00:00"), "share": -0.5, "flag": False,
    "tag": TAG.replace("6", "7"), "large": Decimal("-1.0000"),
}  # fmt: skip


@in_and_out
def test_values_of_every_kind_are_compared(flows: Callable[..., Flow], path: str) -> None:
    def expected(t: Tester) -> None:
        t.column("day").between(date(2026, 1, 1), "2026-12-31")
        t.column("wall").between(None, "2026-01-01T12:00:00")
        t.column("wall").is_in([datetime.fromisoformat("2026-01-01T12:00:00")])
        t.column("share").between(0, 1.5)
        t.column("flag").is_in([True])
        t.column("tag").is_in([TAG.upper()])
        t.column("large").between(0, 10**25)
        t.unique(["day", "flag", "tag"])

    flow = expecting(flows(KINDS, mode="append"), expected)
    result = flow.run([KIND, OTHER, {"id": 3}])
    failed = {name: count for name, (verdict, count) in verdicts(result).items() if verdict == "fail"}
    assert failed == dict.fromkeys(
        [
            "between(day)",
            "between(wall)",
            "is_in(wall)",
            "between(share)",
            "is_in(flag)",
            "is_in(tag)",
            "between(large)",
        ],
        1,
    )


@pytest.mark.every_system
@in_and_out
def test_numbers_are_compared_to_the_last_digit(flows: Callable[..., Flow], path: str) -> None:
    most, large = 2**63 - 1, Decimal("99999999999999999999.5001")

    def expected(t: Tester) -> None:
        t.column("number").between(2**53 + 1, most)
        t.column("number").is_in([most, 2**53 + 1])
        t.column("large").between(None, large)
        t.column("large").is_in([large, Decimal("1.1")])

    columns = (Column(BigInt(), name="id", primary_key=True), Column(BigInt(), name="number"))
    table = Table("analytics", "exact", (*columns, Column(Numeric(30, 4), name="large")))
    flow = expecting(flows(table, mode="append"), expected)
    good = [{"id": 1, "number": most, "large": large}, {"id": 2, "number": 2**53 + 1, "large": Decimal("1.1000")}]
    result = flow.run([*good, {"id": 3, "number": 2**53, "large": large + Decimal("0.0001")}])
    assert {count for name, (_, count) in verdicts(result).items() if "number" in name or "large" in name} == {1}


@in_and_out
def test_events_of_a_key_are_set_aside_one_by_one(flows: Callable[..., Flow], path: str) -> None:
    flow = flows(ORDERS, mode="scd2", keys=["id"], event_timestamp_column="at")
    flow = expecting(flow, lambda t: t.column("amount").between(0, 100), "reject")
    day = timedelta(days=1)
    given = [Decimal(1), Decimal(-2), Decimal(3)]
    rows = [{**GOOD[0], "amount": amount, "at": START + n * day} for n, amount in enumerate(given)]
    result = flow.run(rows)
    assert (result["rows_inserted"], result["rows_rejected"]) == (2, 1)
    assert [row["amount"] for row in flow.versions()] == [Decimal(1), Decimal(3)]


def test_a_load_without_rows_has_nothing_to_measure(flows: Callable[..., Flow]) -> None:
    flow = expecting(flows(ORDERS, mode="append"), lambda t: t.column("amount").between(0, 100), "fail")
    assert flow.run([])["quality"]["outcome"] == "empty"
    strict = expecting(flow, lambda t: t.row_count(at_least=1), "fail")
    with pytest.raises(QualityCheckFailed, match="row_count: 0 rows"):
        strict.run([])


def test_a_relation_to_another_table_is_measured(flows: Callable[..., Flow]) -> None:
    known = flows(Table("analytics", "known", ORDERS.columns), name="known", mode="append")
    known.run([GOOD[0], {**GOOD[1], "code": "zz"}])
    flow = expecting(flows(ORDERS, mode="append"), lambda t: t.column("code").exists_in("analytics.known", "code"))
    assert verdicts(flow.run(GOOD))["exists_in(code)"] == ("fail", 1)


@in_and_out
def test_freshness_counts_what_the_target_keeps(flows: Callable[..., Flow], path: str) -> None:
    flow = expecting(flows(ORDERS, mode="merge"), lambda t: t.freshness("at", within="3h"))
    stale = {**GOOD[0], "id": 9, "at": START - timedelta(days=9)}
    assert verdicts(flow.run([stale]))["freshness(at)"] == ("fail", None)
    assert verdicts(flow.run(GOOD))["freshness(at)"] == ("pass", 0)
    assert verdicts(flow.run([stale]))["freshness(at)"] == ("pass", 0)
    assert verdicts(flow.run([stale]))["freshness(at)"] == ("fail", None)


@in_and_out
def test_one_that_cannot_be_measured_warns_or_ends_the_load(flows: Callable[..., Flow], path: str) -> None:
    def broken(t: Tester) -> None:
        t.query("lost", "SELECT 1 FROM rows, analytics.nowhere", severity="warn")
        t.python("raises", lambda rows: len(rows) // 0, severity="warn")
        t.column("amount").between(0, 100)

    flow = expecting(flows(ORDERS, mode="append"), broken)
    result = flow.run(GOOD)
    assert result["rows_inserted"] == 3
    assert result["quality"]["outcome"] == "warn"
    assert verdicts(result)["lost"] == ("error", None)
    assert verdicts(result)["between(amount)"] == ("pass", 0)
    raised = next(one for one in result["quality"]["checks"] if one["name"] == "raises")
    assert "ZeroDivisionError" in raised["message"]
    strict = expecting(flow, lambda t: t.query("lost", "SELECT 1 FROM rows, analytics.nowhere"), "fail")
    with pytest.raises(QualityUnrunnable, match="'lost' could not be measured"):
        strict.run([{**GOOD[0], "id": 11}])
    assert len(flow.rows()) == 3


def test_a_truncate_of_which_nothing_is_left_keeps_the_old_rows(flows: Callable[..., Flow]) -> None:
    flow = expecting(flows(ORDERS, mode="truncate"), lambda t: t.column("amount").between(0, 100), "reject")
    flow.run(GOOD)
    with pytest.raises(ValueError, match="would remove every row"):
        flow.run(BAD)
    assert len(flow.rows()) == 3


def test_expectations_can_be_left_out_which_is_told(
    flows: Callable[..., Flow], monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = expecting(flows(ORDERS, mode="append"), lambda t: t.row_count(at_least=9), "fail")
    monkeypatch.setenv("EMATIX_SKIP_QUALITY", "1")
    assert flow.run(GOOD)["quality"] == {"outcome": "skipped", "checks": []}


@in_and_out
def test_a_target_without_expectations_says_nothing_of_quality(flows: Callable[..., Flow], path: str) -> None:
    assert "quality" not in flows(ORDERS, mode="append").run(GOOD)
