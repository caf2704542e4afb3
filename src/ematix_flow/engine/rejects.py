"""Rejected rows of a pipeline: list them, show one, load them again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.rejects import rejects_of, row_of
from ematix_flow.connect.registry import open_target
from ematix_flow.declare.quality.checks import BY_ROW
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.run import run_pipeline
from ematix_flow.errors import RunError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def replay_rejects(pipeline: Pipeline, ids: Sequence[str] = (), options: Options | None = None) -> dict[str, Any]:
    """Load pending rejects again through the pipeline as it is declared now; rows that still do not fit stay rejects.

    The replay is a load of its own, and marks the rejects in its own transaction: a crash in the middle never loads a
    row twice.
    """
    options = options or Options()
    chosen = [r for r in list_rejects(pipeline, limit=1_000_000) if not ids or r.reject_id in ids]
    if not chosen:
        return {"replayed": 0, "rejected": 0, "result": None}
    if pipeline.fan_out:
        message = "rejects of a fan-out are replayed by the target's own pipeline"
        raise RunError(message, hint="declare a pipeline for that target alone and replay there.")
    # Every digit of a number goes back into the load as it was written.
    rows = [row_of(reject.row_json, parse_float=str) for reject in chosen]
    again = replace(pipeline, targets=(_append_only(pipeline.targets[0]),), transforms_post=())
    known = tuple(reject.reject_id for reject in chosen)
    result = run_pipeline(again, replace(options, slot=replay_slot(chosen), source_frame=_frame(rows), replays=known))
    rejected = int(result["rows_rejected"])
    return {"replayed": len(chosen) - rejected, "rejected": rejected, "result": result}


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


def _frame(rows: list[dict[str, Any]]) -> Any:
    """Return the rows as an Arrow table of text, which the shape parses like any text source."""
    import pyarrow as pa

    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: pa.array([_column_text(row.get(name)) for row in rows], pa.string()) for name in names})


def _column_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, dict | list | bool) else str(value)


def _of_target(pipeline: Pipeline, target: TargetDeclaration, status: str | None, limit: int) -> list[Reject]:
    database = open_target(target.connection, (target.table.schema, target.table.name))
    rows = rejects_of(database, pipeline.name, status, limit)
    return [reject for reject in rows if reject.target_name.endswith(f":{target.table.qualified_name}")]
