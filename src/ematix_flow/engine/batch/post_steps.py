"""Post steps and named transforms: each in its own transaction, with its own row in the run history."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.ledger import HistoryRow, Ledger
from ematix_flow.connect.base.cancellation import current
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.registry import open_database
from ematix_flow.declare.pipeline.pipeline import ParentContext, TransformRef, arguments_of
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.api.connection import Connection
from ematix_flow.errors import FlowError, RunError, UnknownNameError, did_you_mean
from ematix_flow.events import PostFinished
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.post_steps import is_maintenance, post_steps
from ematix_flow.records import Token

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.connection.registry import Connection as Declared
    from ematix_flow.declare.pipeline.pipeline import Pipeline, Transform
    from ematix_flow.engine.batch.options import Options


def run_posts(pipeline: Pipeline, result: dict[str, Any], options: Options) -> None:
    """Run the post steps of a loaded pipeline in order; each runs once per load, also after a crash between them."""
    parent = ParentContext(
        pipeline.name,
        str(result["run_id"]),
        int(result.get("rows_inserted", 0)),
        int(result.get("rows_updated", 0)),
        int(result.get("rows_unchanged", 0)),
    )
    connection = pipeline.targets[0].connection
    for post in post_steps(pipeline):
        name = post.name
        current().next_step()
        failpoint("post.before")
        try:
            _post(pipeline, name, post.step, parent, connection, options)
        except Exception as error:
            options.bus.emit(PostFinished(pipeline.name, "", name, ok=False, message=safe_text(error)))
            if not pipeline.continue_on_failure_post:
                raise
            continue
        failpoint("post.after")
        options.bus.emit(PostFinished(pipeline.name, "", name, ok=True))


def _post(
    pipeline: Pipeline,
    name: str,
    step: Any,
    parent: ParentContext,
    connection: str | Declared | None,
    options: Options,
) -> None:
    if isinstance(step, TransformRef):
        if step.name in PROJECT.transforms:
            transform = PROJECT.transforms[step.name]
            step, connection = transform.function, transform.connection or connection
        elif step.name in PROJECT.pipelines:
            from ematix_flow.engine.batch.run import run_pipeline

            # The slot makes a child that is run again after a crash the same load.
            slot = f"{parent.run_id}:{name}"
            step = _WholePipeline(step.name, run_pipeline, replace(options, slot=slot, source_frame=None, replays=()))
        else:
            known = [*PROJECT.transforms, *PROJECT.pipelines]
            message = f"no transform or pipeline named {step.name!r}"
            raise UnknownNameError(message, hint=did_you_mean(step.name, known), origin=pipeline.origin)
    token = Token(pipeline.name, parent.pipeline_name, f"{parent.run_id}:{name}")
    _recorded_step(token, name, step, parent, connection, options)


@dataclass(frozen=True, slots=True)
class _WholePipeline:
    """A post step that is a pipeline: it has transactions of its own, so it runs outside the step's."""

    name: str
    run: Callable[..., Any]
    options: Options

    def __call__(self) -> Any:
        return self.run(PROJECT.pipeline(self.name), self.options)


def _recorded_step(
    token: Token,
    name: str,
    step: Any,
    parent: ParentContext | None,
    connection: str | Declared | None,
    options: Options,
) -> dict[str, Any]:
    declared = resolve_connection("default" if connection is None else connection)
    database = open_database(declared)
    ledger = Ledger(database)
    handle = Connection(database, declared)
    started = options.clock.now()
    row = HistoryRow(
        run_id=token.run_id, pipeline=token.pipeline, schema="", table="", mode="transform", path="post",
        started_at=started, status="transform_success", parent_run_id=parent.run_id if parent else None, step=name,
    )  # fmt: skip
    try:
        session = handle.session()
        ledger.ensure(session)
        if parent is not None and _done(ledger, handle, token):
            return {"status": "success", "metrics": None, "run_id": token.run_id}
        metrics = _execute(step, handle, parent, lambda metrics: _finish(ledger, handle, row, options, metrics=metrics))
    except BaseException as error:
        with suppress(FlowError), handle.transaction():
            _finish(ledger, handle, row, options, error=safe_text(error)[:4000])
        raise
    finally:
        handle.close()
    return {"status": "success", "metrics": metrics, "run_id": token.run_id}


def _done(ledger: Ledger, handle: Connection, token: Token) -> bool:
    """Return whether this step of this load succeeded before a crash."""
    rows = handle.session().query(
        f"SELECT status FROM {ledger.name('run_history')} WHERE CAST(run_id AS CHAR(36)) = ?", (token.run_id,)
    )
    return bool(rows) and rows[0][0] == "transform_success"


def _execute(step: Any, handle: Connection, parent: ParentContext | None, finish: Callable[[Any], None]) -> Any:
    """Run a step and record it in one transaction; maintenance and whole pipelines run outside of it."""
    outside = isinstance(step, _WholePipeline) or (isinstance(step, str) and is_maintenance(step))
    returned = _called(step, handle, parent) if outside else None
    with handle.transaction():
        returned = returned if outside else _called(step, handle, parent)
        metrics = returned if isinstance(returned, dict) else None
        finish(metrics)
    return metrics


def _called(step: Any, handle: Connection, parent: ParentContext | None) -> Any:
    if isinstance(step, str):
        return handle.execute(step)
    if isinstance(step, _WholePipeline):
        return step()
    returned = step(handle, parent) if len(arguments_of(step)) > 1 else step(handle)
    if inspect.isawaitable(returned):
        message = "a transform cannot be async: it runs inside a transaction"
        raise RunError(message)
    return returned


def _finish(
    ledger: Ledger,
    handle: Connection,
    row: HistoryRow,
    options: Options,
    *,
    metrics: Any = None,
    error: str | None = None,
) -> None:
    status = "transform_failed" if error else "transform_success"
    text = json.dumps(metrics, default=str) if metrics is not None else None
    done = replace(row, status=status, finished_at=options.clock.now(), error=error, metrics=text)
    ledger.record(handle.session(), done)


def run_named_transform(name: str, options: Options) -> dict[str, Any]:
    """Run a declared transform on its own, as a run of its own."""
    import uuid

    transform: Transform = PROJECT.transform(name)
    token = Token(name, "transform", uuid.uuid4().hex)
    return _recorded_step(token, name, transform.function, None, transform.connection, options)
