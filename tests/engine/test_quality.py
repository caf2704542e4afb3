"""Expectations wherever a load is shown, kept, replayed or told of: they are the ones that a run measures."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, Text, failpoints, pk, register_connection  # noqa: TC001 - read from annotations
from ematix_flow.connect.config.secrets import forget_secrets, remember
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.decorators import ematix
from ematix_flow.declare.masking import REDACTED
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine import Options, apply_plan, diff_pipeline, dry_run_pipeline, preview_pipeline, run_pipeline
from ematix_flow.engine.rejects import list_rejects, replay_rejects
from ematix_flow.errors import DeclareError, PlanError, QualityCheckFailed, UnsupportedError
from ematix_flow.events import QualityMeasured
from ematix_flow.failpoints import AUDIT_NAMES, FailpointError
from ematix_flow.observe.bus import Bus
from ematix_flow.testing import run_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.declare.quality.tester import Tester
    from ematix_flow.events import Event
    from tests.engine.conftest import Warehouse

    Declare = Callable[..., Pipeline]

pytestmark = pytest.mark.slow


def no_b(t: Tester) -> None:
    t.column("name").is_in(["a", "c"])


def rows(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    return warehouse.rows(f"SELECT id, name FROM {warehouse.target} ORDER BY id")


@pytest.fixture
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def test_a_dry_run_shows_the_verdicts(warehouse: Warehouse, declare: Declare) -> None:
    pipeline = declare(warehouse, expectations=no_b)
    before = warehouse.everything()
    shown = dry_run_pipeline(pipeline)
    assert shown.ok
    assert shown.targets[0].quality["outcome"] == "fail"  # type: ignore[index]
    assert "fail  is_in(name) (warn), 1 of 2 rows" in shown.text()
    failing = dry_run_pipeline(declare(warehouse, name="strict", expectations=no_b, on_quality_failure="fail"))
    assert not failing.ok
    assert "is_in(name): 1 of 2 rows; first: {'id': 2, 'name': 'b'}" in str(failing.targets[0].dry_run_error)
    assert json.loads(failing.to_json())["targets"][0]["quality"]["outcome"] == "fail"
    assert warehouse.everything() == before


def test_a_preview_names_what_will_be_measured(duck: Warehouse, declare: Declare) -> None:
    text = preview_pipeline(declare(duck, expectations=no_b, on_quality_failure="fail")).text()
    assert "is_in(name): fails the load" in text


def test_a_kept_plan_is_measured_when_it_is_made_and_when_it_is_applied(duck: Warehouse, declare: Declare) -> None:
    pipeline = declare(duck, expectations=no_b, on_quality_failure="reject")
    plan = diff_pipeline(pipeline)
    (diff,) = plan.targets
    assert (diff.added, diff.counts.rejected) == (1, 1)
    assert "expectation is_in(name): 1 of 2 rows" in plan.text()
    done = apply_plan(plan.plan_id)
    assert (done["rows_inserted"], done["rows_rejected"], done["quality"]["outcome"]) == (1, 1, "fail")
    assert rows(duck) == [(1, "a")]


def test_a_plan_that_would_be_refused_is_not_kept(duck: Warehouse, declare: Declare) -> None:
    with pytest.raises(QualityCheckFailed, match="is_in"):
        diff_pipeline(declare(duck, expectations=no_b, on_quality_failure="fail"))


def test_a_plan_with_functions_needs_the_module_they_are_in(duck: Warehouse, declare: Declare) -> None:
    lengths: list[int] = []
    pipeline = declare(duck, expectations=lambda t: t.python("mine", lambda batch: lengths.append(len(batch))))
    plan_id = diff_pipeline(pipeline).plan_id
    assert apply_plan(plan_id)["quality"]["outcome"] == "pass"
    assert lengths == [2, 2]
    plan_id = diff_pipeline(pipeline).plan_id
    PROJECT.clear()
    with pytest.raises(DeclareError, match="its expectations are Python"):
        apply_plan(plan_id)


def test_rows_that_were_set_aside_can_be_replayed(duck: Warehouse, declare: Declare) -> None:
    def expected(t: Tester) -> None:
        t.column("name").is_in(["a", "c"])
        t.row_count(at_least=2)

    run_pipeline(declare(duck, expectations=expected, on_quality_failure="reject"))
    PROJECT.clear()
    still = declare(duck, expectations=expected, on_quality_failure="reject")
    assert replay_rejects(still, []) == {"replayed": 0, "rejected": 0, "result": None}
    assert replay_rejects(still)["rejected"] == 1
    PROJECT.clear()
    mended = declare(duck, expectations=lambda t: t.column("name").is_in(["a", "b"]), on_quality_failure="reject")
    assert replay_rejects(mended)["replayed"] == 1
    assert rows(duck) == [(1, "a"), (2, "b")]
    assert list_rejects(mended) == []


def test_a_load_that_is_wrong_as_a_whole_is_refused(
    duck: Warehouse, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ematix_flow.commit.quality.MOST", 2)
    duck.run(f"INSERT INTO {duck.orders} VALUES (3, 'd'), (4, 'e')")
    pipeline = declare(duck, expectations=no_b, on_quality_failure="reject")
    with pytest.raises(QualityCheckFailed, match="more than 2 rows of load do not satisfy") as refused:
        run_pipeline(pipeline)
    assert refused.value.audited is not None
    assert list_rejects(pipeline) == []


def test_rows_that_a_constraint_refuses_are_found_beside_them(duck: Warehouse, declare: Declare) -> None:
    pipeline = declare(duck, mode="append", expectations=no_b, on_quality_failure="reject", on_bad_row="reject")
    done = run_pipeline(pipeline)
    assert (done["rows_inserted"], done["rows_rejected"]) == (1, 1)
    duck.run(f"INSERT INTO {duck.orders} VALUES (3, 'c'), (4, 'b'), (5, 'c'), (5, 'a')")
    again = run_pipeline(pipeline)
    assert (again["rows_inserted"], again["rows_rejected"]) == (1, 5)
    assert rows(duck) == [(1, "a"), (3, "c")]
    reasons = sorted(reject.reason.partition(":")[0] for reject in list_rejects(pipeline))
    assert reasons == [
        *["does not satisfy is_in(name)"] * 3,
        *["does not satisfy unique(id)"] * 2,
        "the target would refuse the load",
    ]


def test_what_was_measured_is_told_to_observers(duck: Warehouse, declare: Declare) -> None:
    events: list[Event] = []
    bus = Bus()
    bus.subscribe(events.append)
    run_pipeline(declare(duck, expectations=no_b, alert_on_quality_warn=True), Options(bus=bus))
    with pytest.raises(QualityCheckFailed):
        run_pipeline(declare(duck, name="strict", expectations=no_b, on_quality_failure="fail"), Options(bus=bus))
    measured = [event for event in events if isinstance(event, QualityMeasured)]
    assert [(one.pipeline, one.audited.outcome, one.alert_on_warn) for one in measured] == [
        ("load", "fail", True),
        ("strict", "fail", False),
    ]


@pytest.fixture
def secret() -> Iterator[str]:
    remember("canary-secret-value")
    yield "canary-secret-value"
    forget_secrets()


def test_samples_show_no_secret(duck: Warehouse, declare: Declare, secret: str) -> None:
    duck.run(f"INSERT INTO {duck.orders} VALUES (3, 'x {secret} y'), (4, '{'w' * 190}{secret}')")
    done = run_pipeline(declare(duck, expectations=no_b))
    assert "canary" not in json.dumps(done)
    assert f"x {REDACTED} y" in json.dumps(done, ensure_ascii=False)


@pytest.mark.parametrize("point", AUDIT_NAMES)
def test_a_load_that_ends_while_it_is_measured_leaves_nothing(
    warehouse: Warehouse, declare: Declare, disarmed: None, point: str
) -> None:
    pipeline = declare(warehouse, expectations=no_b, on_quality_failure="reject")
    run_pipeline(pipeline)
    warehouse.run(f"INSERT INTO {warehouse.orders} VALUES (3, 'c'), (4, 'd')")
    before = warehouse.everything()
    failpoints.arm(f"{point}=raise@1")
    with pytest.raises(FailpointError):
        run_pipeline(pipeline)
    left = warehouse.everything()
    assert [entry for entry in left if "run_history" not in str(entry)] == [
        entry for entry in before if "run_history" not in str(entry)
    ]
    assert run_pipeline(pipeline)["rows_inserted"] == 1
    assert rows(warehouse) == [(1, "a"), (3, "c")]


def test_folders_of_files_cannot_be_measured(duck: Warehouse, declare: Declare, tmp_path: Path) -> None:
    folder = {"kind": "object_store_local", "path": str(tmp_path / "lake"), "format": "parquet"}
    register_connection(connection_from_fields("lake", folder))
    pipeline = declare(duck, mode="append", target_connection="lake", source_connection="warehouse", expectations=no_b)
    with pytest.raises(UnsupportedError, match=r"rows of .* cannot be queried") as refused:
        run_pipeline(pipeline)
    assert "postgres" in str(refused.value.hint)
    assert "object_store" not in str(refused.value.hint)


@pytest.mark.parametrize(
    ("expectations", "message"),
    [
        (lambda t: t.sql("typo", "nmae = 'a'"), "did you mean 'name'"),
        (lambda t: t.sql("total", "SUM(id) > 1"), "speaks of several rows"),
        (lambda t: t.sql("two", "1 = 1; DROP TABLE x"), "cannot be read|not one SQL expression"),
        (lambda t: t.query("other", "SELECT 1 FROM elsewhere"), "does not read the table 'rows'"),
        (lambda t: t.column("id").is_in(["one"]), "is not a number"),
        (lambda t: t.column("id").between(2, "b"), "'b' is not a number"),
        (lambda t: t.column("name").regex("a(?=b)"), "cannot look ahead"),
    ],
)
def test_what_cannot_be_measured_is_refused_when_it_is_planned(
    duck: Warehouse, declare: Declare, expectations: Any, message: str
) -> None:
    with pytest.raises((PlanError, UnsupportedError)) as refused:
        preview_pipeline(declare(duck, expectations=expectations))
    assert re.search(message, str(refused.value))


def test_users_can_test_their_expectations() -> None:
    @ematix.table(schema="mart", name="orders")
    class Orders:
        id: Annotated[BigInt, pk()]
        name: Text

    def expected(t: Tester) -> None:
        t.sql("short", "CHAR_LENGTH(`name`) < 3")
        t.column("id").exists_in("mart.elsewhere", "id", severity="fail")

    target = connection_from_fields("shop", {"kind": "mysql", "url": "mysql://nobody@nowhere.invalid/shop"})

    @ematix.pipeline(target=Orders, mode="append", target_connection=target, expectations=expected,
                     on_quality_failure="reject", source_table="raw.orders")  # fmt: skip
    def load() -> None: ...

    done = run_with(load, [{"id": 1, "name": "ab"}, {"id": 2, "name": "abc"}], target=[{"id": 9, "name": "abcdef"}])
    assert [row["id"] for row in done.rows] == [1, 9]
    assert [reject["reason"] for reject in done.rejects] == ["does not satisfy short"]
