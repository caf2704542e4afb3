from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Flow = Callable[..., Any]


def user_file() -> Path:
    return Path.home() / ".ematix-flow" / "connections.toml"


@pytest.mark.parametrize(
    "arguments", [["warehouse=postgres://me:secretword@host/db"], ["warehouse", "url=postgres://me:secretword@host/db"]]
)
def test_set_takes_both_spellings_and_writes_a_private_file(flow: Flow, arguments: list[str]) -> None:
    result = flow("connections", "set", *arguments)
    assert (result.code, result.out) == (0, "")
    assert 'url = "postgres://me:secretword@host/db"' in user_file().read_text(encoding="utf-8")
    assert user_file().stat().st_mode & 0o077 == 0
    listed = flow("connections", "list").out
    assert "postgres://me:***@host/db" in listed
    assert "secretword" not in listed


def test_both_forms_of_the_list_hide_alike_and_show_switches(flow: Flow) -> None:
    flow("connections", "set", "warehouse=postgres://me:secretword@host/db")
    flow("connections", "set", "lake", "kind=delta", "bucket=b", "region=r", "default_credentials=true")
    for form in ("text", "json"):
        listed = flow("connections", "list", "--format", form).out
        assert "postgres://me:***@host/db" in listed
        assert "default_credentials=True" in listed
        assert "secretword" not in listed


def test_set_takes_fields(flow: Flow) -> None:
    assert flow("connections", "set", "raw", "kind=files", "path=data", "format=csv").code == 0
    entry = json.loads(flow("connections", "list", "--format", "json").out)[0]
    assert (entry["name"], entry["kind"]) == ("raw", "object_store_local")


@pytest.mark.parametrize(
    "arguments",
    [["warehouse"], ["=x"], ["warehouse", "url"], ["warehouse", "url="], ["warehouse", "kind=postgrs", "url=x"]],
)
def test_set_refuses_what_is_no_connection(flow: Flow, arguments: list[str]) -> None:
    result = flow("connections", "set", *arguments)
    assert result.code == 2
    assert result.err.startswith("error: ")
    assert "at: " not in result.err
    assert not user_file().exists()


def test_check_opens_a_connection(flow: Flow, project: Path) -> None:
    assert flow("connections", "check", "lite", "-m", "flows").out.startswith("lite: ok (lite.db does not exist yet")
    flow("run", "copy", "-m", "flows")
    assert flow("connections", "check", "lite", "-m", "flows").out.startswith("lite: ok (SQLite 3.")


def test_check_of_an_unknown_or_dead_connection_fails(flow: Flow) -> None:
    flow("connections", "set", "dead=postgres://me:secretword@127.0.0.1:1/db")
    result = flow("connections", "check", "dead")
    assert result.code == 2
    assert "dead" in result.err
    assert "secretword" not in result.err
    unknown = flow("connections", "check", "daed")
    assert unknown.code == 2
    assert "did you mean 'dead'?" in unknown.err


def test_doctor_reports_on_the_machine_and_on_every_connection(flow: Flow, project: Path) -> None:
    flow("connections", "set", "raw", "kind=files", "path=nowhere", "format=csv")
    flow("connections", "set", "cloud", "kind=glue_schema_registry", "registry_name=r", "region=x")
    flow("connections", "set", "broker", "kind=kafka", "bootstrap_servers=127.0.0.1:1")
    result = flow("doctor", "-m", "flows", "--format", "json")
    reports = {report["name"]: report for report in json.loads(result.out)}
    assert {name: report["status"] for name, report in reports.items()} == {
        "python": "ok", "java": "ok", "spark": "ok", "run log": "ok", "scheduler": "skip",
        "lite": "ok", "raw": "fail", "cloud": "skip", "broker": "fail",
    }  # fmt: skip
    assert reports["raw"]["detail"] == f"folder {Path('nowhere').absolute()} does not exist"
    assert set(reports["lite"]) == {"name", "kind", "status", "detail", "elapsed_ms", "extras"}
    assert result.code == 1


def test_doctor_without_failures_is_a_table_and_ends_well(flow: Flow, project: Path) -> None:
    result = flow("doctor", "-m", "flows")
    assert result.code == 0
    assert result.out.split("\n")[0].split() == ["NAME", "KIND", "STATUS", "ms", "DETAIL"]


def test_doctor_needs_java(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", "")
    result = flow("doctor")
    assert result.code == 1
    assert "Spark needs Java 17" in result.out


def test_one_broken_entry_does_not_hide_the_others(flow: Flow) -> None:
    Path(".ematix-flow.toml").write_text(
        '[connections.good]\nurl = "sqlite:///x.db"\n[connections.bad]\nurl = "${UNSET_PASSWORD}"\n', encoding="utf-8"
    )
    names = [entry["name"] for entry in json.loads(flow("connections", "list", "--format", "json").out)]
    assert names == ["bad", "good"]


def test_a_secret_is_resolved_and_shown_only_when_asked_for(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "abcdefghijkl-z")
    result = flow("secrets", "test", "API_TOKEN")
    assert (result.code, result.out) == (0, "ab...-z (14 chars)\n")
    assert flow("secrets", "test", "${API_TOKEN}", "--show").out == "abcdefghijkl-z\n"
    monkeypatch.setenv("API_TOKEN", "short")
    assert flow("secrets", "test", "env:API_TOKEN").out == "*** (5 chars)\n"


def test_a_secret_that_is_not_there_fails(flow: Flow) -> None:
    result = flow("secrets", "test", "NO_SUCH_VARIABLE")
    assert (result.code, result.out) == (1, "")
    assert "NO_SUCH_VARIABLE is not set" in result.err
    assert flow("secrets", "test", "vualt:x").code == 1
