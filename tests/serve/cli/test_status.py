"""`flow status`, `flow next` and `flow dag`: what they show of one small project, and that looking changes nothing."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.commit.runlog.open import open_run_log, sqlite_run_log
from ematix_flow.commit.runlog.records import PeriodicJob
from ematix_flow.declare.project import load_module
from ematix_flow.engine.schedule.heartbeat import LEADER
from ematix_flow.engine.schedule.run_due import run_due
from ematix_flow.engine.schedule.slot_run import SlotRunner
from ematix_flow.serve.cli.commands.next import as_dict, upcoming_slots

if TYPE_CHECKING:
    from collections.abc import Callable

    Flow = Callable[..., Any]

SRC = str(Path(__file__).parents[3] / "src")
NIGHTS = """
from ematix_flow import ematix, pipeline

@pipeline.register(name="raw", schedule="0 2 * * *", timezone="Europe/Berlin")
def raw():
    return {"rows": 1}

@pipeline.register(name="clean", schedule="30 2 * * *", depends_on=["raw"], retry={"max_attempts": 3, "base_secs": 600})
def clean():
    raise ValueError("dirt")

@pipeline.register(name="report", schedule=None, depends_on=["raw", "clean"])
def report():
    return {}

@pipeline.register(name="mail", schedule=None, depends_on=["report"])
def mail():
    return {}

ematix.workflow(name="monthly", jobs=["mail"], triggered_by="clean")
"""
LOG = "log.db"


@pytest.fixture
def nights(project: Path) -> Path:
    (project / "nights.py").write_text(NIGHTS, encoding="utf-8")
    return project


def test_the_table_has_a_line_for_everything_declared(flow: Flow, nights: Path) -> None:
    result = flow("status", "-m", "nights")
    assert re.split(r" {2,}", result.out.splitlines()[0]) == [
        "NAME", "SCHEDULE", "LAST RUN", "OUTCOME", "RETRY", "NEXT RUN", "DEPENDS ON",
    ]  # fmt: skip
    shown = {line.split()[0]: line for line in result.out.splitlines()[1:]}
    assert list(shown) == ["clean", "mail", "monthly", "raw", "report"]
    assert "30 2 * * *" in shown["clean"]
    assert "0/3 (fixed)" in shown["clean"]
    assert shown["clean"].endswith("raw")
    assert "0 2 * * * Europe/Berlin" in shown["raw"]
    assert "no retry" in shown["raw"]
    assert "(workflow)" in shown["monthly"]
    assert "(unscheduled)" in shown["report"]
    assert result.code == 0


def test_attempts_are_shown_as_they_pass(flow: Flow, nights: Path) -> None:
    sqlite_run_log(LOG)
    load_module("nights")
    log, night = sqlite_run_log(LOG), datetime.now(UTC).replace(hour=2, minute=30, second=5, microsecond=0)
    log.record_run("raw", night, True)

    def cell() -> str:
        rows = flow("status", "-m", "nights", "--run-log-path", LOG).out.splitlines()
        return next(line for line in rows if line.startswith("clean"))

    run_due(SlotRunner(log, now=night))
    assert f"1/3 next>{(night + timedelta(seconds=600)):%Y-%m-%dT%H:%M:%SZ}" in cell()
    assert "failure" in cell()
    for number in (1, 2):
        run_due(SlotRunner(log, now=night + timedelta(seconds=601 * number)))
    assert "3/3 gave up" in cell()


def test_json_is_a_list_for_programs(flow: Flow, nights: Path) -> None:
    output = json.loads(flow("status", "-m", "nights", "--format", "json").out)
    assert [one["name"] for one in output] == ["clean", "mail", "monthly", "raw", "report"]
    assert output[0]["max_attempts"] == 3
    assert output[2]["reason"] == "waits for clean"


def test_why_something_waits_is_told_beside_the_table(flow: Flow, nights: Path) -> None:
    flow("pause", "raw", "-m", "nights")
    result = flow("status", "-m", "nights")
    assert "(paused)" in next(line for line in result.out.splitlines() if line.startswith("raw"))
    assert "monthly: waits for clean" in result.err
    output = json.loads(flow("status", "-m", "nights", "--format", "json").out)
    assert (output[3]["state"], output[3]["next_run_at"]) == ("paused", None)


@pytest.mark.slow
def test_watching_shows_what_changes_until_it_is_stopped(nights: Path, flow: Flow) -> None:
    watch = subprocess.Popen(
        [sys.executable, "-m", "ematix_flow", "status", "-m", "nights", "--watch", "0.1", "--format", "json"],
        env={**os.environ, "PYTHONPATH": SRC}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watch.stdout is not None
    try:
        assert watch.stdout.readline() == "[\n"
        flow("pause", "raw", "-m", "nights")
        assert any('"paused"' in line for line in watch.stdout)
        watch.send_signal(signal.SIGINT)
        watch.communicate(timeout=30)
        assert watch.returncode == 130
    finally:
        watch.kill()
        watch.wait()


def test_slots_come_in_order_with_the_time_that_the_clocks_of_their_zone_show(nights: Path) -> None:
    load_module("nights")
    night = datetime(2026, 3, 28, 12, tzinfo=UTC)
    shown = [as_dict(*one) for one in upcoming_slots(night, night + timedelta(hours=24))]
    # On this night Berlin has no 02:00; the slot comes right after the gap.
    assert [(one["name"], one["at"], one["local"]) for one in shown] == [
        ("raw", "2026-03-29T01:00:00Z", "2026-03-29T03:00:00+02:00"),
        ("clean", "2026-03-29T02:30:00Z", "2026-03-29T02:30:00+00:00"),
    ]


def test_next_shows_the_coming_hours(flow: Flow, nights: Path) -> None:
    result = flow("next", "-m", "nights", "--hours", "24")
    assert result.out.splitlines()[0].split() == ["TIME", "NAME", "LOCAL", "TIME", "TIMEZONE"]
    assert sorted(line.split()[1] for line in result.out.splitlines()[1:]) == ["clean", "raw"]
    output = json.loads(flow("next", "-m", "nights", "--format", "json", "--limit", "1", "--hours", "48").out)
    assert len(output) == 1
    assert set(output[0]) == {"at", "name", "kind", "local", "timezone"}


def test_nothing_to_come_is_told_in_words(flow: Flow, project: Path) -> None:
    result = flow("next", "-m", "json")
    assert (result.code, result.out, result.err) == (0, "", "nothing fires in the next 24 hours.\n")


def test_the_tree_shows_what_waits_for_what(flow: Flow, nights: Path) -> None:
    result = flow("dag", "-m", "nights")
    assert result.out.splitlines() == [
        "raw [never ran]",
        "├── clean [never ran]",
        "│   ├── report [never ran]",
        "│   │   └── mail [never ran]",
        "│   └╌╌ workflow monthly [never ran]",
        "│       └╌╌ mail [never ran]",
        "└── report [never ran] (see above)",
    ]


def test_the_graph_is_told_to_programs_and_to_mermaid(flow: Flow, nights: Path) -> None:
    output = json.loads(flow("dag", "-m", "nights", "--format", "json").out)
    assert {(edge["from"], edge["to"], edge["why"]) for edge in output["edges"]} == {
        ("raw", "clean", "depends_on"),
        ("raw", "report", "depends_on"),
        ("clean", "report", "depends_on"),
        ("report", "mail", "depends_on"),
        ("clean", "monthly", "triggers"),
        ("monthly", "mail", "job"),
    }
    drawn = flow("dag", "-m", "nights", "--format", "mermaid").out.splitlines()
    assert drawn[0] == "flowchart LR"
    assert '    n0["raw<br/>never ran"]' in drawn
    assert "    n0 --> n1" in drawn
    assert "    n1 -. sets off .-> n4" in drawn


def test_looking_leaves_the_run_log_as_it_was(flow: Flow, nights: Path) -> None:
    log = sqlite_run_log(LOG)
    log.record_run("clean", datetime.now(UTC), True)
    before = log.restore_into_process()
    for command in ("status", "dag"):
        assert flow(command, "-m", "nights", "--run-log-path", LOG).code == 0
    assert log.restore_into_process() == before


@pytest.mark.slow
def test_on_a_terminal_the_table_moves(nights: Path) -> None:
    ours, theirs = pty.openpty()
    environ = {**os.environ, "PYTHONPATH": SRC, "TERM": "xterm", "COLUMNS": "120"}
    watch = [sys.executable, "-m", "ematix_flow", "status", "-m", "nights", "--watch", "0.1"]
    with subprocess.Popen(watch, env=environ, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while b"\x1b[1A" not in shown:  # up again: the table is drawn a second time
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        with suppress(OSError):  # a terminal that nobody has any more is an error to read
            while os.read(ours, 4096):
                pass
    os.close(ours)
    assert process.returncode == 130
    assert "0 2 * * * Europe/Berlin" in shown.decode()
    assert "monthly: waits for clean" in shown.decode()


def test_status_is_narrowed_down_by_name_state_and_time(flow: Flow, nights: Path) -> None:
    flow("run", "report", "-m", "nights")

    def shown(*options: str) -> list[str]:
        return [one["name"] for one in json.loads(flow("status", "-m", "nights", *options, "--format", "json").out)]

    assert shown("raw", "m*") == ["mail", "monthly", "raw"]
    assert shown("--since", "1h") == ["report"]
    assert shown("--since", "2999-01-01") == []
    assert "report" in shown("--state", "idle")
    assert shown("--state", "running") == []
    assert "nothing that is declared is like that" in flow("status", "-m", "nights", "--state", "running").err
    result = flow("status", "-m", "nights", "raww")
    assert (result.code, "did you mean 'raw'?" in result.err) == (2, True)


def test_next_is_narrowed_down_by_name_state_and_time(flow: Flow, nights: Path) -> None:
    command = ("next", "-m", "nights", "--hours", "48", "--format", "json")
    names = {one["name"] for one in json.loads(flow(*command, "raw").out)}
    assert names == {"raw"}
    first = json.loads(flow(*command, "clean", "--since", "2026-03-01T00:00:00Z").out)[0]
    assert first["at"] == "2026-03-01T02:30:00Z"
    flow("pause", "clean", "-m", "nights")
    assert {one["name"] for one in json.loads(flow(*command, "--state", "paused").out)} == {"clean"}


def test_status_and_doctor_say_when_nobody_looks_for_what_is_due(flow: Flow, nights: Path) -> None:
    for form in ("text", "json"):
        result = flow("status", "-m", "nights", "--format", form)
        assert (
            "no scheduler is alive and no flow run-due was called lately; the run log has never seen one" in result.err
        )

    def doctor() -> tuple[str, str]:
        reports = json.loads(flow("doctor", "-m", "nights", "--format", "json").out)
        return next((one["status"], one["detail"]) for one in reports if one["name"] == "scheduler")

    assert doctor()[0] == "skip"
    assert "no scheduler is alive" in doctor()[1]
    flow("run-due", "-m", "nights", "--now", "2026-03-01T12:00:00Z")
    assert "no scheduler is alive" not in flow("status", "-m", "nights").err
    assert doctor()[1].startswith("flow run-due was called at ")
    log = open_run_log()
    claim = log.claim(LEADER, "scheduler-h1-7", 60)
    assert doctor() == ("ok", "scheduler-h1-7 leads")
    log.release(str(claim.token))
    before = log.find(PeriodicJob, "run-due")
    assert before is not None
    log.swap(before, replace(before, done_at="2026-03-01T12:00:00+00:00"))
    assert "the last one was seen at 20" in flow("status", "-m", "nights").err
