"""A plan is kept whole and without secrets until it is applied or expires."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, Text, pk, register_connection  # noqa: TC001 - read from annotations
from ematix_flow.commit.cleanup import collect
from ematix_flow.commit.runlog.open import open_run_log
from ematix_flow.connect.base.stage import StageSpec
from ematix_flow.connect.config.serialize import written_down
from ematix_flow.declare.connection.registry import DuckDBConnection, ObjectStoreLocalConnection, connection_from_fields
from ematix_flow.declare.decorators import ematix
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine import apply_plan, diff_pipeline, run_pipeline
from ematix_flow.engine.review.compare import FILES_COUNTED
from ematix_flow.errors import DeclareError, StalePlanError, UnknownNameError
from tests.engine.conftest import NOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.engine import Options
    from tests.engine.conftest import Warehouse

    Declare = Callable[..., Pipeline]

pytestmark = pytest.mark.slow


def stages(warehouse: Warehouse) -> list[str]:
    with closing(warehouse.database.session()) as session:
        return [name for name, _ in warehouse.database.stages(session)]


def document(plan_id: str) -> Path:
    return Path.home() / ".ematix-flow" / "plans" / f"{plan_id}.json"


def later(fixed: Options, **span: int) -> Options:
    return replace(fixed, clock=replace(fixed.clock, now=lambda: NOW + timedelta(**span)))


def test_an_expired_plan_is_refused_and_tidied_up(duck: Warehouse, declare: Declare, fixed: Options) -> None:
    plan_id = diff_pipeline(declare(duck), fixed).plan_id
    assert len(stages(duck)) == 1
    with pytest.raises(StalePlanError, match="expired at 2026-01-03 03:04 UTC"):
        apply_plan(plan_id, later(fixed, days=1))
    assert stages(duck) == []
    assert duck.rows("SELECT status FROM ematix_flow.run_history") == [("expired",)]


def test_a_plan_that_is_applied_says_so_for_days(duck: Warehouse, declare: Declare, fixed: Options) -> None:
    plan_id = diff_pipeline(declare(duck), fixed).plan_id
    apply_plan(plan_id, later(fixed, hours=23))
    assert apply_plan(plan_id, later(fixed, days=3))["recovered"]


def test_staging_of_a_plan_is_spared_until_it_is_applied(duck: Warehouse, declare: Declare) -> None:
    pipeline = declare(duck)
    plan_id = diff_pipeline(pipeline).plan_id
    assert collect(duck.database, 0) == 0
    run_pipeline(declare(duck, name="other", mode="append", target=_other()))
    assert len(stages(duck)) == 1
    assert apply_plan(plan_id)["rows_inserted"] == 2
    assert stages(duck) == []


def _other() -> Any:
    @ematix.table(schema="mart", name="others")
    class Others:
        id: Annotated[BigInt, pk()]
        name: Text

    return Others


def test_staging_that_is_gone_is_told(duck: Warehouse, declare: Declare) -> None:
    plan_id = diff_pipeline(declare(duck)).plan_id
    with closing(duck.database.session()) as session:
        for name in stages(duck):
            duck.database.drop_stage(session, StageSpec(name, b""))
    with pytest.raises(StalePlanError, match="not there any more"):
        apply_plan(plan_id)


def test_a_plan_that_fails_leaves_nothing_behind(duck: Warehouse, declare: Declare) -> None:
    with pytest.raises(Exception, match="different rows for the same key"):
        diff_pipeline(declare(duck, f"SELECT 1 AS id, name FROM {duck.orders}"))
    assert stages(duck) == []
    assert not list((Path.home() / ".ematix-flow" / "plans").glob("*"))


def test_post_steps_of_sql_run_without_the_module_and_others_with_it(duck: Warehouse, declare: Declare) -> None:
    duck.run("CREATE TABLE raw.seen (n BIGINT)")
    plan_id = diff_pipeline(
        declare(duck, transforms_post=["INSERT INTO raw.seen SELECT count(*) FROM mart.orders"])
    ).plan_id
    PROJECT.pipelines.clear()
    apply_plan(plan_id)
    apply_plan(plan_id)
    assert duck.rows("SELECT n FROM raw.seen") == [(2,)]
    called: list[int] = []
    pipeline = declare(duck, transforms_post=[lambda _: called.append(1)])
    duck.run(f"UPDATE {duck.orders} SET name = 'z'")
    plan_id = diff_pipeline(pipeline).plan_id
    known = dict(PROJECT.pipelines)
    PROJECT.pipelines.clear()
    with pytest.raises(DeclareError, match="its post steps are Python"):
        apply_plan(plan_id)
    PROJECT.pipelines.update(known)
    apply_plan(plan_id)
    assert called == [1]


def test_no_secret_is_stored_and_references_stay_references(
    tmp_path: Path, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "canary-pw")
    secret = connection_from_fields("pg", {"kind": "postgres", "url": "postgresql://u:canary-pw@h/d"})
    assert (written_down(secret).settings, "secret" in written_down(secret).lacking) == (None, True)
    safe = connection_from_fields("pg", {"kind": "postgres", "url": "postgresql://u:${env:CANARY}@h/d"})
    assert written_down(safe).settings == {"kind": "postgres", "url": "postgresql://u:${env:CANARY}@h/d"}
    register_connection(DuckDBConnection(name="warehouse", path="${env:CANARY}.duckdb"))
    monkeypatch.chdir(tmp_path)
    pipeline = declare(SimpleNamespace(kind="duckdb", target="mart.orders", orders="(SELECT 1 AS id, 'a' AS name)"))
    result = diff_pipeline(pipeline)
    text = document(result.plan_id).read_text()
    assert "${env:CANARY}.duckdb" in text
    assert document(result.plan_id).stat().st_mode & 0o777 == 0o600
    assert json.loads(text)["format"] == 3
    monkeypatch.setenv("CANARY", str(tmp_path / "elsewhere"))
    with pytest.raises(StalePlanError, match="leads to another place"):
        apply_plan(result.plan_id)
    assert not (tmp_path / "elsewhere.duckdb").exists()


@pytest.mark.parametrize("mode", ["append", "truncate"])
def test_rows_of_a_folder_of_files_are_counted(tmp_path: Path, duck: Warehouse, declare: Declare, mode: str) -> None:
    register_connection(ObjectStoreLocalConnection(name="lake", path=str(tmp_path / "lake"), format="csv"))
    pipeline = declare(duck, source_connection="warehouse", target_connection="lake", mode=mode)
    files = (tmp_path / "lake" / "mart" / "orders").glob
    for removed in (0, 2 if mode == "truncate" else 0):
        before = sorted(files("*.csv"))
        result, other = diff_pipeline(pipeline), diff_pipeline(pipeline)
        (diff,) = result.targets
        assert (diff.added, diff.removed, diff.notes[-1]) == (2, removed, FILES_COUNTED)
        assert sorted(files("*.csv")) == before
        assert (apply_plan(result.plan_id)["rows_deleted"], len(list(files("*.csv")))) == (
            removed,
            len(before) + 1 - bool(removed),
        )
        with pytest.raises(StalePlanError):
            apply_plan(other.plan_id)
    assert apply_plan(result.plan_id)["recovered"]


def test_an_unknown_plan_is_told_with_the_nearest(duck: Warehouse, declare: Declare) -> None:
    plan_id = diff_pipeline(declare(duck)).plan_id
    for wrong in (plan_id[:-1] + "x", "../run_log"):
        with pytest.raises(UnknownNameError, match="there is no plan"):
            apply_plan(wrong)
    with pytest.raises(UnknownNameError) as error:
        apply_plan(plan_id[:-1] + "x")
    assert plan_id in str(error.value.hint)


def test_its_run_is_in_the_run_log(duck: Warehouse, declare: Declare) -> None:
    plan_id = diff_pipeline(declare(duck)).plan_id
    assert open_run_log().list_runs()[1] == 0
    done = apply_plan(plan_id)
    (run,), _ = open_run_log().list_runs()
    assert (run.run_id, run.request_id, run.status, run.rows_inserted) == (done["run_id"], plan_id, "succeeded", 2)
