from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING

import pytest

from ematix_flow.connect.config.secrets import forget_secrets, remember
from ematix_flow.errors import Origin, RunError
from ematix_flow.events import (
    PostFinished,
    QualityMeasured,
    RowsStaged,
    RunAlreadyFinished,
    RunCommitted,
    RunFailed,
    RunResumed,
    RunStarted,
    StageProgress,
)
from ematix_flow.records import Audited, CheckResult, Counts
from ematix_flow.serve.cli.common.errors import failure_of
from ematix_flow.serve.cli.common.output import emit_json, has_colours, paint, table, with_colours, without_colours
from ematix_flow.serve.cli.common.run_progress import Live, counted, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.events import Event


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _without_colours() -> Iterator[None]:
    with_colours()
    yield
    with_colours()
    forget_secrets()


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert paint("x", "red", Terminal()) == "\x1b[31mx\x1b[0m"
    assert paint("x", "red", io.StringIO()) == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colours(Terminal())
    monkeypatch.delenv("NO_COLOR")
    without_colours()
    assert not has_colours(Terminal())


def test_a_table_is_whole_in_a_pipe_and_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    rows = [("a", "words " * 20), ("longer", None)]
    assert table(("NAME", "TEXT"), rows).splitlines()[1] == ("a       " + "words " * 20).rstrip()
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    lines = table(("NAME", "TEXT"), rows).splitlines()
    assert max(len(line) for line in lines) <= 40
    assert "".join(lines).count("words") == 20


def test_json_keeps_its_form_when_secrets_are_taken_out(capsys: pytest.CaptureFixture[str]) -> None:
    remember("opensesame")
    emit_json({"text": 'password="opensesame"', "list": ["opensesame", 1, None], "when": RunError})
    document = json.loads(capsys.readouterr().out)
    assert "opensesame" not in str(document)
    assert document["list"][1:] == [1, None]


def test_an_error_of_ours_has_its_parts() -> None:
    failure = failure_of(RunError("it broke", hint="fix it.", origin=Origin("/elsewhere/flows.py", 3)))
    assert (failure.error, failure.hint, failure.at) == ("it broke", "fix it.", "/elsewhere/flows.py:3")


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (RunResumed("p", "", "req"), "p: the last run did not finish; this one takes it up"),
        (RunResumed("p", "", "req", "failed"), "p: the last run failed; this one takes it up"),
        (RunResumed("p", "", "req", "stopped"), "p: the last run was stopped; this one takes it up"),
        (RunAlreadyFinished("p", "", "req", "2 inserted"), "p: the last run had committed (2 inserted) and was killed"),
        (RunStarted("p", "s.t", "id", "cross_db"), "s.t: loading through Spark."),
        (RunStarted("p", "s.t", "id", "cross_db", "local", "no Java"), "s.t: loading in this process: no Java."),
        (RunStarted("p", "s.t", "id", "same_db", "database"), "s.t: loading inside the database."),
        (RowsStaged("p", "s.t", 12345, 6), "s.t: 12,345 rows staged, 6 rejected; committing."),
        (RowsStaged("p", "s.t", 1, 0), "s.t: 1 row staged; committing."),
        (RunCommitted("p", "s.t", "id", Counts(inserted=1), replayed=False), "s.t: committed, 1 inserted."),
        (RunCommitted("p", "s.t", "id", Counts(inserted=1), replayed=True), "nothing was loaded again."),
        (PostFinished("p", "", "transform[0]:sql", ok=True), "transform[0]:sql: done."),
        (PostFinished("p", "", "transform[0]:sql", ok=False, message="no"), "transform[0]:sql: failed: no"),
    ],
)
def test_events_are_told_in_sentences(event: Event, message: str) -> None:
    assert message in (sentence(event) or "")


def test_what_is_not_as_expected_is_told() -> None:
    counts = CheckResult("between(n)", "n", "warn", "fail", 2, 5), CheckResult("row_count", "", "warn", "fail", None, 5)
    checks = (*counts, CheckResult("mine", "", "warn", "error", None, 5), CheckResult("fine", "", "warn", "pass", 0, 5))
    text = sentence(QualityMeasured("p", "s.t", "id", Audited("fail", checks)))
    assert text == ("s.t: not as expected: between(n) (2 of 5 rows), row_count (5 rows), mine (could not be measured).")
    assert sentence(QualityMeasured("p", "s.t", "id", Audited("pass", checks[3:]))) is None
    assert "left out" in (sentence(QualityMeasured("p", "s.t", "id", Audited("skipped"))) or "")


def test_events_that_only_move_a_display_are_no_lines() -> None:
    assert sentence(StageProgress("p", "s.t", 1, 2)) is None
    assert sentence(RunFailed("p", "s.t", "id", "told by the error itself")) is None


def test_counts_are_told_where_there_are_any() -> None:
    assert counted(Counts(inserted=1, closed=2000)) == "1 inserted, 2,000 closed"
    assert counted(Counts()) == "nothing to change"


def test_a_terminal_shows_one_moving_line_per_target() -> None:
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    with Progress(TextColumn("{task.description}", markup=False), console=console, auto_refresh=False) as progress:
        live = Live(progress)
        assert [task.description for task in progress.tasks] == ["planning"]
        live(RunResumed("p", "", "req"))
        live(RunStarted("p", "s.t", "id", "cross_db"))
        live(StageProgress("p", "s.t", 5000, 4))
        assert [task.description for task in progress.tasks] == ["s.t  5,000 rows staged so far, in 4 parts"]
        live(RowsStaged("p", "s.t", 9000, 0))
        live(RunCommitted("p", "s.t", "id", Counts(inserted=9000), replayed=False))
        live(RunFailed("p", "s.u", "id", "no"))
        assert [task.finished for task in progress.tasks] == [True, False]
    assert "the last run did not finish" in screen.getvalue()
    assert "s.t  committed, 9,000 inserted" in screen.getvalue()


def test_json_of_a_result_can_be_read_by_every_program(capsys: pytest.CaptureFixture[str]) -> None:
    emit_json({"mean": float("nan"), "rows": [float("-inf"), 2]})
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {"mean": "nan", "rows": ["-inf", 2]}
