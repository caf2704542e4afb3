"""One incident, one alert: from the first failure to the recovery, also when many hosts hear of it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ematix_flow import BigInt, ematix, pk  # noqa: TC001 - read from annotations
from ematix_flow.clock import Clock
from ematix_flow.errors import TransientError
from ematix_flow.events import PipelineEnded
from ematix_flow.observe.alerts.incidents import (
    AlertRules,
    Incidents,
    IncidentUpdate,
    MemoryIncidentStore,
    decide,
    declared_rules,
    freshness_update,
    quality_update,
    run_update,
)

if TYPE_CHECKING:
    from ematix_flow.observe.alerts.alert import AlertEvent
    from ematix_flow.records import Incident


@ematix.table(schema="main")
class Things:
    id: Annotated[BigInt, pk()]


START = datetime(2026, 1, 1, tzinfo=UTC)
RULES = AlertRules()
BAD = IncidentUpdate(
    "orders", "failed", bad=True, error_message="away", error_type="RunError", attempt=1, max_attempts=1
)
GOOD = IncidentUpdate("orders", "failed", bad=False, attempt=1, max_attempts=1)


def alert_kinds(steps: list[tuple[float, IncidentUpdate]], rules: AlertRules = RULES) -> list[list[str]]:
    """Return the kinds of the alerts of each piece of news, which comes so many minutes after the start."""
    incident, kinds = None, []
    for minutes, update in steps:
        incident, alerts = decide(incident, update, START + timedelta(minutes=minutes), rules)
        kinds.append([alert.kind for alert in alerts])
    return kinds


def attempt(number: int, of: int) -> IncidentUpdate:
    return replace(BAD, attempt=number, max_attempts=of, gave_up=number == of)


def test_the_first_failure_alerts_then_silence_then_one_recovery() -> None:
    steps = [(0, BAD), (5, BAD), (10, BAD), (15, GOOD), (20, GOOD), (25, BAD), (30, GOOD)]
    assert alert_kinds(steps) == [["failed"], [], [], ["recovered"], [], ["failed"], ["recovered"]]


def test_what_lasts_alerts_again_after_the_pause() -> None:
    steps = [(0, BAD), (59, BAD), (60, BAD), (61, BAD), (119, BAD), (120, BAD)]
    assert alert_kinds(steps) == [["failed"], [], ["failed"], [], [], ["failed"]]
    assert alert_kinds(steps[:3], AlertRules(timedelta(minutes=10))) == [["failed"], ["failed"], []]


def test_the_end_of_all_attempts_alerts_once() -> None:
    steps = [(0, attempt(1, 3)), (1, attempt(2, 3)), (2, attempt(3, 3)), (3, attempt(1, 3)), (5, attempt(3, 3))]
    assert alert_kinds(steps) == [["failed"], [], ["gave_up"], [], []]
    assert alert_kinds([(0, attempt(2, 2))]) == [["failed", "gave_up"]]
    assert alert_kinds([*steps, (120, attempt(3, 3))])[-1] == ["gave_up"]


def test_a_pipeline_without_a_budget_of_attempts_gives_nothing_up() -> None:
    assert alert_kinds([(0, attempt(1, 1)), (5, attempt(1, 1))]) == [["failed"], []]


def test_every_attempt_alerts_where_that_is_wanted() -> None:
    steps = [(0, attempt(1, 3)), (1, attempt(2, 3)), (2, attempt(3, 3)), (3, GOOD)]
    every = [["failed"], ["failed"], ["failed", "gave_up"], ["recovered"]]
    assert alert_kinds(steps, AlertRules(every_attempt=True)) == every


def test_quality_and_freshness_have_incidents_of_their_own() -> None:
    assert alert_kinds([(0, quality_update("orders", "3 rows")), (1, quality_update("orders", ""))]) == [
        ["quality_failed"],
        ["recovered"],
    ]
    assert alert_kinds([(0, freshness_update("orders", "old")), (9, freshness_update("orders", "old"))]) == [
        ["sla_breached"],
        [],
    ]
    alerts: list[AlertEvent] = []
    client = Incidents(MemoryIncidentStore(), alerts.append)
    for update in (BAD, quality_update("orders", "3 rows"), GOOD, quality_update("orders", "")):
        client.hear(update)
    assert [(alert.kind, alert.incident) for alert in alerts] == [
        ("failed", "failed"), ("quality_failed", "quality"), ("recovered", "failed"), ("recovered", "quality"),
    ]  # fmt: skip


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 90), st.booleans()), max_size=30))
def test_recoveries_match_failures(steps: list[tuple[int, bool]]) -> None:
    minutes, updates = 0, []
    for pause, bad in steps:
        minutes += pause
        updates.append((minutes, BAD if bad else GOOD))
    kinds = [kind for alerts in alert_kinds(updates) for kind in alerts]
    without_reminders = [kind for before, kind in zip(["", *kinds], kinds, strict=False) if kind != before]
    assert without_reminders == (["failed", "recovered"] * len(kinds))[: len(without_reminders)]
    assert kinds.count("recovered") == sum(
        1 for a, b in zip([(0, GOOD), *updates], updates, strict=False) if a[1].bad and not b[1].bad
    )


def test_an_operator_who_stops_a_run_is_no_incident() -> None:
    ended = PipelineEnded("orders", "", "slot", START, 1.0, error_message="stopped", error_type="StoppedError")
    assert run_update(ended) is None
    failed = replace(ended, error_type="RunError", attempt=2, max_attempts=3)
    assert run_update(failed) == IncidentUpdate("orders", "failed", True, "stopped", "RunError", 2, 3)


def test_a_pipeline_declares_its_own_rules() -> None:
    ematix.pipeline(name="loud", alert_every_attempt=True, realert_after="10m", target=Things, mode="append")(
        lambda _: "SELECT 1 AS id"
    )
    ematix.pipeline(name="quiet", target=Things, mode="append")(lambda _: "SELECT 1 AS id")
    assert declared_rules("loud") == AlertRules(timedelta(minutes=10), every_attempt=True)
    assert declared_rules("quiet") == declared_rules("unknown") == AlertRules(timedelta(hours=1))


class SharedStore(MemoryIncidentStore):
    """A book that ten hosts share; all of them read before one may write."""

    def __init__(self, hosts: int) -> None:
        super().__init__()
        self._all_read = threading.Barrier(hosts)
        self._first = threading.local()

    def find(self, kind: type[Incident], /, *key: str) -> Incident | None:
        incident = super().find(kind, *key)
        if not getattr(self._first, "read", False):
            self._first.read = True
            self._all_read.wait()
        return incident


def test_ten_hosts_that_hear_of_one_failure_alert_once() -> None:
    store, alerts = SharedStore(10), []
    doors = [Incidents(store, alerts.append, clock=Clock(now=lambda: START)) for _ in range(10)]
    with ThreadPoolExecutor(10) as hosts:
        list(hosts.map(lambda client: client.hear(BAD), doors))
    assert [alert.kind for alert in alerts] == ["failed"]
    (stored,) = store._records.values()
    assert (stored.count, stored.opened_at, stored.closed_at) == (10, "2026-01-01T00:00:00+00:00", "")


class AwayStore(MemoryIncidentStore):
    def find(self, *_: object) -> Incident | None:
        raise TransientError("the run log is away")


def test_without_the_run_log_a_process_still_alerts_once() -> None:
    alerts: list[AlertEvent] = []
    client = Incidents(AwayStore(), alerts.append)
    for update in (BAD, BAD, GOOD, GOOD):
        client.hear(update)
    assert [alert.kind for alert in alerts] == ["failed", "recovered"]


def test_nothing_is_sent_when_the_record_could_not_be_kept() -> None:
    class Losing(MemoryIncidentStore):
        def swap(self, *_: object) -> Incident | None:
            return None

    client = Incidents(Losing(), lambda alert: pytest.fail(f"sent {alert.kind}"))
    client.hear(BAD)
