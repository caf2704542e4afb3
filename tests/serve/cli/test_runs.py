from __future__ import annotations

import gc
import json
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.base.processes import process_start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Flow = Callable[..., Any]


def test_runs_are_listed_newest_first_with_their_outcome(flow: Flow, project: Path) -> None:
    flow("run", "copy", "-m", "flows")
    flow("run", "broken", "-m", "flows")
    output = json.loads(flow("runs", "list", "--format", "json").out)
    assert [(run["pipeline"], run["status"], run["rows_inserted"]) for run in output["runs"]] == [
        ("broken", "failed", None),
        ("copy", "succeeded", 2),
    ]
    assert output["total"] == 2
    assert output["runs"][0]["error_summary"] == "KeyError: 'nothing'"


def test_runs_can_be_narrowed_down(flow: Flow, project: Path) -> None:
    flow("run", "copy", "-m", "flows")
    flow("run", "broken", "-m", "flows")
    for options in (("--pipeline", "copy"), ("--status", "succeeded")):
        output = json.loads(flow("runs", "list", *options, "--format", "json").out)
        assert [run["pipeline"] for run in output["runs"]] == ["copy"]
    result = flow("runs", "list", "--limit", "1")
    assert len(result.out.splitlines()) == 2
    assert "1 of 2 runs" in result.err


def test_a_run_is_shown_by_the_beginning_of_its_id(flow: Flow, project: Path) -> None:
    run_id = json.loads(flow("run", "copy", "-m", "flows").out)["run_id"]
    assert json.loads(flow("runs", "show", run_id[:12], "--format", "json").out)["run_id"] == run_id
    shown = flow("runs", "show", run_id).out
    assert f"run_id         {run_id}" in shown
    assert "'engine': 'database', 'engine_reason': 'the target reads the source query itself'" in shown
    result = flow("runs", "show", "nothing")
    assert (result.code, result.out) == (2, "")


def test_an_empty_run_log_is_no_error(flow: Flow) -> None:
    result = flow("runs", "list")
    assert (result.code, result.out, result.err) == (0, "", "the run log has no such runs.\n")


@pytest.mark.parametrize("option", ["--limit", "--offset"])
def test_a_number_that_no_run_log_knows_is_refused_as_one(flow: Flow, option: str) -> None:
    result = flow("runs", "list", option, "9" * 20)
    assert (result.code, result.out) == (2, "")
    assert "is not in the range" in result.err


def test_an_untidy_end_changes_no_exit_code(flow: Flow, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("the folder is locked")

    gc.collect()  # folders of other tests are not to be removed in between
    with monkeypatch.context() as locked:
        locked.setattr("shutil.rmtree", refuse)
        result = flow("run", "copy", "-m", "flows", "--no-run-log")
    assert result.code == 0
    assert "warning: the command did not end cleanly (PermissionError: the folder is locked)" in result.err


def test_ids_are_printed_so_that_commands_take_them_with_each_attempt(flow: Flow, project: Path) -> None:
    flow("run", "broken", "-m", "flows")
    flow("run", "broken", "-m", "flows")
    listed = [line.split()[0] for line in flow("runs", "list", "-m", "flows").out.splitlines()[1:]]
    shown = [json.loads(flow("runs", "show", name, "--format", "json").out) for name in listed]
    assert [(run["status"], run["attempt"]) for run in shown] == [("failed", 2), ("failed", 1)]


def test_runs_are_narrowed_down_by_time_name_and_state(flow: Flow, project: Path) -> None:
    flow("run", "copy", "-m", "flows")
    flow("run", "broken", "-m", "flows")
    for options, names in (
        (("--since", "1h"), ["broken", "copy"]),
        (("--since", "2999-01-01T00:00:00Z"), []),
        (("--since", "2020-01-01", "--name", "copy"), ["copy"]),
        (("--since", "1d", "--state", "failed"), ["broken"]),
    ):
        output = json.loads(flow("runs", "list", *options, "--format", "json").out)
        assert ([run["pipeline"] for run in output["runs"]], output["total"]) == (names, len(names))
    assert "no instant" in flow("runs", "list", "--since", "yesterday").err


def test_a_run_whose_process_is_gone_is_interrupted(flow: Flow, project: Path) -> None:
    from ematix_flow.commit.runlog.open import open_run_log
    from ematix_flow.records import RunRecord

    process = {"host": socket.gethostname(), "pid": os.getpid(), "pid_started": process_start(os.getpid())}
    log = open_run_log()
    for name, extras in (
        ("lives", process),
        ("died", {**process, "pid_started": "1"}),
        ("lost", {"leased": True, **process}),
    ):
        log.record(RunRecord(name, name, "running", "2026-03-01T00:00:00+00:00", extras=extras))

    def listed(status: str) -> list[str]:
        return sorted(
            run["run_id"]
            for run in json.loads(flow("runs", "list", "--status", status, "--format", "json").out)["runs"]
        )

    assert (listed("running"), listed("interrupted")) == (["lives"], ["died", "lost"])
    log.claim("lost", "worker", 60)
    assert listed("running") == ["lives", "lost"]
    assert "interrupted" in flow("runs", "show", "died").out
