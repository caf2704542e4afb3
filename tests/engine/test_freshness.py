from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import (
    BigInt,  # noqa: TC001 - read from annotations
    ManagedTable,
    PostgresConnection,
    SQLiteConnection,
    TimestampTZ,  # noqa: TC001 - read from annotations
    config,
    ematix,
    pk,
    register_connection,
)
from ematix_flow.declare.pipeline.function_pipeline import register
from ematix_flow.observe.bus import Bus
from ematix_flow.quality import FreshnessEvaluator, evaluate_freshness, register_freshness_sla, registered_slas
from ematix_flow.records import RunRecord
from ematix_flow.run_log import SqliteRunLog

if TYPE_CHECKING:
    from ematix_flow.events import Event

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Events(ManagedTable):
    __schema__ = "main"
    __tablename__ = "events"

    id: Annotated[BigInt, pk()]
    at: TimestampTZ


@pytest.fixture
def log(tmp_path: Path) -> SqliteRunLog:
    return SqliteRunLog(tmp_path / "run_log.db")


def succeeded(log: SqliteRunLog, pipeline: str, at: datetime, target: str = "main.events") -> None:
    run = RunRecord(f"{pipeline}-{at}", pipeline, "succeeded", at.isoformat(), at.isoformat(), target=target)
    log.record(run)


def declared(**options: Any) -> None:
    connection = SQLiteConnection(name="lite", path="lite.db")

    @ematix.pipeline(target=Events, target_connection=connection, mode="append", source_table="main.raw", **options)
    def load() -> None: ...


def test_without_a_success_it_is_too_old_and_a_success_makes_it_fresh(log: SqliteRunLog) -> None:
    declared(freshness_sla="6h")
    (never,) = evaluate_freshness(now=NOW, run_log=log)
    assert (never.pipeline, never.target, never.state, never.lag) == ("load", "main.events", "breached", None)
    succeeded(log, "load", NOW - 5 * HOUR)
    log.record(RunRecord("f", "load", "failed", NOW.isoformat(), NOW.isoformat(), target="main.events"))
    (freshness,) = evaluate_freshness(now=NOW, run_log=log)
    assert (freshness.state, freshness.lag, freshness.basis) == ("warning", 5 * HOUR, "last success")


def test_the_newest_value_of_a_column_counts_where_there_is_one(log: SqliteRunLog) -> None:
    declared(freshness_sla="6h", freshness_column="at")
    succeeded(log, "load", NOW)
    (missing,) = evaluate_freshness(now=NOW, run_log=log)
    assert (missing.state, missing.basis) == ("breached", "newest at")
    assert not Path("lite.db").exists()
    with closing(sqlite3.connect("lite.db")) as connection, connection:
        connection.execute("CREATE TABLE events (id BIGINT, at TIMESTAMPTZ)")
        connection.execute("INSERT INTO events VALUES (1, '2026-01-02 11:00:00.000000+00:00'), (2, NULL)")
    (freshness,) = evaluate_freshness(now=NOW, run_log=log)
    assert (freshness.state, freshness.lag, freshness.last) == ("healthy", HOUR, NOW - HOUR)


def test_a_table_that_cannot_be_asked_is_judged_by_its_last_success(log: SqliteRunLog) -> None:
    declared(freshness_sla="6h", freshness_column="at")
    Path("lite.db").write_text("this is no database, but it is long enough to be taken for one")
    succeeded(log, "load", NOW)
    (freshness,) = evaluate_freshness(now=NOW, run_log=log)
    assert (freshness.state, freshness.basis) == ("healthy", "last success")
    assert "could not be queried" in freshness.note


@pytest.mark.service
@pytest.mark.parametrize(
    ("newest", "state"),
    [("infinity", "healthy"), ("20000-01-02 03:04:05+00", "healthy"), ("0044-03-15 00:00:00+00 BC", "breached")],
)
def test_a_time_that_python_cannot_hold_is_newest_too(
    log: SqliteRunLog, postgres_url: str, newest: str, state: str
) -> None:
    connection = config.connect(url=postgres_url)
    connection.execute("CREATE TABLE events (id BIGINT, at TIMESTAMPTZ)")
    connection.execute(f"INSERT INTO events VALUES (1, '{newest}')")
    connection.close()
    register_connection(PostgresConnection("far", url=postgres_url))

    class Far(ManagedTable):
        __schema__ = "public"
        __tablename__ = "events"

        id: Annotated[BigInt, pk()]
        at: TimestampTZ

    @ematix.pipeline(
        target=Far,
        target_connection="far",
        mode="append",
        source_table="public.raw",
        freshness_sla="6h",
        freshness_column="at",
    )
    def load() -> None: ...

    (freshness,) = evaluate_freshness(now=NOW, run_log=log)
    assert (freshness.state, freshness.basis, freshness.note) == (state, "newest at", "")
    assert freshness.to_dict()["last"]


def test_a_newest_value_that_is_no_time_is_judged_by_the_last_success(log: SqliteRunLog) -> None:
    declared(freshness_sla="6h", freshness_column="at")
    with closing(sqlite3.connect("lite.db")) as connection, connection:
        connection.execute("CREATE TABLE events (id BIGINT, at TIMESTAMPTZ)")
        connection.execute("INSERT INTO events VALUES (1, 'yesterday')")
    succeeded(log, "load", NOW)
    (freshness,) = evaluate_freshness(now=NOW, run_log=log)
    assert (freshness.state, freshness.basis) == ("healthy", "last success")
    assert "'yesterday', which is no instant" in freshness.note


def test_limits_can_be_registered_for_any_pipeline(log: SqliteRunLog) -> None:
    @register(name="plain", schedule="0 3 * * *")
    def plain() -> None: ...

    declared(freshness_sla="6h")
    register_freshness_sla("plain", "1d")
    register_freshness_sla("load", 60)
    assert registered_slas() == {"load": timedelta(minutes=1), "plain": timedelta(days=1)}
    succeeded(log, "plain", NOW - 2 * HOUR, target="")
    (only,) = evaluate_freshness(["plain"], now=NOW, run_log=log)
    assert only.state == "healthy"
    with pytest.raises(ValueError, match="negative"):
        register_freshness_sla("plain", -1)


def test_only_the_edges_into_and_out_of_breached_are_told(log: SqliteRunLog) -> None:
    declared(freshness_sla="1h")
    events: list[Event] = []
    bus = Bus()
    bus.subscribe(events.append)
    evaluator = FreshnessEvaluator(bus, log)
    succeeded(log, "load", NOW)
    for minutes in (0, 50, 61, 70, 80):
        evaluator.evaluate(NOW + timedelta(minutes=minutes))
    succeeded(log, "load", NOW + 2 * HOUR)
    evaluator.evaluate(NOW + 2 * HOUR)
    assert [(one.state, one.before) for one in events] == [("breached", "warning"), ("healthy", "breached")]  # type: ignore[attr-defined]


def test_a_first_look_that_finds_it_too_old_is_told(log: SqliteRunLog) -> None:
    declared(freshness_sla="1h")
    events: list[Event] = []
    bus = Bus()
    bus.subscribe(events.append)
    FreshnessEvaluator(bus, log).evaluate(NOW)
    assert [(one.state, one.before, one.lag_seconds) for one in events] == [("breached", "", None)]  # type: ignore[attr-defined]
