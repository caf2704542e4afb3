"""Rejected rows of a pipeline: list them, show one, load them again."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.rejects import rejects_of
from ematix_flow.commit.runlog.open import open_run_log
from ematix_flow.commit.runlog.requests import worked_on
from ematix_flow.connect.base.stream_source import parse_timestamp
from ematix_flow.connect.registry import open_target
from ematix_flow.connect.types.reject_rows import SHAPED, values_of
from ematix_flow.declare.quality.checks import BY_ROW
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.run import run_pipeline
from ematix_flow.engine.schedule.lease import held_now
from ematix_flow.errors import RunError, RunLogError, UnknownNameError
from ematix_flow.plan.columns import EVENT, OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from ematix_flow.commit.rejects import Reject
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration


def list_rejects(pipeline: Pipeline, *, status: str | None = "pending", limit: int = 100) -> list[Reject]:
    """Return the rejects of all targets of a pipeline, newest first; `status` None means all."""
    rows: list[Reject] = []
    for target in pipeline.targets:
        rows.extend(_of_target(pipeline, target, status, limit))
    return sorted(rows, key=lambda reject: (reject.rejected_at, reject.reject_id), reverse=True)[:limit]


def show_reject(pipeline: Pipeline, reject_id: str) -> Reject:
    """Return one reject by its id or a unique beginning of it."""
    rows = [r for r in list_rejects(pipeline, status=None, limit=1_000_000) if r.reject_id.startswith(reject_id)]
    exact = [reject for reject in rows if reject.reject_id == reject_id] or rows
    if len(exact) != 1:
        message = f"{len(exact)} rejects of {pipeline.name!r} match {reject_id!r}"
        raise UnknownNameError(message, hint="flow rejects list shows the ids.")
    return exact[0]


def replay_rejects(
    pipeline: Pipeline, ids: Sequence[str] | None = None, options: Options | None = None
) -> dict[str, Any]:
    """Load pending rejects again, all or those that are named, through the pipeline as it is declared now; rows that still do not fit stay rejects.

    The replay is a load of its own, and marks the rejects in its own transaction: a crash in the middle never loads a
    row twice. Every target, and rows of the source and rows that the pipeline has shaped already, are a load each; `result`
    is the last one's.
    """
    options = options or Options()
    chosen = [(target, _pending(pipeline, target, ids)) for target in pipeline.targets]
    if not any(rejects for _, rejects in chosen):
        return {"replayed": 0, "rejected": 0, "result": None}
    _refuse_while_running(pipeline, options)
    results = []
    for target, rejects in chosen:
        again = replace(pipeline, targets=(_append_only(target),), transforms_post=(), continue_on_failure=False)
        alike = sorted(rejects, key=_kind_of)
        results += [_replay(again, list(some), options) for _, some in groupby(alike, key=_kind_of)]
    rejected = sum(int(result["rows_rejected"]) for result in results)
    replayed = sum(len(rejects) for _, rejects in chosen) - rejected
    return {"replayed": replayed, "rejected": rejected, "result": results[-1]}


def _pending(pipeline: Pipeline, target: TargetDeclaration, ids: Sequence[str] | None) -> list[Reject]:
    pending = list_rejects(replace(pipeline, targets=(target,)), limit=1_000_000)
    return [reject for reject in pending if ids is None or reject.reject_id in ids]


def _refuse_while_running(pipeline: Pipeline, options: Options) -> None:
    """Refuse to replay while the pipeline runs: of two loads of a pipeline only the newer one may commit."""
    try:
        log = options.run_log or open_run_log()
        held = held_now(log).get(pipeline.name)
        holder = f"on {held}" if held else worked_on(log.backend).get(pipeline.name)
    except RunLogError:
        return  # a load never fails because of its run log
    if holder is not None:
        message = f"pipeline {pipeline.name!r} is running {holder}; a replay now would keep that run from its commit"
        raise RunError(message, hint="replay when it has ended.", origin=pipeline.origin)


def _kind_of(reject: Reject) -> tuple[bool, bool]:
    return reject.is_shaped, reject.is_typed


def _replay(pipeline: Pipeline, rejects: Sequence[Reject], options: Options) -> dict[str, Any]:
    """Load rejects whose rows are of one kind, and return the result of the load."""
    shaped, typed = _kind_of(rejects[0])
    rows, known = _frame(rejects, pipeline.targets[0], typed=typed), tuple(reject.reject_id for reject in rejects)
    given = replace(options, slot=replay_slot(rejects), source_frame=rows, shaped=shaped, replays=known)
    result: dict[str, Any] = run_pipeline(pipeline, given)
    return next(iter(result.values())) if pipeline.fan_out else result


def _append_only(target: TargetDeclaration) -> TargetDeclaration:
    """Return the target for a replay, which is no full source: it deletes nothing, stores no watermark and no files."""
    write = replace(
        target.write,
        on_bad_row="reject",
        incremental_column=None,
        incremental=None,
        lookback=None,
        handle_deletes=None,
        mode="append" if target.write.mode == "truncate" else target.write.mode,
    )
    # Expectations about a whole load do not apply to a few of its rows.
    by_row = tuple(replace(one, severity="reject") for one in target.quality.expectations if one.kind in BY_ROW)
    return replace(target, write=write, quality=replace(target.quality, expectations=by_row))


def replay_slot(chosen: Sequence[Reject]) -> str:
    """Return the slot of the load that brings these rows again: the same whenever they are the same."""
    import hashlib

    joined = "\n".join(sorted(reject.reject_id for reject in chosen))
    return f"replay-{hashlib.sha256(joined.encode()).hexdigest()[:32]}"


def _frame(rejects: Iterable[Reject], target: TargetDeclaration, *, typed: bool) -> pa.Table:
    """Return the rows as an Arrow table of text and bytes, which the shape parses like any source of text.

    Values that are `typed` may be what no text of a source means: numbers that are infinite.
    """
    import pyarrow as pa

    rows = [_own_values(reject, target) for reject in rejects]
    names = list(dict.fromkeys(name for row in rows for name in row))
    kinds = {column.name: column.type.kind for column in target.table.columns}
    kinds.setdefault(target.write.event_timestamp_column or EVENT, EVENT)
    read = {name: _TYPED.get(kinds.get(name, "")) if typed else None for name in names}
    return pa.table({name: _array([row.get(name) for row in rows], read[name]) for name in names})


_TYPED: dict[str, Callable[[str], Any]] = {"float": float, "double": float, EVENT: parse_timestamp}
"""What reads typed values of a kind that the shape would not."""


def _own_values(reject: Reject, target: TargetDeclaration) -> dict[str, str | bytes | None]:
    """Return the values of a row without those that a load adds for itself; the time of its event has its own name again."""
    values, event = values_of(reject.row_json), target.write.event_timestamp_column
    if event is not None and EVENT in values:
        values.setdefault(event, values[EVENT])
    return {name: value for name, value in values.items() if name not in (SHAPED, EVENT, *OURS)}


def _array(values: Sequence[str | bytes | None], read: Callable[[str], Any] | None) -> pa.Array:
    import pyarrow as pa

    if any(isinstance(value, bytes) for value in values):
        return pa.array([value.encode() if isinstance(value, str) else value for value in values], pa.binary())
    if read is not None and any(values):
        try:
            return pa.array([None if value is None else read(str(value)) for value in values])
        except (ValueError, RunError):
            pass
    return pa.array(values, pa.string())


def _of_target(pipeline: Pipeline, target: TargetDeclaration, status: str | None, limit: int) -> list[Reject]:
    database = open_target(target.connection, (target.table.schema, target.table.name))
    rows = rejects_of(database, pipeline.name, status, limit)
    return [reject for reject in rows if reject.target_name.endswith(f":{target.table.qualified_name}")]
