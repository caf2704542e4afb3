"""`flow maintain` tells what it did about each target, on stdout for programs and people alike."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ematix_flow.serve.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def loaded(project: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return a project whose pipeline has run once."""
    assert main(["run", "copy", "-m", "flows", "--no-run-log"]) == 0
    capsys.readouterr()
    return project


def test_a_pipeline_a_table_and_everything_can_be_maintained(loaded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for names in (["copy"], ["main.copies"], ["--all"]):
        assert main(["maintain", *names, "-m", "flows", "--format", "json"]) == 0
        captured = capsys.readouterr()
        (result,) = json.loads(captured.out)
        assert (result["target"], result["status"]) == ("lite", "done")
        assert result["steps"] == {"staging": {"removed": 0}, "ledger": {"tokens": 0, "history": 0}}
        assert "lite: staging." in captured.err
    assert main(["maintain", "--all", "--due", "-m", "flows"]) == 0
    assert "not due" in capsys.readouterr().out


def test_a_dry_run_says_what_would_be_done(loaded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["maintain", "copy", "--dry-run", "-m", "flows"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].split() == ["TARGET", "STATUS", "STEP", "NUMBERS"]
    assert rows[1].split() == ["lite", "would", "do", "staging", "removed", "0"]
    assert main(["maintain", "copy", "--due", "--dry-run", "-m", "flows", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["last"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "which targets?"),
        (["copy", "--all"], "which targets?"),
        (["coppy"], "did you mean 'copy'"),
    ],
)
def test_what_to_maintain_has_to_be_said(
    project: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["maintain", *arguments, "-m", "flows"]) == 2
    assert message in capsys.readouterr().err


def test_a_target_that_is_broken_fails_the_command(loaded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (loaded / "lite.db").write_bytes(b"no database" * 100)
    assert main(["maintain", "copy", "-m", "flows", "--format", "json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)[0]["status"] == "failed"
    assert "error: lite: " in captured.err
