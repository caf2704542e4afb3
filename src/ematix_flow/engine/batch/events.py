"""Emits that a pipeline begins, what a load reads and writes, and how it ends; it does none of the work."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.config.redact import redact, safe_text
from ematix_flow.engine.batch.result import errors_in, run_ids_of
from ematix_flow.errors import RunError
from ematix_flow.events import AttemptBegan, AttemptEnded, PipelineBegan, PipelineEnded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ematix_flow.connect.base.system import System
    from ematix_flow.engine.batch.options import Options
    from ematix_flow.engine.batch.source import OpenSource
    from ematix_flow.events import LoadFacts
    from ematix_flow.observe.bus import Bus
    from ematix_flow.plan.steps import TargetPlan


def facts_about(plan: TargetPlan, target: System, source: OpenSource | None) -> LoadFacts:
    """Return what a load reads and writes; to work that out takes a while."""
    # Imported here: column lineage through SQL is only computed when a subscriber reads it.
    from ematix_flow.plan.explain.lineage import DatasetLocation, facts_of

    def dataset_location(system: System, dialect: str) -> DatasetLocation:
        info = dict(system.info())
        where = str(info["dbname"] or "")
        if info["host"] is None and where and "://" not in where:
            info["dbname"] = str(Path(where).expanduser().absolute())
        return DatasetLocation(system.kind, dialect, info)

    sides = (
        {side.alias: dataset_location(side.system, side.system.dialect) for side in source.sides}
        if source is not None
        else {}
    )
    system = None if source is None else source.database or source.files or source.lake
    read = None if source is None or system is None else dataset_location(system, source.dialect)
    return facts_of(plan, dataset_location(target, target.dialect), read, sides)


@dataclass(slots=True)
class RunOutcome:
    """What a block of work has returned; set by the block, read when its end is emitted."""

    result: Any = None


@contextmanager
def emitting_pipeline(pipeline: str, slot: str, options: Options, outcome: RunOutcome) -> Iterator[None]:
    """Emit that a pipeline begins, and how this block ends."""
    began = options.clock.now()
    options.bus.emit(PipelineBegan(pipeline, "", slot))
    try:
        yield
    except BaseException as error:
        options.bus.emit(_ended(pipeline, slot, options, began, failure=(safe_text(error), type(error).__name__)))
        raise
    failure, run_ids = _failure_in(outcome.result), run_ids_of(outcome.result)
    options.bus.emit(_ended(pipeline, slot, options, began, failure, run_ids))


@contextmanager
def emitting_attempt(
    pipeline: str, slot: str, attempt: int, bus: Bus, outcome: RunOutcome | None = None, *, of_stream: bool = False
) -> Iterator[RunOutcome]:
    """Emit where an attempt begins and ends in this thread, for captured logs; return what the block puts its result in."""
    outcome = outcome or RunOutcome()
    bus.emit(AttemptBegan(pipeline, "", slot, attempt, of_stream))
    try:
        yield outcome
    except BaseException as error:
        bus.emit(AttemptEnded(pipeline, "", slot, failed=True, traceback=traceback_of(error)))
        raise
    bus.emit(AttemptEnded(pipeline, "", slot, failed=bool(errors_in(outcome.result))))


def traceback_of(error: BaseException) -> str:
    """Return where an error came from; a signal came from outside."""
    return redact("".join(format_exception(error))) if isinstance(error, Exception) else ""


def _ended(
    pipeline: str,
    slot: str,
    options: Options,
    began: datetime,
    failure: tuple[str, str],
    run_ids: tuple[str, ...] = (),
) -> PipelineEnded:
    now, (message, kind) = options.clock.now(), failure
    seconds, gave_up = (now - began).total_seconds(), bool(kind)
    return PipelineEnded(pipeline, "", slot, now, seconds, 1, 1, gave_up, message, kind, run_ids)


def _failure_in(result: Any) -> tuple[str, str]:
    """Return the message and the class of what went wrong with targets that others did not wait for."""
    errors = errors_in(result)
    return (
        ("\n".join(f"{target}: {text}" for target, text in errors.items()), RunError.__name__) if errors else ("", "")
    )
