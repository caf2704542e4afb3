"""Shows the progress of a run on stderr: lines anywhere, a live display on a terminal; it changes nothing."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ematix_flow.events import (
    MaintenanceStep,
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
from ematix_flow.plan.steps import IN_DATABASE, IN_PROCESS, NO_ENGINE, SPARK
from ematix_flow.serve.cli.common.output import has_colours, talk
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress, TaskID

    from ematix_flow.events import (
        Event,
    )
    from ematix_flow.records import CheckResult, Counts

    Subscriber = Callable[[Event], None]

_ENGINES = {IN_DATABASE: "inside the database", IN_PROCESS: "in this process", SPARK: "through Spark"}


def sentence(event: Event) -> str | None:
    """Return an event as one line for people; None for those that only update a display."""
    match event:
        case RunResumed() | RunAlreadyFinished():
            return f"{event.pipeline}: {_resumed_text(event)}"
        case RunStarted():
            return f"{event.target}: {_begun(event)}."
        case RowsStaged():
            rejected = f", {event.rejected:,} rejected" if event.rejected else ""
            return f"{event.target}: {quantity(event.rows, 'row')} staged{rejected}; committing."
        case QualityMeasured():
            return _measured(event)
        case RunCommitted():
            again = "an earlier run had committed this load; nothing was loaded again"
            return f"{event.target}: {again if event.replayed else f'committed, {counted(event.counts)}'}."
        case PostFinished():
            return f"{event.step}: done." if event.ok else f"{event.step}: failed: {event.message}"
        case MaintenanceStep(numbers=None):
            return f"{event.target}: {event.step}."
    return None


def _resumed_text(event: RunResumed | RunAlreadyFinished) -> str:
    """Return what becomes of a run that did not end well."""
    if isinstance(event, RunAlreadyFinished):
        return (
            f"the last run had committed ({event.loaded}) and was killed before it ended; "
            "this is its result, and nothing was loaded again (--new loads afresh)."
        )
    last = {"failed": "failed", "stopped": "was stopped"}.get(event.ended, "did not finish")
    return f"the last run {last}; this one takes it up, so no row is loaded twice (--new starts afresh)."


def _measured(event: QualityMeasured) -> str | None:
    """Return what is not as expected; nothing where everything is."""
    if event.audited.outcome == "skipped":
        return f"{event.target}: expectations are left out, as EMATIX_SKIP_QUALITY says."
    wrong = [check for check in event.audited.checks if check.verdict != "pass"]
    if not wrong:
        return None
    failures = [f"{check.name} ({_blame(check)})" for check in wrong]
    return f"{event.target}: not as expected: {', '.join(failures)}."


def _blame(check: CheckResult) -> str:
    if check.verdict == "error":
        return "could not be measured"
    total = quantity(check.total, "row")
    return total if check.failed_rows is None else f"{check.failed_rows:,} of {total}"


def _begun(event: RunStarted) -> str:
    if event.by == NO_ENGINE:
        return "nothing new"
    return f"loading {_ENGINES.get(event.by, event.path)}{f': {event.reason}' if event.reason else ''}"


def counted(counts: Counts) -> str:
    """Return what a load did to its target as text."""
    names = ("inserted", "updated", "closed", "deleted", "unchanged", "rejected")
    changes = [f"{getattr(counts, name):,} {name}" for name in names if getattr(counts, name)]
    return ", ".join(changes) or "nothing to change"


@contextmanager
def progress_subscriber() -> Iterator[Subscriber]:
    """Return the subscriber that shows the progress of a run, as suits stderr."""
    if not has_colours(sys.stderr):
        yield _print_lines
        return
    with _live() as subscriber:
        yield subscriber


def _print_lines(event: Event) -> None:
    line = sentence(event)
    if line is not None:
        talk(line)


@contextmanager
def _live() -> Iterator[Subscriber]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as progress:
        yield Live(progress)


class Live:
    """One live line per target, and lines that stay for the rest."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._planning: TaskID | None = progress.add_task("planning", total=1)

    def __call__(self, event: Event) -> None:
        """Show an event."""
        match event:
            case RunStarted(by=by) if by == NO_ENGINE:
                self._show(event, "nothing new")
            case RunStarted(path="cross_db"):
                self._show(event, "starting Spark, reading" if event.by == SPARK else "reading")
            case RunStarted():
                self._show(event, "loading inside the database")
            case StageProgress():
                self._show(event, f"{quantity(event.rows, 'row')} staged so far, in {quantity(event.tasks, 'part')}")
            case RowsStaged():
                self._show(event, f"{quantity(event.rows, 'row')} staged, committing")
            case RunCommitted(replayed=False):
                self._show(event, f"committed, {counted(event.counts)}", done=True)
            case MaintenanceStep():
                self._show(event, event.step, done=event.numbers is not None)
            case RunFailed():
                self._show(event, "failed, nothing was changed")
                self._progress.stop_task(self._tasks[event.target])
            case _:
                self._stay(event)

    def _show(self, event: Event, text: str, *, done: bool = False) -> None:
        if self._planning is not None:
            self._progress.remove_task(self._planning)
            self._planning = None
        if event.target not in self._tasks:
            self._tasks[event.target] = self._progress.add_task("", total=1)
        self._progress.update(self._tasks[event.target], description=f"{event.target}  {text}", completed=int(done))

    def _stay(self, event: Event) -> None:
        from ematix_flow.connect.config.redact import redact

        line = sentence(event)
        if line is not None:
            self._progress.console.print(redact(line), markup=False, highlight=False)
