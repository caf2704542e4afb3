"""Several projects share a run log, and none sees what is of another; records from before are taken over once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ematix_flow import failpoints
from ematix_flow.commit.runlog.log import RunLog
from ematix_flow.commit.runlog.project_backend import ProjectBackend
from ematix_flow.commit.runlog.records import RequestRow
from ematix_flow.connect.config.project_name import ProjectName
from ematix_flow.records import RunRecord
from ematix_flow.run_log import Action, Backfill, Claim, Incident, PipelineState

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RECORDS = [
    PipelineState("load", "2026-03-01T12:00:00Z", "succeeded"),
    Claim("load", "token", "worker"),
    RequestRow("load", "req-1", "open"),
    Incident("load", "failed", NOW.isoformat()),
]
OWN_IDS = [Action("act-1", "run", "load"), Backfill("bf-1", "load")]

Of = Callable[..., RunLog]


@pytest.fixture
def of(log: RunLog) -> Of:
    """Return the part of one run log, of every kind, that a project sees; without a name that of no project."""

    def log_of(name: str = "", folder: str = "") -> RunLog:
        explicit = bool(name) and not name.startswith("/")
        return RunLog(ProjectBackend(log.backend.everything, ProjectName(name, explicit, folder)))

    return log_of


def run(number: int, run_id: str = "", status: str = "succeeded", **more: object) -> RunRecord:
    started = (NOW + timedelta(minutes=number)).isoformat()
    return replace(RunRecord(run_id or f"run-{number}", "load", status, started), **more)  # type: ignore[arg-type]


@pytest.mark.slow
def test_records_of_a_project_are_not_those_of_another(of: Of) -> None:
    a, b, none = of("a"), of("b"), of()
    for record in (*RECORDS, *OWN_IDS):
        kind, key = type(record), [str(getattr(record, name)) for name in type(record).key]
        stored = a.swap(None, record)
        assert stored is not None
        assert replace(stored, version=0) == record
        assert a.find(kind, *key) == stored
        assert a.all(kind) == [stored]
        assert [b.find(kind, *key), none.find(kind, *key), b.all(kind), none.all(kind)] == [None, None, [], []]
    for record in RECORDS:
        stored = a.all(type(record))[0]
        assert not b.drop(stored)
        assert b.swap(None, record) is not None, "both have one"
        assert none.swap(None, record) is not None


def test_requests_leases_and_tokens_are_of_a_project(of: Of) -> None:
    a, b = of("a"), of("/srv/b")
    first = a.open_request("load", NOW)
    other = b.open_request("load", NOW)
    assert (other.id != first.id, other.resumed) == (True, False)
    a.release_request(first)
    b.close_request(other, NOW)
    assert a.open_request("load", NOW).id == first.id
    ours, theirs = a.claim("load", "worker-a", 300), b.claim("load", "worker-b", 300)
    assert ours.acquired
    assert theirs.acquired
    assert ours.token is not None
    assert not b.heartbeat(ours.token, 300)
    assert not b.release(ours.token)
    assert of("a").heartbeat(ours.token, 300), "another process of the project"
    assert theirs.token is not None
    assert b.cancel_lease("load", "anna") == b.held(theirs.token)
    held = a.held(ours.token)
    assert held is not None
    assert not held.cancelled_by, "that of another project"
    assert b.release(theirs.token)
    assert a.heartbeat(ours.token, 300)


@pytest.mark.slow
def test_runs_with_one_id_are_kept_for_each_project(of: Of) -> None:
    a, b, none = of("a"), of("b"), of()
    a.record(run(1, "load@2026-03-01T12:00:00Z", "failed", request_id="load@2026-03-01T12:00:00Z", target="t"))
    b.record(run(2, "load@2026-03-01T12:00:00Z", request_id="load@2026-03-01T12:00:00Z", target="t", attempt=4))
    none.record(run(3))
    assert [(r.run_id, r.status, r.project) for r in a.list_runs()[0]] == [
        ("run-3", "succeeded", ""),
        ("load@2026-03-01T12:00:00Z", "failed", "a"),
    ]
    assert a.list_runs()[1] == b.list_runs(pipeline="load")[1] == 2
    assert [r.project for r in none.list_runs()[0]] == [""]
    runs, total = none.list_runs(all_projects=True)
    assert ([r.project for r in runs], total) == (["", "b", "a"], 3)
    for name in ("load@2026-03-01T12:00:00Z", "load@2026"):
        assert [log.get_run(name).status for log in (a, b)] == ["failed", "succeeded"]  # type: ignore[union-attr]
        assert none.get_run(name) is None
    assert a.get_run("run-3") == none.get_run("run-3") == run(3)
    b.record(run(5, "run-5"))
    assert a.get_run("run-5") is None
    assert a.get_run("run-5", all_projects=True) == replace(run(5), project="b")
    assert a.get_run("run-", all_projects=True) is None, "two begin like this"
    request = replace(a.open_request("load", NOW), id="load@2026-03-01T12:00:00Z")
    assert (a.next_attempt(request, "t"), b.next_attempt(request, "t")) == (2, 5)


@pytest.mark.slow
def test_a_record_from_before_is_taken_over_by_the_first_project_that_changes_it(of: Of) -> None:
    a, b, none = of("a"), of("b"), of()
    for record in RECORDS:
        kind, key = type(record), [str(getattr(record, name)) for name in type(record).key]
        none.swap(None, record)
        old, read = a.find(kind, *key), b.find(kind, *key)
        assert old is not None
        assert read is not None
        assert replace(read, version=0) == record
        assert (a.all(kind), b.all(kind), old) == ([old], [read], read)
        stored = b.swap(read, read)
        assert stored is not None
        assert replace(stored, version=0) == record
        assert b.find(kind, *key) == stored
        assert (a.find(kind, *key), a.all(kind), none.find(kind, *key)) == (None, [], None)
        assert a.swap(old, old) is None, "it is gone"
        none.swap(None, record)
        assert (a.find(kind, *key), b.all(kind)) == (None, [stored]), "a later one is of no project"
        assert b.drop(stored)
        assert b.find(kind, *key) is None


def test_an_old_open_request_is_resumed_once(of: Of) -> None:
    a, b, none = of("a"), of("b"), of()
    old = none.open_request("load", NOW)
    none.release_request(old)
    resumed = b.open_request("load", NOW)
    assert (resumed.id, resumed.resumed) == (old.id, True)
    assert not a.open_request("load", NOW).resumed


def test_what_was_asked_of_an_old_run_log_is_done_once(of: Of) -> None:
    a, b, none = of("a"), of("b"), of()
    for record in OWN_IDS:
        old = none.swap(None, record)
        assert a.all(type(record)) == b.all(type(record)) == [old]
        assert old is not None
        stored = a.swap(old, replace(old, state="taken"))
        assert b.swap(old, replace(old, state="taken")) is None
        assert (a.all(type(record)), b.all(type(record)), none.all(type(record))) == ([stored], [], [])


@pytest.mark.parametrize("point", failpoints.ADOPTION_NAMES)
def test_a_crash_while_a_record_is_taken_over_loses_it_to_nobody(of: Of, point: str) -> None:
    a, b, none = of("a"), of("b"), of()
    old = none.open_request("load", NOW)
    none.release_request(old)
    failpoints.arm(f"{point}=raise")
    try:
        with pytest.raises(failpoints.FailpointError):
            a.open_request("load", NOW)
    finally:
        failpoints.arm("")
    assert not b.open_request("load", NOW).resumed
    again = of("a").open_request("load", NOW)
    assert (again.id, again.resumed) == (old.id, True)


def test_a_record_that_an_old_process_changes_meanwhile_is_read_again(of: Of, monkeypatch: pytest.MonkeyPatch) -> None:
    a, none = of("a"), of()
    old = none.swap(None, PipelineState("load"))
    current = a.find(PipelineState, "load")
    assert old is not None
    assert current is not None
    inner = a.backend.everything
    monkeypatch.setattr(
        "ematix_flow.commit.runlog.project_backend.failpoint",
        lambda name: inner.swap(old, replace(old, attempt=7)) if name == "runlog.adopted" else None,
    )
    assert a.swap(current, replace(current, paused=True)) is None
    record = a.find(PipelineState, "load")
    assert record is not None
    assert (record.attempt, record.paused) == (7, False)
    monkeypatch.undo()
    assert a.change_state("load", lambda state: replace(state, paused=True)).attempt == 7
    assert none.find(PipelineState, "load") is None


def test_a_folder_that_gets_a_name_keeps_what_it_knew(of: Of) -> None:
    folder, named, other = of("/srv/shop"), of("shop", "/srv/shop"), of("other", "/srv/other")
    request = folder.open_request("load", NOW)
    folder.release_request(request)
    folder.record(run(1))
    assert named.list_runs()[1] == 1
    assert other.list_runs()[1] == 0
    assert not other.open_request("load", NOW).resumed
    assert named.open_request("load", NOW).id == request.id


@pytest.mark.slow
def test_whoever_forgets_what_is_over_keeps_what_other_projects_need(of: Of) -> None:
    a, b = of("a"), of("b")
    old, limit = NOW - timedelta(days=30), NOW - timedelta(days=7)
    before = {"started_at": old.isoformat()}
    for log in (a, b):
        open_ = log.open_request("load", old)
        log.record(run(1, **before))
        log.record(run(2, **before))
        log.record(run(3, **before, status="failed", request_id=open_.id, target="t", attempt=2))
        log.swap(None, PipelineState("load", run_id="run-2"))
        log.swap(None, Incident("load", "failed", old.isoformat(), closed_at=old.isoformat()))
    counts = a.prune(limit)
    assert counts["incidents"] == 2
    for log in (a, b):
        left = {one.run_id for one in log.list_runs()[0]}
        assert "run-2" in left
        assert "run-1" not in left
        again = log.open_request("load", NOW)
        assert (again.resumed, log.next_attempt(again, "t")) == (True, 3)
        assert log.all(Incident) == []


def test_a_run_log_is_opened_for_the_project_of_the_process(
    url_of: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ematix_flow.run_log import from_url

    url = url_of("sqlite")
    monkeypatch.setenv("EMATIX_FLOW_PROJECT", "a")
    from_url(url).open_request("load", NOW)
    assert from_url(url).find(RequestRow, "load") is not None
    monkeypatch.setenv("EMATIX_FLOW_PROJECT", "b")
    assert from_url(url).find(RequestRow, "load") is None
