"""`flow run-due` and `flow backfill`: what they print, with which code they end, and that calling them twice repeats nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.serve.cli.conftest import CommandResult

    Flow = Callable[..., CommandResult]

DUE = """
from ematix_flow.pipeline import register


@register(name="raw", schedule="0 * * * *")
def raw():
    print("talk of the user")
    return 7


@register(name="mart", schedule="0 * * * *", depends_on=["raw"])
def mart():
    return {"rows": 2}


@register(name="bad", schedule="0 * * * *", retry={"max_attempts": 2, "base_secs": 600})
def bad():
    raise OSError("no disk")


@register(name="after_bad", schedule="0 * * * *", depends_on=["bad"])
def after_bad():
    return None


@register(name="daily", schedule="0 3 * * *")
def daily():
    return None
"""


@pytest.fixture
def due(project: Path) -> Iterator[tuple[str, ...]]:
    """Return the arguments of `flow run-due` for a module in which something is due at noon."""
    sys.modules.pop("my_pipelines", None)  # another test may have had one of this name
    Path("my_pipelines.py").write_text(DUE, encoding="utf-8")
    yield ("run-due", "--module", "my_pipelines", "--now", "2026-03-01T12:00:05Z", "--run-log", "sqlite://log.db")
    sys.modules.pop("my_pipelines", None)


def test_what_happened_is_printed_as_json_and_told_on_stderr(flow: Flow, due: tuple[str, ...]) -> None:
    result = flow(*due)
    assert result.code == 1
    assert json.loads(result.out) == {
        "ran": [{"result": 7, "_pipeline": "raw"}, {"rows": 2, "_pipeline": "mart"}],
        "failed": [
            {"pipeline": "bad", "error": "no disk", "error_type": "OSError", "attempt_count": 1, "gave_up": False}
        ],
        "skipped": [{"pipeline": "after_bad", "reason": "upstream not fresh: bad"}],
    }
    for line in ("firing: raw (", "failed: bad (no disk)", "skipping: after_bad (upstream not fresh: bad)"):
        assert line in result.err
    assert "talk of the user" in result.err


def test_calling_it_twice_fires_nothing_twice(flow: Flow, due: tuple[str, ...]) -> None:
    flow(*due)
    result = flow(*due)
    assert result.code == 0
    again = json.loads(result.out)
    assert (again["ran"], again["failed"]) == ([], [])
    assert {one["pipeline"]: one["reason"] for one in again["skipped"]}["bad"].startswith(
        "retry backoff (attempt 1/2; "
    )


def test_alerts_and_numbers_go_where_the_options_say(flow: Flow, due: tuple[str, ...]) -> None:
    result = flow(*due, "--alerter", "stdout://", "--metrics", "stdout://")
    assert "[ALERT] " in result.err
    assert '[METRIC] pipeline_runs_total{pipeline="raw",outcome="success"} +1' in result.err
    assert '[METRIC] pipeline_runs_total{pipeline="bad",outcome="failure"} +1' in result.err
    json.loads(result.out)


def test_the_window_and_the_clock_decide_what_is_due(flow: Flow, due: tuple[str, ...]) -> None:
    later = [*due[:4], "2026-03-01T12:05:00Z", *due[5:]]
    assert json.loads(flow(*later).out) == {"ran": [], "failed": [], "skipped": []}
    assert len(json.loads(flow(*later, "--interval", "600").out)["ran"]) == 2
    refused = flow(*due[:4], "noon", *due[5:])
    assert refused.code == 2
    assert "is no instant" in refused.err


def test_what_was_missed_is_caught_up_as_asked(flow: Flow, due: tuple[str, ...]) -> None:
    flow(*due)
    later = [*due[:4], "2026-03-01T15:30:00Z", *due[5:]]
    assert json.loads(flow(*later, "--catchup", "none").out)["ran"] == []
    ran = json.loads(flow(*later, "--catchup", "all").out)["ran"]
    assert [one["_pipeline"] for one in ran].count("raw") == 3


def test_without_a_run_log_it_still_runs(flow: Flow, due: tuple[str, ...]) -> None:
    for _ in range(2):
        assert len(json.loads(flow(*due[:5], "--no-run-log").out)["ran"]) == 2


INTERVAL = ("--from", "2026-03-01T09:00:00Z", "--to", "2026-03-01T12:00:00Z", "--run-log", "sqlite://log.db")


def test_a_backfill_shows_runs_and_remembers_its_slots(flow: Flow, due: tuple[str, ...]) -> None:
    command = ("backfill", "raw", "-m", "my_pipelines", *INTERVAL)
    slots = ["2026-03-01T09:00:00Z", "2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z"]
    assert flow(*command, "--dry-run").out.split() == slots
    assert json.loads(flow(*command, "--dry-run", "--format", "json").out) == {
        "pipeline": "raw",
        "slots": slots,
        "total": 3,
    }
    few = flow(*command, "--dry-run", "--limit", "1")
    assert (few.out.split(), "the first 1 of 3 slots" in few.err) == (slots[:1], True)
    report = json.loads(flow(*command, "--format", "json").out)
    assert (report["pipeline"], report["slots"]) == ("raw", 3)
    assert report["ran"] == [{"slot": slot, "result": 7, "error": None} for slot in slots]
    again = flow(*command)
    assert again.code == 0
    assert again.err.count("had run already") == 3
    assert again.out == "raw: 0 slots ran, 3 had run already, 0 failed, 3 in all\n"
    report = json.loads(flow(*command, "--format", "json").out)
    assert (report["ran"], report["had_run"]) == ([], slots)
    assert flow(*command, "--again").err.count("had run already") == 0


def test_a_dry_run_keeps_what_an_interrupted_backfill_has_done(flow: Flow, due: tuple[str, ...]) -> None:
    command = ("backfill", "bad", "-m", "my_pipelines", *INTERVAL)
    first = flow(*command)
    assert first.code == 1
    assert "OSError: no disk" in first.err
    flow(*command, "--dry-run")
    assert "going on where it stopped" in flow(*command).err


def test_a_backfill_of_nothing_is_wrong_usage(flow: Flow, due: tuple[str, ...]) -> None:
    result = flow("backfill", "rwa", "-m", "my_pipelines", *INTERVAL)
    assert result.code == 2
    assert "raw" in result.err
    assert flow("backfill", "raw", "-m", "my_pipelines", "--from", "2026-03-01").code == 2


@pytest.mark.parametrize(
    "command",
    [
        ("run-due", "--interval", "nan"),
        ("run-due", "--interval", "inf"),
        ("run-due", "--now", "0001-01-01"),
        ("runs", "list", "--since", "99999999d"),
        ("runs", "list", "--since", "999999d"),
        ("runs", "list", "--since", "0001-01-01T00:00:00+05:00"),
        ("next", "--hours", "99999999"),
        ("next", "--hours", "nan"),
        ("backfill", "NAME", "--from", "0001-01-01", "--to", "2026-01-01"),
        ("backfill", "NAME", "--from", "2026-01-01", "--to", "9999-12-31"),
        ("scheduler", "--poll-interval", "nan"),
        ("scheduler", "--lease-seconds", "99999999999999"),
        ("status", "--watch", "nan"),
    ],
)
def test_numbers_and_instants_beyond_all_calendars_are_wrong_usage(
    flow: Flow, due: tuple[str, ...], command: tuple[str, ...]
) -> None:
    result = flow(*("daily" if argument == "NAME" else argument for argument in command), *due[1:3])
    assert result.code == 2
    assert "Traceback" not in result.err
    assert any(argument in result.err for argument in command[2:])
