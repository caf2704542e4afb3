from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Flow = Callable[..., Any]

pytestmark = pytest.mark.slow

MORE = """
from flows import Copies
from ematix_flow import ematix

@ematix.pipeline(target=Copies, target_connection="lite", mode="merge", handle_deletes="hard")
def renew(conn):
    return "SELECT 2 AS id, 'B' AS name UNION ALL SELECT 3, 'c'"
"""


@pytest.fixture
def loaded(flow: Flow, project: Path) -> Path:
    """Return the project with two rows loaded and a pipeline that replaces them."""
    Path("more.py").write_text(MORE, encoding="utf-8")
    assert flow("run", "copy", "-m", "flows").code == 0
    return project


def rows() -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect("lite.db")) as connection:
        return connection.execute("SELECT id, name FROM copies ORDER BY id").fetchall()


def test_a_plan_without_a_diff_is_the_preview(flow: Flow, project: Path) -> None:
    assert flow("plan", "copy", "-m", "flows").out == flow("preview", "copy", "-m", "flows").out
    result = flow("plan", "copy", "-m", "flows", "--sample", "3")
    assert (result.code, result.out) == (2, "")
    assert "--sample goes with --diff" in result.err


def test_a_difference_is_shown_and_then_applied_once(flow: Flow, loaded: Path) -> None:
    result = flow("plan", "renew", "-m", "more", "--diff")
    plan_id = re.findall(r"p-[0-9a-f]{8}", result.out)[0]
    assert result.out == (
        f"pipeline renew, plan {plan_id}\n\n"
        "target main.copies, merge\n"
        "  rows      1 added, 1 changed, 1 removed, 0 unchanged, 0 rejected\n"
        "  columns   name 1\n"
        "  +         id=3  name=c\n"
        "  ~         id=2  name: b -> B\n"
        "  -         id=1  name=a\n\n"
        f"no table was changed; until {_until(result.out)} UTC this load can be made with\n"
        f"  flow apply {plan_id}\n"
    )
    assert rows() == [(1, "a"), (2, "b")]
    done = flow("apply", plan_id)
    assert (done.code, json.loads(done.out)["rows_deleted"]) == (0, 1)
    assert "main.copies: committed, 1 inserted, 1 updated, 1 deleted." in done.err
    assert rows() == [(2, "B"), (3, "c")]
    again = flow("apply", plan_id, "--format", "text")
    assert (again.code, again.out) == (0, "renew: success, 1 inserted, 1 deleted, 0 rejected, 1 updated, 0 unchanged\n")
    assert f"plan {plan_id} is applied already; nothing was loaded again." in again.err
    assert rows() == [(2, "B"), (3, "c")]
    listed = json.loads(flow("runs", "list", "--format", "json").out)
    assert [(run["pipeline"], bool(run["extras"].get("recovered"))) for run in listed["runs"]] == [
        ("renew", True),  # the second command, which found everything done
        ("renew", False),
        ("copy", False),
    ]


def _until(text: str) -> str:
    return re.findall(r"until (\d{4}-\d\d-\d\d \d\d:\d\d) UTC", text)[0]


def test_a_difference_as_json_is_complete(flow: Flow, loaded: Path) -> None:
    output = json.loads(flow("plan", "renew", "-m", "more", "--diff", "--sample", "1", "--format", "json").out)
    assert output["apply"] == f"flow apply {output['plan_id']}"
    (target,) = output["targets"].values()
    assert (target["columns"], target["rejected"], target["rows"]["rows_inserted"]) == ({"name": 1}, 0, 1)
    assert target["samples"][1] == {
        "kind": "changed", "key": {"id": 2}, "old": {"name": "b"}, "new": {"name": "B"},
    }  # fmt: skip


FAN = """
from typing import Annotated

from flows import Copies
from ematix_flow import BigInt, ematix, pk

@ematix.table(schema="main", name="numbers")
class Numbers:
    id: Annotated[BigInt, pk()]
    name: BigInt

both = [ematix.target(table, target_connection="lite", mode="append") for table in (Copies, Numbers)]

@ematix.pipeline(targets=both, source_connection="lite")
def fan(conn):
    return "SELECT 1 AS id, 'one' AS name"
"""


@pytest.mark.parametrize("command", [("plan", "--diff"), ("run",)], ids=" ".join)
def test_an_error_of_a_fan_out_names_its_target(
    flow: Flow, project: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "local")
    Path("fan.py").write_text(FAN, encoding="utf-8")
    result = flow(*command, "fan", "-m", "fan", "--format", "json")
    assert result.code == 1
    assert "this is about main.numbers, one of 2 targets." in json.loads(result.out)["error"]


def test_a_plan_for_a_table_that_changed_since_fails_and_says_what_to_do(flow_process: Flow, loaded: Path) -> None:
    plan_id = json.loads(flow_process("plan", "renew", "-m", "more", "--diff", "--format", "json").out)["plan_id"]
    with closing(sqlite3.connect("lite.db")) as connection, connection:
        connection.execute("UPDATE copies SET name = 'z' WHERE id = 2")
    result = flow_process("apply", plan_id, "--format", "json")
    assert (result.code, json.loads(result.out)["error_type"]) == (1, "StalePlanError")
    assert result.err.splitlines()[-2:] == [
        "error: the target copies changed since the plan was made",
        "hint: nothing was changed; review the difference again: flow plan NAME --diff.",
    ]
    assert rows() == [(1, "a"), (2, "z")]


def test_an_unknown_plan_is_wrong_usage(flow: Flow, project: Path) -> None:
    result = flow("apply", "p-00000000")
    assert (result.code, result.out) == (2, "")
    assert "there is no plan 'p-00000000'" in result.err
