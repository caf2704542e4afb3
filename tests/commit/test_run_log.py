"""What every run log promises about records and leases, wherever it lives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from ematix_flow.run_log import Action, AttemptState, Backfill, Claim, Incident, PipelineState

if TYPE_CHECKING:
    from ematix_flow.run_log import RunLog

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
ODD = "näme / with 'quotes', \"more\" ~ and % 🙂"

RECORDS = [
    PipelineState(ODD, "2026-01-01T00:00:00+00:00", "failed", 3, error="it's\nlost", paused=True, waiting_slot="s"),
    Claim(ODD, "token", "worker", NOW.isoformat(), NOW.isoformat(), 7),
    Action("act-1", "restart", ODD, "run", "step", "note", NOW.isoformat(), "me", interruptions=2),
    Incident(ODD, "quality", NOW.isoformat(), NOW.isoformat(), count=2, gave_up=True),
    Backfill("bf-1", ODD, "2026-01-01", "2026-02-01", 86400, "[0, 1]"),
]


def test_records_come_back_as_they_were_written(log: RunLog) -> None:
    for record in RECORDS:
        key = [str(getattr(record, name)) for name in type(record).key]
        assert log.find(type(record), *key) is None
        stored = log.swap(None, record)
        assert stored is not None
        assert stored.version > 0
        assert replace(stored, version=0) == record  # type: ignore[type-var]
        assert log.find(type(record), *key) == stored
        assert log.all(type(record)) == [stored]


def test_a_record_is_replaced_only_by_who_knows_it(log: RunLog) -> None:
    first = log.swap(None, PipelineState("p"))
    assert first is not None
    assert log.swap(None, PipelineState("p", attempt=9)) is None, "there is one already"
    second = log.swap(first, replace(first, attempt=1))
    assert second is not None
    assert second.version == first.version + 1
    assert log.swap(first, replace(first, attempt=2)) is None, "it has changed meanwhile"
    assert not log.drop(first)
    assert log.find(PipelineState, "p") == second
    assert log.drop(second)
    assert log.find(PipelineState, "p") is None
    assert log.all(PipelineState) == []
    assert log.swap(second, replace(second, attempt=3)) is None, "it is gone"
    again = log.swap(None, PipelineState("p", attempt=4))
    assert again is not None
    assert again.version not in (first.version, second.version), "a version never means two things"
    assert log.swap(first, replace(first, attempt=5)) is None


def test_two_who_use_one_log_see_each_other(twice: tuple[RunLog, RunLog]) -> None:
    one, other = twice
    stored = one.swap(None, Incident("p", "failed", count=1))
    assert stored is not None
    assert other.find(Incident, "p", "failed") == stored
    newer = other.swap(stored, replace(stored, count=2))
    assert one.all(Incident) == [newer]
    assert one.swap(stored, replace(stored, count=3)) is None
    assert one.swap(newer, replace(stored, count=4)) is not None
    assert [incident.count for incident in other.all(Incident)] == [4]


def test_records_are_listed_by_their_keys(log: RunLog) -> None:
    for name in ("b", "a", "c"):
        log.swap(None, Incident(name, "failed"))
        log.swap(None, Incident(name, "freshness"))
    assert [(i.pipeline, i.kind) for i in log.all(Incident)] == [(n, k) for n in "abc" for k in ("failed", "freshness")]


def test_of_eight_who_claim_at_once_one_gets_it(twice: tuple[RunLog, RunLog]) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: twice[n % 2].claim("p", f"worker-{n}", 300), range(8)))
    (won,) = [result for result in results if result.acquired]
    assert won.token
    assert won.epoch == 1
    for lost in results:
        if not lost.acquired:
            assert (lost.token, lost.holder, lost.expires_at) == (None, won.holder, won.expires_at)


@pytest.mark.slow
def test_no_change_of_eight_at_once_is_lost(twice: tuple[RunLog, RunLog]) -> None:
    def add(number: int) -> None:
        twice[number % 2].change_state("p", lambda state: replace(state, attempt=state.attempt + 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(16)))
    state = twice[0].find(PipelineState, "p")
    assert state is not None
    assert state.attempt == 16


def test_a_lease_is_renewed_given_back_and_taken_again(log: RunLog) -> None:
    first = log.claim("p", "a", 300)
    assert first.token is not None
    assert first.expires_at is not None
    assert timedelta(seconds=290) < first.expires_at - log.backend.now() <= timedelta(seconds=300)
    assert log.heartbeat(first.token, 900)
    assert log.claim("p", "b", 300).expires_at > first.expires_at  # type: ignore[operator]
    assert log.release(first.token)
    assert not log.release(first.token)
    assert not log.heartbeat(first.token, 300)
    second = log.claim("p", "b", 300)
    assert (second.acquired, second.epoch) == (True, 2)
    assert not log.heartbeat(first.token, 300), "a token of somebody else's lease"
    assert not log.release("")
    assert log.claim("q", "b", 300).epoch == 1


def test_a_lease_that_ended_is_taken_and_its_token_means_nothing(log: RunLog) -> None:
    first = log.claim("p", "a", 0)
    second = log.claim("p", "b", 300)
    assert (first.acquired, second.acquired, second.epoch) == (True, True, 2)
    assert not log.heartbeat(str(first.token), 300)
    assert not log.release(str(first.token))
    assert log.claim("p", "c", 300).holder == "b"


def test_leases_that_ended_are_swept_once(log: RunLog) -> None:
    ended, held = log.claim("p", "a", 0), log.claim("q", "b", 300)
    (swept,) = log.sweep_expired_leases()
    assert (swept.pipeline, swept.worker_id, swept.expires_at) == ("p", "a", ended.expires_at)
    assert log.sweep_expired_leases() == []
    assert not log.heartbeat(str(ended.token), 300)
    assert [s.pipeline for s in log.sweep_expired_leases(log.backend.now() + timedelta(hours=1))] == ["q"]
    assert log.claim("q", "c", 300).epoch == held.epoch + 1


def test_the_clock_of_the_log_is_near_that_of_this_machine(log: RunLog) -> None:
    assert abs(log.backend.now() - datetime.now(UTC)) < timedelta(seconds=10)


def test_outcomes_and_attempts_are_kept_in_the_state(log: RunLog) -> None:
    log.record_run("p", NOW, success=True)
    log.record_run("p", NOW + timedelta(hours=1), success=False)
    log.record_attempt("p", AttemptState(2, NOW, gave_up=True))
    state = log.restore_into_process()["p"]
    assert (state.last_outcome, state.attempt, state.slot_status) == ("failure", 2, "gave_up")
    assert state.last_success_at < state.last_run_at
    assert log.attempt_state("p") == AttemptState(2, NOW, gave_up=True)
    log.clear_attempt_state("p")
    assert log.attempt_state("p") is None
    log.set_pause("p", paused=True)
    assert log.restore_into_process()["p"].paused
