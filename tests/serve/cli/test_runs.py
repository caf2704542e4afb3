from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    Flow = Callable[..., Any]


def test_runs_are_listed_newest_first_with_their_outcome(flow: Flow, project: Path) -> None:
    flow("run", "copy", "-m", "flows")
    flow("run", "broken", "-m", "flows")
    told = json.loads(flow("runs", "list", "--format", "json").out)
    assert [(run["pipeline"], run["status"], run["rows_inserted"]) for run in told["runs"]] == [
        ("broken", "failed", None),
        ("copy", "succeeded", 2),
    ]
    assert told["total"] == 2
    assert told["runs"][0]["error_summary"] == "KeyError: 'nothing'"


def test_runs_can_be_narrowed_down(flow: Flow, project: Path) -> None:
    flow("run", "copy", "-m", "flows")
    flow("run", "broken", "-m", "flows")
    for options in (("--pipeline", "copy"), ("--status", "succeeded")):
        told = json.loads(flow("runs", "list", *options, "--format", "json").out)
        assert [run["pipeline"] for run in told["runs"]] == ["copy"]
    said = flow("runs", "list", "--limit", "1")
    assert len(said.out.splitlines()) == 2
    assert "1 of 2 runs" in said.err


def test_a_run_is_shown_by_the_beginning_of_its_id(flow: Flow, project: Path) -> None:
    run_id = json.loads(flow("run", "copy", "-m", "flows").out)["run_id"]
    assert json.loads(flow("runs", "show", run_id[:12], "--format", "json").out)["run_id"] == run_id
    assert f"run_id         {run_id}" in flow("runs", "show", run_id).out
    said = flow("runs", "show", "nothing")
    assert (said.code, said.out) == (2, "")


def test_an_empty_run_log_is_no_error(flow: Flow) -> None:
    said = flow("runs", "list")
    assert (said.code, said.out, said.err) == (0, "", "the run log has no such runs.\n")


def test_an_untidy_end_changes_no_exit_code(flow: Flow, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("the folder is locked")

    monkeypatch.setattr("shutil.rmtree", refuse)
    said = flow("run", "copy", "-m", "flows", "--no-run-log")
    assert said.code == 0
    assert "warning: the command did not end cleanly (PermissionError: the folder is locked)" in said.err
