"""What runs say is kept in files of their own: found by every name, private, never too large, never too many."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.events import AttemptBegan, AttemptEnded, RunStarted
from ematix_flow.observe.bus import Bus
from ematix_flow.serve.cli.common import log_files
from ematix_flow.serve.cli.common.capture import Capture, captured, plain
from tests.depth import deep_but

if TYPE_CHECKING:
    from collections.abc import Callable

    Flow = Callable[..., Any]

SRC = str(Path(__file__).parents[3] / "src")
SLOT = "orders@2026-03-02T09:00:00Z"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
MESSAGES = [
    "printed by the user's function",
    "main.copies: loading inside the database: the target reads the source query itself.",
    "main.copies: committed, 2 inserted.",
]


def folder() -> Path:
    return Path.home() / ".ematix-flow" / "logs"


def began(capture: Capture, slot: str = SLOT, attempt: int = 1) -> None:
    capture.on_event(AttemptBegan(slot.partition("@")[0], "", slot, attempt))


def test_a_run_is_found_by_its_id_its_pipeline_and_the_name_of_its_log(flow: Flow, project: Path) -> None:
    run_id = json.loads(flow("run", "copy", "-m", "flows").out)["run_id"]
    (name,) = [file.stem for file in folder().glob("copy-*.log")]
    assert re.fullmatch(r"copy-\d{8}T\d{6}Z-1", name)
    for run_name in (run_id, run_id[:8], "copy", name, name[:15]):
        result = flow("logs", run_name)
        assert (result.code, result.out.splitlines()) == (0, MESSAGES)
    assert flow("logs", "copy", "--tail", "1").out.splitlines() == MESSAGES[-1:]


def test_logs_are_for_their_owner_only(flow: Flow, project: Path) -> None:
    flow("run", "copy", "-m", "flows")
    assert folder().stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder().iterdir()} == {0o600}


def test_the_log_of_a_failed_run_has_its_error(flow: Flow, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_LOGS_DIR", str(Path.cwd() / "kept"))
    flow("run", "broken", "-m", "flows")
    run_id = json.loads(flow("runs", "list", "--format", "json").out)["runs"][0]["run_id"]
    assert "error: KeyError: 'nothing'" in flow("logs", run_id).out
    assert len([file for file in Path("kept").glob("*.log") if not file.is_symlink()]) == 1


def test_two_runs_of_one_second_have_two_logs(flow: Flow, project: Path) -> None:
    for _ in range(3):
        flow("run", "copy", "-m", "flows")
    logs = [file for file in folder().glob("*.log") if not file.is_symlink()]
    assert [file.read_text(encoding="utf-8").count(MESSAGES[0]) for file in logs] == [1, 1, 1]


def test_no_log_is_kept_where_that_is_forbidden(flow: Flow, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_CAPTURE_LOGS", "0")
    run_id = json.loads(flow("run", "copy", "-m", "flows").out)["run_id"]
    result = flow("logs", run_id)
    assert result.code == 1
    assert "EMATIX_FLOW_CAPTURE_LOGS=0" in result.err
    assert not folder().exists()


@pytest.mark.parametrize("blocked", ["a_file", "a_file/below"])
def test_logs_that_cannot_be_kept_are_a_warning(
    flow: Flow, project: Path, monkeypatch: pytest.MonkeyPatch, blocked: str
) -> None:
    Path("a_file").write_text("", encoding="utf-8")
    monkeypatch.setenv("EMATIX_FLOW_LOGS_DIR", str(Path.cwd() / blocked))
    result = flow("run", "copy", "-m", "flows")
    assert (result.code, json.loads(result.out)["rows_inserted"]) == (0, 2)
    assert result.err.count("warning: the log of this run is not kept") == 1
    assert "Traceback" not in result.err
    assert flow("run", "broken", "-m", "flows").code == 1


def test_every_attempt_at_a_slot_has_a_log_and_the_slot_means_the_last(flow: Flow) -> None:
    for attempt in (1, 2):
        with captured(Bus(), pipeline="orders") as capture:
            began(capture, attempt=attempt)
            sys.stderr.write(f"attempt {attempt}\n")
    assert sorted(file.name for file in folder().glob("orders-*.log")) == [
        "orders-20260302T090000Z-1.log",
        "orders-20260302T090000Z-2.log",
    ]
    for name, line in ((SLOT, 2), ("orders", 2), ("orders-20260302T090000Z-1", 1)):
        assert flow("logs", name).out == f"attempt {line}\n"


def test_runs_side_by_side_do_not_mix(flow: Flow) -> None:
    screen = io.StringIO()
    capture, turns = Capture(screen, alone=False), threading.Barrier(2)

    def run(name: str) -> None:
        began(capture, f"{name}@2026-03-02T09:00:00Z")
        for number in range(20):
            turns.wait()
            capture.write(f"{name} {number}\n")
        turns.wait()
        capture.on_event(AttemptEnded(name, "", f"{name}@2026-03-02T09:00:00Z"))

    threads = [threading.Thread(target=run, args=(name,)) for name in ("left", "right")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    capture.write("afterwards\n")
    for name in ("left", "right"):
        begun, *lines, done = flow("logs", name).out.splitlines()
        assert re.fullmatch(rf"{TIME} {name}: {name}@2026-03-02T09:00:00Z, attempt 1", begun)
        assert lines == [f"{name} {number}" for number in range(20)]
        assert re.fullmatch(rf"{TIME} {name}: done", done)


def test_a_capture_inside_of_another_keeps_nothing_twice(flow: Flow) -> None:
    bus = Bus()
    with captured(bus, pipeline="orders") as outer, captured(bus) as inner:
        assert inner is outer
        bus.emit(AttemptBegan("orders", "", SLOT))
        sys.stderr.write("once\n")
    assert flow("logs", "orders").out == "once\n"


def test_a_log_keeps_its_beginning_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "LARGEST", 1000)
    monkeypatch.setattr(log_files, "_HEAD", 100)
    monkeypatch.setattr(log_files, "_TAIL", 500)
    file = log_files.log_file("long")
    for number in range(300):
        log_files.append(file, f"line {number}\n")
    text = file.read_text(encoding="utf-8")
    assert len(text) <= 1000
    assert text.startswith("line 0\n")
    assert text.endswith("line 299\n")
    assert "bytes are left out here" in text
    assert file.stat().st_mode & 0o777 == 0o600


def test_old_logs_go_and_so_do_the_names_that_led_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "FILES", 4)
    for number in range(6):
        file = log_files.log_file(f"run-{number}")
        log_files.append(file, "said\n")
        log_files.also_named(file, f"id-{number}")
        os.utime(file, (1_000_000_000 if number == 5 else 2_000_000_000 + number,) * 2)
    log_files.prune()
    # One more is about to be written, and the sixth is older than two weeks.
    assert sorted(file.stem for file in folder().iterdir()) == ["id-2", "id-3", "id-4", "run-2", "run-3", "run-4"]


def test_logs_of_failed_runs_outlive_many_that_succeeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "FILES", 3)
    monkeypatch.setattr(log_files, "HELD_FILES", 3)
    capture = Capture(io.StringIO(), alone=False)
    for number, failed in enumerate((True, False, False, False, True, False, True, None)):
        slot = f"orders@2026-03-02T{number:02}:00:00Z"
        began(capture, slot)
        os.utime(log_files.log_file(f"orders-20260302T{number:02}0000Z-1"), (2_000_000_000 + number,) * 2)
        if failed is not None:  # None: it was killed
            capture.on_event(AttemptEnded("orders", "", slot, failed=failed))
            os.utime(log_files.log_file(f"orders-20260302T{number:02}0000Z-1"), (2_000_000_000 + number,) * 2)
    log_files.prune()
    minutes = sorted(file.name[16:18] for file in folder().glob("orders-*.log") if not file.is_symlink())
    assert minutes == ["03", "05", "06", "07"], "two of each, since one more is about to be written"
    assert sorted(file.name[16:18] for file in folder().glob("*.held")) == ["06", "07"]


PATHS = {
    "run": ["run", "{name}"],
    "run-due": ["run-due", "--interval", "600"],
    "scheduler": ["scheduler", "--max-iterations", "1", "--interval", "600"],
    "worker": ["scheduler", "--max-iterations", "1", "--interval", "600", "--executor", "subprocess://"],
    "backfill": ["backfill", "{name}", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:10:00Z"],
}
"""Every way to run a pipeline."""

TALKING = """
import threading
from typing import Annotated
from ematix_flow import BigInt, ematix, pk
from flows import Copies

@ematix.pipeline(target=Copies, target_connection="lite", mode="append", schedule="*/5 * * * *")
def good(conn):
    print("printed by good")
    return "SELECT random() AS id, 'a' AS name"

@ematix.pipeline(target=Copies, target_connection="lite", mode="append", schedule="*/5 * * * *")
def bad(conn):
    print("printed by bad")
    return {}["nothing"]
"""


@pytest.mark.slow
@pytest.mark.parametrize("path", deep_but(PATHS, "run"))
def test_what_user_code_prints_is_once_in_the_log_of_its_run_and_an_error_has_its_traceback(
    flow_process: Flow, flow: Flow, project: Path, path: str
) -> None:
    text = Path("flows.py").read_text(encoding="utf-8").replace(', schedule="*/5 * * * *"', "")
    Path("flows.py").write_text(text, encoding="utf-8")
    Path("talking.py").write_text(TALKING, encoding="utf-8")
    names = ("good", "bad") if "{name}" in PATHS[path] else ("",)
    for name in names:
        flow_process(*(argument.format(name=name) for argument in PATHS[path]), "-m", "talking")
    wait_for(lambda: "committed" in flow("logs", "good").out and "Traceback" in flow("logs", "bad").out, path)
    for name, other in (("good", "bad"), ("bad", "good")):
        for file in folder().glob(f"{name}-*.log"):
            message = file.read_text(encoding="utf-8")
            assert message.count(f"printed by {name}\n") == 1, message
            assert other not in message
            assert message.count("Traceback (most recent call last):") == (name == "bad")
            assert ('return {}["nothing"]' in message) == (name == "bad")
    slots = len(list(folder().glob("good-*.log")))
    assert slots == (2 if path == "backfill" else 1)


def wait_for(condition: Callable[[], bool], path: str) -> None:
    """Wait for the workers of a scheduler, which outlive it; others are done."""
    deadline = time.monotonic() + (60 if path == "worker" else 0)
    while path == "worker" and not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_the_lines_of_a_scheduler_have_their_time(flow_process: Flow, project: Path) -> None:
    errors = flow_process("scheduler", "--max-iterations", "1", "--interval", "600", "-m", "flows").err
    for beginning in ("leader: ", "dispatched: copy ", "done: copy@"):
        assert re.search(rf"^{TIME} {re.escape(beginning)}", errors, re.MULTILINE), errors


def test_a_display_that_moves_leaves_no_traces() -> None:
    assert plain("\x1b[31merror: \x1b[0mno\n") == "error: no\n"
    assert plain("\r\x1b[2K\x1b[1A\x1b[2Ktold by the user\n⠋ main.copies  reading 0:00:01") == "told by the user\n"
    assert plain("\x1b[?25l") == ""


def test_what_was_said_before_a_run_had_a_name_is_in_its_log(flow: Flow) -> None:
    with captured(Bus(), pipeline="orders") as capture:
        sys.stderr.write("early\n")
        capture.on_event(RunStarted("orders", "sales.orders", "1234-run", "cross_db"))
        sys.stderr.write("later\n")
    assert flow("logs", "1234").out.splitlines() == ["early", "later"]


def test_a_command_that_runs_several_says_in_their_logs_how_loads_go_and_nothing_of_others(flow: Flow) -> None:
    with captured(Bus()) as capture:
        sys.stderr.write("of nobody\n")
        began(capture)
        capture.on_event(RunStarted("orders", "sales.orders", "1234-run", "cross_db"))
        thread = threading.Thread(target=lambda: sys.stderr.write("by a thread of it\n"))
        thread.start()
        thread.join()
        capture.on_event(AttemptEnded("orders", "", SLOT))
        sys.stderr.write("firing: another\n")
    lines = flow("logs", "1234").out.splitlines()
    assert lines[1:-1] == ["sales.orders: loading through Spark.", "by a thread of it"]


SCHEDULED = """
import sys, time
from datetime import datetime
from pathlib import Path
from ematix_flow import pipeline
from ematix_flow.commit.runlog.open import open_run_log
from ematix_flow.engine import Options
from ematix_flow.engine.schedule.run_due import run_due
from ematix_flow.engine.schedule.slot_run import SlotRunner
from ematix_flow.observe.bus import Bus
from ematix_flow.serve.cli.common.capture import captured

@pipeline.register(name="slow one", schedule="0 * * * *")
def slow():
    sys.stderr.write("first\\n")
    print("ready", flush=True)
    while not Path("go").exists():
        time.sleep(0.02)
    sys.stderr.write("second\\n")

bus = Bus()
with captured(bus):
    run_due(SlotRunner(open_run_log(), Options(bus=bus), now=datetime.fromisoformat("2026-03-02T09:00:05Z")))
"""


@pytest.mark.slow
def test_following_ends_with_the_run() -> None:
    started: dict[str, Any] = {"env": {**os.environ, "PYTHONPATH": SRC}, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SCHEDULED], stderr=subprocess.DEVNULL, **started) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        follow = [sys.executable, "-m", "ematix_flow", "logs", "slow one@2026-03-02T09:00:00Z", "--follow"]
        with subprocess.Popen(follow, **started) as reader:
            assert reader.stdout is not None
            assert "slow one@2026-03-02T09:00:00Z, attempt 1" in reader.stdout.readline()
            assert reader.stdout.readline() == "first\n"
            assert reader.poll() is None
            Path("go").touch()
            assert [line for line in reader.stdout.readlines() if "done" not in line] == ["second\n"]
        assert (run.wait(), reader.returncode) == (0, 0)


def test_what_java_says_belongs_to_the_only_run_that_is_under_way_and_is_shown_nowhere() -> None:
    """As in a scheduler, whose main thread has no run."""
    screen = io.StringIO()
    capture = Capture(screen, alone=False)
    first, second = threading.Event(), threading.Event()

    def run(slot: str, until: threading.Event) -> threading.Thread:
        begun = threading.Event()

        def work() -> None:
            began(capture, slot)
            begun.set()
            until.wait(30)
            capture.on_event(AttemptEnded(slot.partition("@")[0], "", slot))

        thread = threading.Thread(target=work)
        thread.start()
        assert begun.wait(30)
        return thread

    one = run(SLOT, first)
    capture.write_detail("java of orders\n")
    other = run("sales@2026-03-02T09:00:00Z", second)
    capture.write_detail("java of nobody knows whom\n")
    for event, thread in ((first, one), (second, other)):
        event.set()
        thread.join(30)
    logs = {file.name: file.read_text(encoding="utf-8") for file in folder().rglob("*.log") if not file.is_symlink()}
    assert [name.partition("-")[0].partition("@")[0] for name, text in logs.items() if "java of orders" in text] == [
        "orders"
    ]
    assert not [name for name, text in logs.items() if "java of nobody" in text]
    assert screen.getvalue() == ""


NAMES = ["a_b", "a/b", "a b", "ä", "日本", "中国", "../x", "-x", "n" * 300, "n" * 299 + "m"]


def test_every_name_has_logs_of_its_own(flow: Flow) -> None:
    capture = Capture(io.StringIO(), alone=False)
    for name in NAMES:
        slot = f"{name}@2026-03-02T09:00:00Z"
        capture.on_event(AttemptBegan(name, "", slot, 1))
        capture.write(f"this is {name}\n")
        capture.on_event(AttemptEnded(name, "", slot, 1))
    for name in NAMES:
        for run_name in (name, f"{name}@2026-03-02T09:00:00Z"):
            output = flow("logs", "--", run_name).out
            assert f"this is {name}\n" in output
            assert output.count("this is") == 1
    assert flow("logs", "x" * 400).code == 1, "there is none"
    assert {file.parent for file in Path.home().rglob("*.log")} == {folder()}


def test_a_log_that_cannot_be_written_takes_no_other_with_it(flow: Flow) -> None:
    screen = io.StringIO()
    capture = Capture(screen, alone=False)
    (folder() / "broken-20260302T090000Z-1.log").mkdir(parents=True)
    for name in ("broken", "orders"):
        began(capture, f"{name}@2026-03-02T09:00:00Z")
        capture.write(f"this is {name}\n")
        capture.on_event(AttemptEnded(name, "", f"{name}@2026-03-02T09:00:00Z", 1))
    assert screen.getvalue().count("the log of this run is not kept") == 1
    assert "this is orders" in flow("logs", "orders").out


@pytest.mark.parametrize("name", ["orders", "o" * 120])
def test_logs_of_earlier_versions_are_found(flow: Flow, name: str) -> None:
    folder().mkdir(parents=True)
    (folder() / f"{name}-20260302T090000Z-1.log").write_text("from before\n", encoding="utf-8")
    (folder() / f"{name}_2026-03-02T09_00_00Z.log").symlink_to(f"{name}-20260302T090000Z-1.log")
    for run_name in (name, f"{name}@2026-03-02T09:00:00Z", f"{name}-20260302T090000Z-1"):
        assert flow("logs", run_name).out == "from before\n"
