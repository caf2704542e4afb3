"""What every run log promises about runs, requests and how long they are remembered."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ematix_flow.commit.runlog.records import RequestRow
from ematix_flow.errors import RunError, UnknownNameError
from ematix_flow.records import Request, RunRecord
from ematix_flow.run_log import Action, Incident, PipelineState

if TYPE_CHECKING:
    from ematix_flow.run_log import RunLog

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def run(number: int, pipeline: str = "p", status: str = "succeeded", **more: object) -> RunRecord:
    started = (NOW + timedelta(minutes=number)).isoformat()
    return replace(RunRecord(f"run-{number:03d}", pipeline, status, started), **more)  # type: ignore[arg-type]


def test_runs_come_back_as_they_were_written(log: RunLog) -> None:
    whole = run(
        1, "p ~/x", "failed", finished_at="2026-03-01T13:00:00+00:00", attempt=3, failed_step="s", failed_watermark="w",
        error_summary="it's\nlost", kind="replay", rows_inserted=1, rows_updated=2, rows_deleted=0, rows_rejected=4,
        target="t", request_id="req-1", extras={"path": "ü", "list": [1, None]},
    )  # fmt: skip
    log.record(whole)
    log.record_run_record(run(2))
    assert log.get_run("run-001") == whole
    assert log.list_runs() == ([run(2), whole], 2)


def test_texts_that_no_database_takes_are_changed_a_little(log: RunLog) -> None:
    log.record(run(1, error_summary="a\0b \udc80 ü", extras={"file": "\udc80\0"}))
    assert log.reconcile() == 0
    record = log.get_run("run-001")
    assert record is not None
    assert record.error_summary == "a\\0b \\udc80 ü"
    state = log.change_state("p", lambda state: replace(state, error="\udc80\0"))
    assert log.find(PipelineState, "p") == state


def test_a_run_is_replaced_by_its_id(log: RunLog) -> None:
    log.record(run(1, status="running"))
    log.record(run(1, status="succeeded", rows_inserted=7))
    later = replace(run(1, status="failed"), started_at=(NOW + timedelta(days=1)).isoformat())
    log.record(later)
    assert log.list_runs() == ([later], 1)
    assert log.get_run("run-001") == later
    assert log.list_runs(status="succeeded") == ([], 0)


def test_progress_is_written_while_a_run_goes_on_and_never_after_its_end(log: RunLog) -> None:
    begun = run(1, status="running", request_id="q", extras={"pid": 1})
    log.record(begun)
    log.show_progress(replace(begun, extras={"pid": 1, "rows_staged": 5}))
    again = log.get_run("run-001")
    assert again is not None
    assert (again.status, again.extras) == ("running", {"pid": 1, "rows_staged": 5})
    assert [one.run_id for one in log.running_runs(5)] == ["run-001"]
    log.record(replace(begun, status="succeeded", extras={}))
    log.show_progress(replace(begun, extras={"pid": 1, "rows_staged": 9}))
    ended = log.get_run("run-001")
    assert ended is not None
    assert (ended.status, ended.extras) == ("succeeded", {})
    assert log.list_runs()[1] == 1
    log.show_progress(run(2, status="running"))
    assert log.get_run("run-002") is None


def test_names_of_any_length_are_kept(log: RunLog) -> None:
    long = replace(run(1), run_id="r" * 200, pipeline="p~" * 100)
    odd = replace(run(2), run_id=".odd", pipeline="..")
    for one in (long, odd):
        log.record(one)
        log.set_pause(one.pipeline)
        assert log.list_runs(pipeline=one.pipeline) == ([one], 1)
        assert log.get_run(one.run_id[:9]) == one
    assert set(log.restore_into_process()) == {long.pipeline, odd.pipeline}


def test_lists_are_newest_first_in_pages_and_by_pipeline_and_status(log: RunLog) -> None:
    runs = [run(n, "pq"[n % 2], ("failed", "succeeded", "succeeded")[n % 3]) for n in range(9)]
    for one in (runs[4], *runs[:4], *runs[5:]):
        log.record(one)
    newest = runs[::-1]
    assert log.list_runs(limit=2) == (newest[:2], 9)
    assert log.list_runs(limit=2, offset=8) == (newest[8:], 9)
    assert log.list_runs(pipeline="p") == ([one for one in newest if one.pipeline == "p"], 5)
    expected = [one for one in newest if (one.pipeline, one.status) == ("q", "succeeded")]
    assert log.list_runs(pipeline="q", status="succeeded", limit=1) == (expected[:1], len(expected))
    assert log.list_runs(pipeline="P") == ([], 0)


def test_the_beginning_of_an_id_is_enough_when_no_other_has_it(log: RunLog) -> None:
    log.record(replace(run(1), run_id="abc%_1"))
    log.record(replace(run(2), run_id="abd:x:2"))
    for name, expected in (("abc", "abc%_1"), ("abd:", "abd:x:2"), ("abd:x:2", "abd:x:2"), ("abc%", "abc%_1")):
        assert getattr(log.get_run(name), "run_id", None) == expected
    for name in ("ab", "a", "", "abc_", "ABC", "nothing"):
        assert log.get_run(name) is None


def test_attempts_at_a_target_of_a_request_are_counted(log: RunLog) -> None:
    request = log.open_request("p", NOW)
    assert log.next_attempt(request, "s.t") == 1
    log.record(run(1, status="failed", request_id=request.id, target="s.t"))
    log.record(run(2, status="failed", request_id=request.id, target="s.t", attempt=2))
    log.record(run(3, request_id=request.id, target="s.other"))
    assert [log.next_attempt(request, target) for target in ("s.t", "s.other", "s")] == [3, 2, 1]


def test_a_request_is_resumed_until_it_is_done(log: RunLog) -> None:
    first = log.open_request("p", NOW)
    assert (first.resumed, first.opened_at) == (False, NOW.isoformat())
    log.release_request(first)
    again = log.open_request("p", NOW + timedelta(hours=1))
    assert (again.id, again.resumed, again.opened_at) == (first.id, True, first.opened_at)
    assert log.open_request("q", NOW).id != first.id
    log.close_request(again, NOW)
    new_request = log.open_request("p", NOW)
    assert (new_request.id != first.id, new_request.resumed) == (True, False)
    log.close_request(first, NOW)
    assert log.open_request("p", NOW).id == new_request.id, "to close an old request again changes nothing"
    assert log.open_request("p", NOW, new=True).id != new_request.id


def test_a_request_of_a_living_process_is_left_to_it(log: RunLog) -> None:
    request = log.open_request("p", NOW)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        row = log.find(RequestRow, "p")
        assert row is not None
        stat = Path(f"/proc/{other.pid}/stat").read_text()
        log.swap(row, replace(row, pid=other.pid, pid_started=stat.rpartition(")")[2].split()[19]))
        with pytest.raises(RunError, match=f"running already, in process {other.pid}"):
            log.open_request("p", NOW, new=True)
        log.finish_request(request, "null")
        with pytest.raises(RunError, match=f"running already, in process {other.pid}"):
            log.open_request("p", NOW)
        other.communicate(b"\n")
    assert log.open_request("p", NOW).id == request.id, "its process is gone"
    row = log.find(RequestRow, "p")
    assert row is not None
    assert row.pid == os.getpid()
    log.swap(row, replace(row, pid=1, pid_started="1", host="another-host"))
    assert log.open_request("p", NOW).resumed, "a process of another host is left to the fence"


def test_a_finished_request_keeps_its_result_until_it_is_closed(log: RunLog) -> None:
    first = log.open_request("p", NOW)
    log.finish_request(first, '{"rows": 2}')
    again = log.open_request("p", NOW)
    assert (again.id, again.resumed, again.result) == (first.id, True, '{"rows": 2}')
    log.prune(NOW + timedelta(days=400))
    assert log.open_request("p", NOW).result == '{"rows": 2}', "whoever closes it has yet to come"
    log.close_request(again, NOW)
    new_request = log.open_request("p", NOW)
    assert (new_request.id != first.id, new_request.resumed, new_request.result) == (True, False, "")
    log.finish_request(new_request, "null")
    assert log.open_request("p", NOW, new=True).result == ""


def test_a_request_says_how_its_last_attempt_ended(log: RunLog) -> None:
    first = log.open_request("p", NOW)
    log.release_request(first)
    assert log.open_request("p", NOW).ended == "failed"
    assert log.open_request("p", NOW).ended == "", "that attempt could not say anything"
    log.release_request(first, "stopped")
    assert log.open_request("p", NOW).ended == "stopped"


@pytest.mark.slow
def test_what_is_over_is_forgotten_but_nothing_that_is_needed(log: RunLog) -> None:
    old, limit = NOW - timedelta(days=30), NOW - timedelta(days=7)
    resumable = log.open_request("open", old)
    log.close_request(log.open_request("done", old), old)
    before = {"started_at": old.isoformat()}
    for one in (
        run(1, **before),
        run(2, **before, status="running"),
        run(3, **before, request_id=resumable.id, target="t", attempt=4, status="failed"),
        run(4, **before),
        run(5),
    ):
        log.record(one)
    log.swap(None, PipelineState("p", run_id="run-004"))
    log.swap(None, Action("act-1", "run", "p", state="done", ended_at=old.isoformat()))
    log.swap(None, Action("act-2", "run", "p", asked_at=old.isoformat()))
    log.swap(None, Incident("p", "failed", old.isoformat(), closed_at=old.isoformat()))
    log.swap(None, Incident("q", "failed", old.isoformat()))
    counts = log.prune(limit)
    assert {name: counts[name] for name in ("actions", "incidents", "requests")} == dict.fromkeys(
        ("actions", "incidents", "requests"), 1
    )
    left = {one.run_id for one in log.list_runs()[0]}
    assert {"run-002", "run-004", "run-005"} <= left
    assert "run-001" not in left
    assert log.get_run("run-001") is None
    assert log.next_attempt(resumable, "t") == 5
    assert [a.id for a in log.all(Action)] == ["act-2"]
    assert [i.pipeline for i in log.all(Incident)] == ["q"]
    assert log.open_request("open", NOW).id == resumable.id
    assert log.prune(limit) == dict.fromkeys(counts, 0)


def test_runs_that_people_ask_for_are_taken_once(log: RunLog) -> None:
    log.record(run(1, status="failed", failed_step="load"))
    restart = log.enqueue_restart("run-001", "load")
    rerun = log.enqueue_rerun(run(1))
    assert restart.startswith("req-")
    assert [(a.kind, a.run_id, a.from_step, a.note) for a in log.pending_actions("p")] == [
        ("restart", "run-001", "load", restart),
        ("rerun", "run-001", "", rerun),
    ]
    assert {one.run_id for one in log.list_runs(status="requested")[0]} == {restart, rerun}
    claimed = log.consume_requested_run(restart)
    assert claimed is not None
    assert claimed.extras == {"action": "restart", "prior_run_id": "run-001", "from_step": "load"}
    assert log.consume_requested_run(restart) is None
    assert [a.note for a in log.pending_actions()] == [rerun]
    with pytest.raises(UnknownNameError, match="no single run"):
        log.enqueue_rerun("nothing")


def test_every_attempt_has_a_record_of_its_own_under_the_id_of_its_run(log: RunLog) -> None:
    expected = [run(1, status=status, request_id="r", target="t", attempt=n, run_id="abc-1")
              for n, status in ((1, "failed"), (2, "failed"), (3, "running"))]  # fmt: skip
    for number, one in enumerate(expected):
        log.record(replace(one, started_at=f"2026-03-01T00:00:0{number}+00:00"))
    log.record(replace(expected[2], status="succeeded", started_at="2026-03-01T00:00:02+00:00"))
    runs, total = log.list_runs()
    assert total == 3
    assert [(one.run_id, one.attempt, one.status) for one in runs] == [
        ("abc-1", 3, "succeeded"),
        ("abc-1", 2, "failed"),
        ("abc-1", 1, "failed"),
    ]
    attempts = {"abc-1": 3, "abc": 3, "abc-1#1": 1, "abc-1#2": 2, "abc-1#3": 3, "abc-1#4": None}
    assert {name: getattr(log.get_run(name), "attempt", None) for name in attempts} == attempts
    assert log.next_attempt(Request("r", "p")) == 4
    log.record(run(2, run_id="abd"))
    assert (log.get_run("ab"), getattr(log.get_run("abc"), "attempt", None)) == (None, 3)


def test_the_last_run_of_a_pipeline_is_kept_whichever_attempt_it_was(log: RunLog) -> None:
    for number in (1, 2):
        log.record(run(number, request_id="r", attempt=number, run_id="abc"))
    log.change_state("p", lambda state: replace(state, run_id="abc"))
    log.prune(datetime(2100, 1, 1, tzinfo=UTC))
    record = log.get_run("abc")
    assert record is not None
    assert record.attempt == 2
