"""Maintenance clears what loads leave behind, and nothing that anybody may still ask for."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, Maintenance, Text, ematix, pk, register_connection  # noqa: TC001 - read from annotations
from ematix_flow.clock import Clock
from ematix_flow.commit import cleanup as gc
from ematix_flow.commit import metadata_cleanup
from ematix_flow.commit.ledger import Ledger
from ematix_flow.connect.base.stage import StageColumn, StageSpec
from ematix_flow.connect.metadata import session as store_session
from ematix_flow.connect.registry import open_target
from ematix_flow.connect.types.arrow import staged_schema
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.engine import maintenance as maintaining
from ematix_flow.engine.maintenance import maintain, maintain_pipeline
from ematix_flow.errors import UnknownNameError
from ematix_flow.observe.bus import Bus

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.events import Event

NOW = datetime(2026, 5, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@ematix.table(schema="shop", maintenance=Maintenance(every=2 * DAY))
class Orders:
    id: Annotated[BigInt, pk()]
    city: Text


SERVERS = [pytest.param(kind, marks=pytest.mark.service) for kind in ("postgres", "mysql")]


@pytest.fixture(params=["duckdb", "sqlite", "object_store_local", *SERVERS])
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Pipeline:
    """Return a pipeline into a database or a folder that has been loaded once."""
    fields: dict[str, Any] = {"kind": request.param, "path": str(tmp_path / "target")}
    if request.param in ("postgres", "mysql"):
        fields = {"kind": request.param, "url": request.getfixturevalue(f"{request.param}_url")}
    if request.param == "object_store_local":
        fields["format"] = "parquet"
    register_connection(connection_from_fields("place", fields))
    register_connection(connection_from_fields("source", {"kind": "sqlite", "path": str(tmp_path / "source.db")}))

    @ematix.pipeline(target=Orders, target_connection="place", source_connection="source", mode="truncate")
    def orders(conn: object) -> str:
        return "SELECT 1 AS id, 'Berlin' AS city"

    open_target("source").session().close()
    run_pipeline(orders.pipeline, at(NOW, slot="0"))
    return orders.pipeline


def at(now: datetime, **options: Any) -> Options:
    return Options(clock=Clock(now=lambda: now, wait=lambda *_: False), **options)


def stage(name: str) -> None:
    """Leave staging as a dead load does."""
    import pyarrow as pa

    database, columns = open_target("place"), (StageColumn("id", BigInt()),)
    with closing(database.session()) as session:
        schema = staged_schema(columns).serialize().to_pybytes()
        spec = database.open_stage(session, StageSpec(name, schema, columns=columns))
    stager = database.stager(spec, 0, 0)
    stager.write(pa.record_batch([pa.array([1])], names=["id"]))
    stager.finish()


@pytest.mark.slow
def test_staging_of_dead_loads_goes_and_the_rest_stays(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    stage("stg_0123456789abcdef_000000000000")
    assert maintain_pipeline(pipeline, at(NOW))[0].steps["staging"] == {"removed": 0}
    monkeypatch.setattr(maintaining, "STAGING_SECONDS", 0.0)
    simulated = maintain_pipeline(pipeline, at(NOW), dry_run=True)[0]
    assert (simulated.status, simulated.steps["staging"]) == ("would_do", {"removed": 1})
    heard: list[Event] = []
    bus = Bus()
    bus.subscribe(heard.append)
    done = maintain_pipeline(pipeline, at(NOW, bus=bus))[0]
    assert (done.target, done.status, done.error) == ("place", "done", None)
    assert done.steps["staging"] == {"removed": 1}
    assert [event.step for event in heard if event.numbers is None] == list(done.steps)  # type: ignore[attr-defined]
    database = open_target("place")
    with closing(database.session()) as session:
        assert gc.stale(database, session, 0.0) == []


@pytest.mark.slow
def test_what_is_due_is_remembered_in_the_books(pipeline: Pipeline) -> None:
    assert maintain_pipeline(pipeline, at(NOW), due=True)[0].status == "done"
    assert maintain_pipeline(pipeline, at(NOW + DAY), due=True)[0].status == "not_due"
    assert maintain("shop.orders", at(NOW + 2 * DAY), due=True)[0].status == "done"
    last = maintain(None, at(NOW + 3 * DAY), due=True, dry_run=True)[0]
    assert (last.status, last.last) == ("not_due", NOW + 2 * DAY)
    assert maintain_pipeline(pipeline, at(NOW + 3 * DAY))[0].status == "done"


@pytest.mark.slow
def test_old_tokens_go_but_not_the_newest_of_a_pipeline(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 5):
        run_pipeline(pipeline, at(NOW + number * DAY, slot=str(number)))
    later = NOW + 92 * DAY + timedelta(hours=1)
    assert maintain_pipeline(pipeline, at(later))[0].steps["ledger"] == {"tokens": 0, "history": 0}
    monkeypatch.setattr(metadata_cleanup, "LOADS", metadata_cleanup.LoadRetention(2, metadata_cleanup.LOADS.age))
    # The loads of the first three days are older than 90 days, those of the last two are not.
    assert maintain_pipeline(pipeline, at(later), dry_run=True)[0].steps["ledger"] == {"tokens": 3, "history": 3}
    assert maintain_pipeline(pipeline, at(later))[0].steps["ledger"] == {"tokens": 3, "history": 3}
    monkeypatch.setattr(metadata_cleanup, "LOADS", metadata_cleanup.LoadRetention(1, metadata_cleanup.LOADS.age))
    assert maintain_pipeline(pipeline, at(later + 9 * DAY))[0].steps["ledger"] == {"tokens": 1, "history": 1}
    database = open_target("place")
    with closing(database.session()) as session:
        assert session.query(f"SELECT slot FROM {Ledger(database).name('ledger')}") == [("4",)]
    assert run_pipeline(pipeline, at(later, slot="4"))["path"] == "recovered"


@pytest.mark.slow
def test_superseded_books_of_a_folder_go(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {store_session.STATES: (1, 0.0), store_session.COMMITS: (1, 0.0)}
    monkeypatch.setattr(store_session, "RETAINED", rules)
    result = maintain_pipeline(pipeline, at(NOW))[0]
    if "metadata" not in result.steps:
        assert list(result.steps) == ["staging", "ledger"]
        return
    assert int(result.steps["metadata"]["removed"]) > 0
    assert maintain_pipeline(pipeline, at(NOW), dry_run=True)[0].steps["metadata"] == {"removed": 2}
    assert run_pipeline(pipeline, at(NOW, slot="0"))["path"] == "recovered"
    assert run_pipeline(pipeline, at(NOW, slot="1"))["rows_inserted"] == 1


def test_a_place_where_nothing_was_loaded_stays_so(tmp_path: Path) -> None:
    register_connection(connection_from_fields("place", {"kind": "duckdb", "path": str(tmp_path / "none" / "x.db")}))

    @ematix.pipeline(target=Orders, target_connection="place", mode="append")
    def later(conn: object) -> str:
        return "SELECT 1 AS id, 'a' AS city"

    assert [result.status for result in later.maintain()] == ["empty"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["duckdb"], indirect=True)
def test_one_place_that_fails_does_not_keep_the_others_from_it(pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_bytes(b"no database" * 100)
    register_connection(connection_from_fields("broken", {"kind": "sqlite", "path": str(tmp_path / "broken.db")}))

    @ematix.pipeline(target=Orders, target_connection="broken", mode="append")
    def failing(conn: object) -> str:
        return "SELECT 1 AS id, 'a' AS city"

    results = {result.target: result for result in maintain(None, at(NOW))}
    assert {name: result.status for name, result in results.items()} == {"place": "done", "broken": "failed"}
    assert "not a database" in str(results["broken"].error)
    with pytest.raises(UnknownNameError, match="no pipeline and no target table") as refused:
        maintain("shop.order")
    refused.match("did you mean 'shop.orders'")
