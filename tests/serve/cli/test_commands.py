from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.cli import main as public_main
from ematix_flow.serve.cli.main import COMMANDS, main

if TYPE_CHECKING:
    from collections.abc import Callable

    Flow = Callable[..., Any]


@pytest.mark.parametrize("arguments", [("--help",), *((name, "--help") for name in COMMANDS)])
def test_every_command_explains_itself(flow: Flow, arguments: tuple[str, ...]) -> None:
    result = flow(*arguments)
    assert result.code == 0
    assert result.out.startswith("Usage: flow")


def test_help_lists_every_command_with_its_own_first_sentence(flow: Flow) -> None:
    from ematix_flow.serve.cli.main import flow as root

    output = flow("--help").out
    for name in COMMANDS:
        assert f"  {name} " in output
        command = root.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        assert command.name == name


def test_the_version_is_printed(flow: Flow) -> None:
    assert flow("--version").out.startswith("flow 0.")


def test_no_command_is_wrong_usage_with_help(flow: Flow) -> None:
    result = flow()
    assert (result.code, result.out) == (2, "")
    assert "Usage: flow" in result.err


@pytest.mark.parametrize(
    "command",
    [
        "preview", "dry-run", "plan", "run", "run-due", "backfill", "scheduler", "consume", "dlq replay",
        "rejects replay", "transform run",
    ],
)  # fmt: skip
def test_commands_that_move_rows_take_an_engine(flow: Flow, command: str) -> None:
    assert "--engine [spark|local]" in flow(*command.split(), "--help").out


@pytest.mark.parametrize("group", ["runs", "connections", "secrets", "transform", "rejects"])
def test_a_group_without_a_command_is_wrong_usage_with_help(flow: Flow, group: str) -> None:
    result = flow(group)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"Usage: flow {group} ")
    assert "error" not in result.err


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("lst",), "Did you mean 'list'?"),
        (("runs", "lsit"), "Did you mean 'list'?"),
        (("list", "--modul", "x"), "--module"),
        (("runs", "list", "--status", "great"), "succeeded"),
    ],
)
def test_unknown_words_are_refused_with_the_nearest(flow: Flow, arguments: tuple[str, ...], near: str) -> None:
    result = flow(*arguments)
    assert result.code == 2
    assert near in result.err
    assert result.err.startswith("error: ")


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("list", "-m", "nowhere"), 2, "nowhere"),
        (("list", "-m", "nowhere", "--modul"), 2, "--modul"),
        (("run", "cpy", "-m", "flows"), 2, "cpy"),
        (("run", "copy"), 2, "which module?"),
        (("preview", "cpy", "-m", "flows"), 2, "cpy"),
        (("plan", "copy", "-m", "flows", "--sample", "many"), 2, "many"),
        (("apply", "nosuch"), 2, "nosuch"),
        (("rejects", "list", "cpy", "-m", "flows"), 2, "cpy"),
        (("rejects", "lst"), 2, "lst"),
        (("run", "broken", "-m", "flows"), 1, "KeyError"),
        (("dry-run", "broken", "-m", "flows"), 1, "KeyError"),
    ],
    ids=str,
)
@pytest.mark.parametrize("requested", [("--format", "json"), ("--format=json",)], ids=str)
def test_with_json_whatever_goes_wrong_is_json_on_stdout_too(
    flow: Flow, project: Path, arguments: tuple[str, ...], code: int, error: str, requested: tuple[str, ...]
) -> None:
    result = flow(*arguments, *requested)
    failure = json.loads(result.out)
    assert (result.code, failure["status"]) == (code, "failed")
    assert error in failure["error"]
    assert result.err.startswith("error: ") or code == 1
    assert flow(*arguments, "--format", "text").out == ""


def test_list_shows_names_kinds_and_schedules(flow: Flow, project: Path) -> None:
    result = flow("list", "--module", "flows")
    lines = [line.split() for line in result.out.splitlines()]
    assert ["copy", "pipeline", "*/5", "*", "*", "*", "*", "main.copies"] in lines
    assert ["tidy", "transform", "(unscheduled)"] in lines


def test_list_as_json(flow: Flow, project: Path) -> None:
    entries = {e["name"]: e for e in json.loads(flow("list", "--module", "flows", "--format", "json").out)}
    assert (entries["copy"]["kind"], entries["copy"]["schedule"]) == ("pipeline", "*/5 * * * *")
    assert (entries["tidy"]["kind"], entries["tidy"]["schedule"]) == ("transform", None)
    assert entries["broken"]["depends_on"] == ["copy"]


def test_the_module_comes_from_the_environment_or_the_project_file_too(
    flow: Flow, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert flow("list").code == 2
    Path(".ematix-flow.toml").write_text('[project]\nmodule = "flows"\n', encoding="utf-8")
    assert flow("list").code == 0
    monkeypatch.setenv("EMATIX_FLOW_MODULE", "absent")
    assert flow("list").code == 2


def test_a_module_that_is_not_there_is_wrong_usage(flow: Flow, project: Path) -> None:
    result = flow("list", "-m", "absent")
    assert result.code == 2
    assert "no module named 'absent'" in result.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / 0", "error: ZeroDivisionError: division by zero\nat: wrong.py:1\n"),
        ("def f(:", "at: wrong.py:1\n"),
        ("import absent_package", "absent_package"),
        ("from ematix_flow import ematix\n@ematix.pipeline(tagret=1)\ndef f(conn): ...", "did you mean 'target'"),
        ("import sys\nsys.exit('no')", "sys.exit('no')"),
        ("import sys\nsys.exit('postgresql://u:hunter2@h/db')", "postgresql://u:<redacted>@h/db"),
    ],
)
def test_a_module_that_is_wrong_is_a_failure_with_its_line(flow: Flow, project: Path, text: str, message: str) -> None:
    Path("wrong.py").write_text(text, encoding="utf-8")
    result = flow("list", "-m", "wrong")
    assert result.code == 1
    assert message in result.err


def test_transforms_are_listed_and_run(flow: Flow, project: Path) -> None:
    flow("run", "copy", "-m", "flows")
    assert json.loads(flow("transform", "list", "-m", "flows", "--format", "json").out)[0]["name"] == "tidy"
    result = flow("transform", "run", "tidy", "-m", "flows")
    assert (result.code, json.loads(result.out)["metrics"]) == (0, {"rows": 2})
    assert flow("transform", "run", "tydi", "-m", "flows").code == 2


MOVING = """
import os
from flows import Copies
from ematix_flow import ematix

@ematix.connection
class raw:
    kind = "files"
    path = "raw"
    format = "csv"

@ematix.pipeline(target=Copies, source_connection="raw", target_connection="lite", mode="append", on_bad_row="reject")
def from_files(files):
    return "copies.csv"

@ematix.transform(target_connection="lite")
def asked(conn):
    return {"engine": os.environ["EMATIX_FLOW_ENGINE"]}
"""


def test_a_replay_of_rejects_and_a_transform_go_by_the_engine_that_was_asked_for(
    flow: Flow, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("moving.py").write_text(MOVING, encoding="utf-8")
    Path("raw").mkdir()
    Path("raw/copies.csv").write_text("id,name\n1,a\nx,c\n", encoding="utf-8")
    for command in (("run", "from_files"), ("rejects", "replay", "from_files")):
        monkeypatch.setenv("EMATIX_FLOW_ENGINE", "spark")
        result = flow(*command, "-m", "moving", "--engine", "local")
        assert 'main.copies: loading in this process: the settings say engine = "local".' in result.err
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "spark")
    result = flow("transform", "run", "asked", "-m", "moving", "--engine", "local")
    assert json.loads(result.out)["metrics"] == {"engine": "local"}


def test_preview_and_dry_run_print_the_plan_once(flow: Flow, project: Path) -> None:
    for command in ("preview", "dry-run"):
        result = flow(command, "copy", "-m", "flows")
        assert result.code == 0
        assert result.out.count("target main.copies on lite") == 1
    assert not Path("lite.db").exists() or not _tables()
    planned = json.loads(flow("dry-run", "copy", "-m", "flows", "--format", "json").out)
    assert planned["targets"][0]["dry_run_rows_affected"]["rows_inserted"] == 2


def test_a_dry_run_whose_load_would_fail_fails(flow: Flow, project: Path) -> None:
    result = flow("dry-run", "missing_table", "-m", "flows", "--format", "json")
    assert result.code == 1
    assert "nowhere" in result.err


def test_validate_says_ok_or_fails(flow: Flow, project: Path) -> None:
    flow("run", "copy", "-m", "flows")
    assert (flow("validate", "copy", "-m", "flows").out.splitlines()[0]) == "copy: ok"
    result = flow("validate", "missing_table", "-m", "flows", "--format", "json")
    assert (result.code, json.loads(result.out)["ok"]) == (1, False)
    assert flow("validate", "coppy", "-m", "flows").code == 2


def test_a_plain_function_has_no_plan(flow: Flow, project: Path) -> None:
    Path("plain.py").write_text(
        "from ematix_flow import pipeline\n@pipeline.register(name='hello', schedule=None)\ndef hello(): return 1\n",
        encoding="utf-8",
    )
    assert flow("preview", "hello", "-m", "plain").code == 2
    assert json.loads(flow("run", "hello", "-m", "plain").out) == 1


def test_the_public_name_is_the_same_command() -> None:
    assert public_main is main


def _tables() -> list[str]:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect("lite.db")) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
