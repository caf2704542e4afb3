"""The run log that a command line names: one that is there is read, older ones too, and none is made by reading."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Flow = Callable[..., Any]

OLD = """
CREATE TABLE run_records (run_id TEXT PRIMARY KEY, pipeline TEXT, status TEXT, started_at TEXT, finished_at TEXT,
    attempt INTEGER, failed_step TEXT, failed_watermark TEXT, error_summary TEXT, kind TEXT, extras TEXT);
CREATE TABLE run_log (pipeline_name TEXT PRIMARY KEY, last_run_at TEXT, success INTEGER);
INSERT INTO run_records (run_id, pipeline, status, started_at, attempt, kind)
    VALUES ('copy-1', 'copy', 'succeeded', '2026-01-02T03:04:05Z', 1, 'batch');
"""


def database(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


@pytest.mark.parametrize("command", [("list",), ("show", "x")])
@pytest.mark.parametrize("option", ["--run-log-path=nowhere/x.db", "--run-log=sqlite://nowhere/x.db"])
def test_reading_a_missing_run_log_is_refused_and_makes_nothing(
    flow: Flow, command: tuple[str, ...], option: str
) -> None:
    result = flow("runs", *command, option)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: there is no run log nowhere/x.db\n")
    assert not Path("nowhere").exists()


def test_a_file_that_is_no_run_log_is_refused_and_stays_as_it_is(flow: Flow) -> None:
    Path("notes.txt").write_text("hello", encoding="utf-8")
    database(Path("other.db"), "CREATE TABLE customers (id INTEGER)")
    before = Path("other.db").read_bytes()
    for name in ("notes.txt", "other.db", "."):
        result = flow("runs", "list", "--run-log-path", name)
        assert (result.code, result.err.splitlines()[0]) == (2, f"error: {name} is no run log")
    assert Path("other.db").read_bytes() == before
    assert Path("notes.txt").read_text(encoding="utf-8") == "hello"


def test_the_run_log_of_an_earlier_version_is_read_and_written_on(flow: Flow, project: Path) -> None:
    default = Path.home() / ".ematix-flow" / "run_log.db"
    database(default, OLD)
    assert "copy-1" in flow("runs", "list").out
    assert flow("run", "copy", "-m", "flows").code == 0
    output = json.loads(flow("runs", "list", "--format", "json").out)
    assert [(run["pipeline"], run["rows_inserted"]) for run in output["runs"]] == [("copy", 2), ("copy", None)]
    assert json.loads(flow("runs", "show", "copy-1", "--format", "json").out)["extras"] == {}


def test_a_folder_is_a_run_log_too(flow: Flow, project: Path) -> None:
    assert flow("runs", "list", "--run-log", "file://logs/").code == 2
    assert not Path("logs").exists()
    assert flow("run", "copy", "-m", "flows", "--run-log", "file://logs/").code == 0
    for option in ("--run-log=file://logs", "--run-log-path=logs"):
        assert json.loads(flow("runs", "list", option, "--format", "json").out)["total"] == 1


@pytest.mark.filterwarnings("always:the run log")
def test_a_run_log_that_does_not_answer_stops_a_list_but_no_run(flow: Flow, project: Path) -> None:
    away = "postgres://reader:hunter2hunter2@127.0.0.1:1/logs"
    listed = flow("runs", "list", "--run-log", away)
    assert (listed.code, listed.out) == (1, "")
    assert listed.err.startswith("error: the run log postgres://127.0.0.1/logs does not answer")
    ran = flow("run", "copy", "-m", "flows", "--run-log", away)
    assert ran.code == 0
    assert "this run is not remembered and cannot be resumed" in ran.err
    assert "hunter2" not in listed.err + ran.out + ran.err


def test_a_run_without_its_run_log_warns_once_and_leaves_nothing(flow_process: Flow, project: Path) -> None:
    scratch = Path("scratch")
    scratch.mkdir()
    ran = flow_process("run", "copy", "-m", "flows", "--run-log-path", "flows.py/log.db", TMPDIR=str(scratch.resolve()))
    assert (ran.code, ran.err.count("warning: ")) == (0, 1)
    assert not list(scratch.glob("*runlog*"))


def test_an_address_with_three_slashes_is_absolute(flow: Flow, project: Path, tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    assert flow("run", "copy", "-m", "flows", "--run-log", f"sqlite://{path}").code == 0
    assert path.is_file()
    assert json.loads(flow("runs", "list", "--run-log-url", f"sqlite://{path}", "--format", "json").out)["total"] == 1
