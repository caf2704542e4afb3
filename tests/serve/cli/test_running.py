from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from tests.depth import deep
from tests.serve.cli.conftest import SRC

if TYPE_CHECKING:
    from collections.abc import Callable

    Flow = Callable[..., Any]

pytestmark = pytest.mark.slow

FAN_OUT = """
from flows import Copies
from ematix_flow import ematix

@ematix.table(schema="main", name="others")
class Others(Copies):
    pass

@ematix.pipeline(
    targets=[
        ematix.target(Copies, mode="append", target_connection="lite"),
        ematix.target(Others, mode="merge", keys=["absent"], target_connection="lite"),
    ],
    source_connection="lite",
    continue_on_failure=True,
)
def both(conn):
    return "SELECT 7 AS id, 'g' AS name"
"""


UNKEYED = """
from typing import Annotated
from ematix_flow import BigInt, ematix, pk
import flows

@ematix.table(schema="main", name="plain")
class Plain:
    id: Annotated[BigInt, pk()]

@ematix.pipeline(target=Plain, target_connection="lite", mode="append")
def plain(conn):
    print("called")
    return "SELECT random() AS id UNION ALL SELECT random()"
"""


def rows() -> int:
    return _count("copies")


def test_a_run_prints_its_result_as_json_and_everything_else_on_stderr(flow_process: Flow, project: Path) -> None:
    outcome = flow_process("run", "copy", "--module", "flows")
    result = json.loads(outcome.out)
    assert (outcome.code, result["status"], result["rows_inserted"], result["path"]) == (0, "success", 2, "same_db")
    assert "printed by the user's function" in outcome.err
    assert "main.copies: committed, 2 inserted." in outcome.err
    assert rows() == 2


def test_a_failing_run_prints_its_error_with_its_place(flow_process: Flow, project: Path) -> None:
    result = flow_process("run", "missing_table", "-m", "flows")
    assert (result.code, result.out) == (1, "")
    error, hint_or_origin = result.err.index("error: "), result.err.index("at: flows.py:")
    assert error < hint_or_origin
    assert "nowhere" in result.err
    assert "Traceback" not in result.err


def test_a_key_error_inside_the_function_is_a_failure_and_no_unknown_name(flow_process: Flow, project: Path) -> None:
    result = flow_process("run", "broken", "-m", "flows")
    assert result.code == 1
    assert result.err.splitlines()[-2:] == ["error: KeyError: 'nothing'", f"at: flows.py:{_line('nothing')}"]


def test_an_unknown_name_is_wrong_usage_with_the_nearest_one(flow_process: Flow, project: Path) -> None:
    result = flow_process("run", "coppy", "-m", "flows")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: no pipeline named 'coppy'\nhint: did you mean 'copy'?")


def test_a_traceback_is_shown_when_it_is_asked_for(flow: Flow, project: Path) -> None:
    result = flow("run", "broken", "-m", "flows", "--traceback")
    assert "Traceback (most recent call last):" in result.err
    assert result.err.endswith(f"error: KeyError: 'nothing'\nat: flows.py:{_line('nothing')}\n")


def test_a_failure_is_json_on_stdout_when_json_was_asked_for(flow: Flow, project: Path) -> None:
    result = flow("run", "broken", "-m", "flows", "--format", "json")
    output = json.loads(result.out)
    assert result.code == 1
    assert (output["status"], output["error_type"], output["at"]) == (
        "failed",
        "KeyError",
        f"flows.py:{_line('nothing')}",
    )
    assert "error: KeyError" in result.err


def test_a_fan_out_with_one_failed_target_fails_and_names_it(flow: Flow, project: Path) -> None:
    Path("fan.py").write_text(FAN_OUT, encoding="utf-8")
    outcome = flow("run", "both", "-m", "fan")
    result = json.loads(outcome.out)
    assert outcome.code == 1
    assert result["results"]["main.copies"]["rows_inserted"] == 1
    assert list(result["errors"]) == ["main.others"]
    assert "error: main.others: " in outcome.err


@pytest.mark.parametrize("errors", [["one line was odd"], {"lines": 1}, 1])
def test_what_a_function_calls_errors_is_part_of_its_result(flow: Flow, project: Path, errors: object) -> None:
    Path("counted.py").write_text(
        f"""from ematix_flow import pipeline

@pipeline.register(name="counted", schedule=None)
def counted():
    return {{"rows": 3, "errors": {errors!r}}}
""",
        encoding="utf-8",
    )
    outcome = flow("run", "counted", "-m", "counted")
    assert (outcome.code, json.loads(outcome.out)) == (0, {"rows": 3, "errors": errors})


def test_an_interrupted_run_is_taken_up_and_says_so(flow_process: Flow, project: Path) -> None:
    killed = flow_process("run", "copy", "-m", "flows", FLOW_FAILPOINTS="commit.after_commit=kill")
    assert killed.code == -9
    again = flow_process("run", "copy", "-m", "flows")
    assert again.code == 0
    assert json.loads(again.out)["recovered"] is True
    assert "copy: the last run did not finish; this one takes it up" in again.err
    assert "had committed this load; nothing was loaded again" in again.err
    assert rows() == 2
    assert flow_process("run", "copy", "-m", "flows", "--new").code == 1  # the same keys once more


def test_a_run_that_failed_is_not_said_to_have_been_interrupted(flow: Flow, project: Path) -> None:
    assert flow("run", "missing_table", "-m", "flows").code == 1
    again = flow("run", "missing_table", "-m", "flows")
    assert "missing_table: the last run failed; this one takes it up, so no row is loaded twice" in again.err


def test_a_result_that_was_not_printed_is_printed_by_the_next_run(flow_process: Flow, project: Path) -> None:
    Path("unkeyed.py").write_text(UNKEYED, encoding="utf-8")
    killed = flow_process("run", "plain", "-m", "unkeyed", FLOW_FAILPOINTS="result.before_print=kill")
    assert (killed.code, killed.out) == (-9, "")
    again = flow_process("run", "plain", "-m", "unkeyed")
    result = json.loads(again.out)
    assert (again.code, result["rows_inserted"], result["recovered"]) == (0, 2, True)
    assert (
        "plain: the last run had committed (2 inserted) and was killed before it ended; this is its result" in again.err
    )
    assert "called" not in again.err, "the user's function has nothing to do"
    assert _count("plain") == 2
    assert flow_process("run", "plain", "-m", "unkeyed").code == 0
    assert _count("plain") == 4, "that one was a new load"


def test_a_fresh_load_can_be_asked_for_after_a_result_that_was_not_printed(flow_process: Flow, project: Path) -> None:
    Path("unkeyed.py").write_text(UNKEYED, encoding="utf-8")
    assert flow_process("run", "plain", "-m", "unkeyed", FLOW_FAILPOINTS="result.before_print=kill").code == -9
    again = flow_process("run", "plain", "-m", "unkeyed", "--new")
    assert "recovered" not in json.loads(again.out)
    assert _count("plain") == 4


@pytest.mark.parametrize("stdout", ["closed pipe", deep("/dev/full")])
def test_a_result_that_cannot_be_written_is_kept_for_the_next_run(
    flow_process: Flow, project: Path, stdout: str
) -> None:
    Path("unkeyed.py").write_text(UNKEYED, encoding="utf-8")
    code, errors = _run_into(stdout)
    assert code == 1
    assert "error: the run is committed, but " in errors
    assert "hint: running it again prints the result and loads nothing." in errors
    assert "Exception ignored" not in errors
    again = flow_process("run", "plain", "-m", "unkeyed")
    assert (again.code, json.loads(again.out)["rows_inserted"], _count("plain")) == (0, 2, 2)


def test_without_a_stdout_there_is_nobody_to_wait_for(project: Path) -> None:
    Path("unkeyed.py").write_text(UNKEYED, encoding="utf-8")
    for number in (1, 2):
        code, errors = _run_into("none")
        assert (code, _count("plain")) == (0, 2 * number), errors


@pytest.mark.parametrize(("point", "code", "rows"), [("after_print", 143, 2), deep("after_close", 0, 4)])
def test_the_exit_code_of_a_stopped_run_says_whether_to_run_it_again(
    flow_process: Flow, project: Path, point: str, code: int, rows: int
) -> None:
    Path("unkeyed.py").write_text(UNKEYED, encoding="utf-8")
    note = Path("reached")
    with subprocess.Popen(
        [sys.executable, "-m", "ematix_flow", "run", "plain", "-m", "unkeyed"],
        env={**os.environ, "PYTHONPATH": SRC, "FLOW_FAILPOINTS": f"result.{point}=sleep:3@file:{note.absolute()}"},
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        while not note.exists():
            assert run.poll() is None
        run.terminate()
        out, _ = run.communicate()
    assert (run.returncode, json.loads(out)["rows_inserted"]) == (code, 2)
    assert flow_process("run", "plain", "-m", "unkeyed").code == 0
    assert _count("plain") == rows, "a run that ended well is followed by a new one"


LEAVING = """
import atexit, threading, time

atexit.register(print, "left", flush=True)


def work():
    threading.main_thread().join()
    time.sleep(0.2)
    print("worked", flush=True)


threading.Thread(target=work).start()
"""


def test_nothing_is_left_to_do_when_a_run_is_closed(flow_process: Flow, project: Path) -> None:
    Path("unkeyed.py").write_text(UNKEYED + LEAVING, encoding="utf-8")
    killed = flow_process("run", "plain", "-m", "unkeyed", FLOW_FAILPOINTS="result.after_close=kill")
    assert (killed.code, killed.out.split()[-2:]) == (-9, ["worked", "left"])
    assert _count("plain") == 2
    again = flow_process("run", "plain", "-m", "unkeyed")
    assert (again.code, _count("plain")) == (0, 4), "the first run was closed"


@pytest.mark.parametrize("name", ["logs/", deep("log.duckdb")])
def test_a_run_is_closed_in_every_kind_of_run_log(flow_process: Flow, project: Path, name: str) -> None:
    Path("unkeyed.py").write_text(UNKEYED, encoding="utf-8")
    for number in (1, 2):
        outcome = flow_process("run", "plain", "-m", "unkeyed", "--run-log-path", name)
        assert (outcome.code, _count("plain")) == (0, 2 * number), outcome.err
        assert "warning" not in outcome.err


COPIED = """
import duckdb
from flows import Copies
from ematix_flow import ematix

@ematix.connection
class duck:
    kind = "duckdb"
    path = "duck.duckdb"

@ematix.pipeline(target=Copies, source_connection="duck", target_connection="lite", mode="append")
def copied(conn):
    return "SELECT range AS id, 'a user' AS name FROM range(3)"
"""


def test_rows_that_a_killed_run_left_in_the_temporary_folder_are_removed_by_a_later_one(
    flow_process: Flow, project: Path, tmp_path: Path
) -> None:
    Path("copied.py").write_text(COPIED, encoding="utf-8")
    duckdb.connect("duck.duckdb").close()
    killed = flow_process("run", "copied", "-m", "copied", TMPDIR=str(tmp_path), FLOW_FAILPOINTS="stage.mid_rows=kill")
    assert killed.code == -9, killed.err
    left = list(tmp_path.glob("ematix-flow-*"))
    assert [file for folder in left for file in folder.rglob("*.parquet")], "rows of the user"
    for folder in left:
        os.utime(folder, (1_000_000_000,) * 2)
    assert flow_process("run", "copy", "-m", "flows", TMPDIR=str(tmp_path)).code == 0
    assert list(tmp_path.glob("ematix-flow-*")) == []


def _run_into(stdout: str) -> tuple[int, str]:
    """Run the plain append with a stdout that takes nothing; returns the exit code and what it says."""
    reading, writing = os.pipe()
    os.close(reading)
    full = os.open("/dev/full", os.O_WRONLY)
    command = [sys.executable, "-m", "ematix_flow", "run", "plain", "-m", "unkeyed"]
    if stdout == "none":
        command = ["sh", "-c", '"$@" >&-', "sh", *command]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": SRC},
        stdout={"closed pipe": writing, "/dev/full": full}.get(stdout),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    os.close(full)
    return done.returncode, done.stderr


def _count(table: str) -> int:
    with closing(sqlite3.connect("lite.db")) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_text_tells_the_counts_in_one_line(flow: Flow, project: Path) -> None:
    result = flow("run", "copy", "-m", "flows", "--format", "text", "--no-run-log")
    assert result.out.startswith("copy: success, 2 inserted")
    assert not (Path.home() / ".ematix-flow" / "run_log.db").exists()


def test_a_worker_whose_lease_is_not_there_does_nothing(flow: Flow, project: Path) -> None:
    result = flow(
        "run", "copy", "-m", "flows", "--claim-token", "t", "--lease-seconds", "5", "--heartbeat-interval", "1",
        "--alerter", "stdout://", "--run-log", "sqlite://runs.db",
    )  # fmt: skip
    assert result.code == 1
    assert "is not this worker's any more" in result.err
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        rows()


def test_a_run_log_that_cannot_be_is_wrong_usage(flow: Flow, project: Path) -> None:
    result = flow("run", "copy", "-m", "flows", "--run-log-url", "carrier-pigeon://loft")
    assert result.code == 2
    assert "carrier-pigeon" in result.err


def test_secrets_stay_out_of_errors(flow: Flow, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_PASSWORD", "hunter2hunter2")
    Path("leaky.py").write_text(
        "from ematix_flow import secrets\nword = secrets.expand('${CANARY_PASSWORD}')\n"
        "raise RuntimeError(f'could not log in as {word}')\n",
        encoding="utf-8",
    )
    result = flow("list", "-m", "leaky", "--traceback")
    assert result.code == 1
    assert "could not log in as" in result.err
    assert "hunter2" not in result.err + result.out


def _line(text: str) -> int:
    lines = Path("flows.py").read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)
