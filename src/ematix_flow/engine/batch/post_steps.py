"""Post steps and named transforms: each in its own transaction, with its own row in the run history."""

from __future__ import annotations

import inspect
import json
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.ledger import HistoryRow, Ledger
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.registry import open_database
from ematix_flow.declare.pipeline.pipeline import ParentContext, TransformRef, arguments_of
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.connection import Connection
from ematix_flow.engine.errors import containing_exits
from ematix_flow.errors import FlowError, RunError, UnknownNameError, did_you_mean
from ematix_flow.plan.post_steps import is_maintenance
from ematix_flow.records import Token

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.declare.connection.registry import Connection as Declared
    from ematix_flow.declare.pipeline.pipeline import Pipeline, Transform
    from ematix_flow.engine.batch.options import Options


def parent_of(pipeline: Pipeline, result: dict[str, Any]) -> ParentContext:
    """Return what the post steps get of the load before them."""
    return ParentContext(
        pipeline.name,
        str(result["run_id"]),
        int(result.get("rows_inserted", 0)),
        int(result.get("rows_updated", 0)),
        int(result.get("rows_unchanged", 0)),
    )


def resolve_step(pipeline: Pipeline, step: Any) -> tuple[Any, str | Declared | None]:
    """Return SQL, a function or a pipeline for the name of a post step, and the connection that it runs on."""
    connection = pipeline.targets[0].connection
    if not isinstance(step, TransformRef):
        return step, connection
    if step.name in PROJECT.transforms:
        transform = PROJECT.transforms[step.name]
        return transform.function, transform.connection or connection
    if step.name in PROJECT.pipelines:
        return PROJECT.pipeline(step.name), connection
    known = [*PROJECT.transforms, *PROJECT.pipelines]
    message = f"no transform or pipeline named {step.name!r}"
    raise UnknownNameError(message, hint=did_you_mean(step.name, known), origin=pipeline.origin)


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One step with its connection and its row in the run history."""

    handle: Connection
    ledger: Ledger
    row: HistoryRow
    options: Options

    @property
    def done(self) -> bool:
        """Return whether this step of this load succeeded before a crash."""
        return self.ledger.status_of(self.handle.session(), self.row.run_id) == "transform_success"

    def run(self, step: Any, parent: ParentContext | None) -> Any:
        """Run SQL or a function and record it in one transaction, and return its metrics; maintenance runs outside of it."""
        if isinstance(step, str) and is_maintenance(step):
            self.handle.execute(step)
            return self.succeeded(None)
        with self.handle.transaction():
            metrics = _metrics(_called(step, self.handle, parent))
            self._record("transform_success", metrics=metrics)
        return metrics

    def succeeded(self, returned: Any) -> Any:
        """Record a step that had transactions of its own, and return its metrics."""
        metrics = _metrics(returned)
        with self.handle.transaction():
            self._record("transform_success", metrics=metrics)
        return metrics

    def failed(self, error: BaseException) -> None:
        """Record a step that failed, as far as the database takes it."""
        with suppress(FlowError), self.handle.transaction():
            self._record("transform_failed", error=safe_text(error)[:4000])

    def _record(self, status: str, *, metrics: Any = None, error: str | None = None) -> None:
        text = json.dumps(metrics, default=str) if metrics is not None else None
        done = replace(self.row, status=status, finished_at=self.options.clock.now(), error=error, metrics=text)
        self.ledger.record(self.handle.session(), done)


@contextmanager
def recorded_step(
    token: Token, name: str, connection: str | Declared | None, options: Options, parent: ParentContext | None = None
) -> Iterator[RecordedStep]:
    """Open the connection of a step for this block, and record what goes wrong in it."""
    declared = resolve_connection("default" if connection is None else connection)
    database = open_database(declared)
    row = HistoryRow(
        run_id=token.run_id, pipeline=token.pipeline, schema="", table="", mode="transform", path="post",
        started_at=options.clock.now(), status="transform_success", parent_run_id=parent.run_id if parent else None,
        step=name,
    )  # fmt: skip
    recorded = RecordedStep(Connection(database, declared), Ledger(database), row, options)
    try:
        recorded.ledger.ensure(recorded.handle.session())
        yield recorded
    except BaseException as error:
        recorded.failed(error)
        raise
    finally:
        recorded.handle.close()


def _metrics(returned: Any) -> dict[str, Any] | None:
    return returned if isinstance(returned, dict) else None


def _called(step: Any, handle: Connection, parent: ParentContext | None) -> Any:
    if isinstance(step, str):
        return handle.execute(step)
    with containing_exits():
        returned = step(handle, parent) if len(arguments_of(step)) > 1 else step(handle)
    if inspect.isawaitable(returned):
        message = "a transform cannot be async: it runs inside a transaction"
        raise RunError(message)
    return returned


def run_named_transform(name: str, options: Options) -> dict[str, Any]:
    """Run a declared transform on its own, as a run of its own."""
    transform: Transform = PROJECT.transform(name)
    token = Token(name, "transform", uuid.uuid4().hex)
    with recorded_step(token, name, transform.connection, options) as recorded:
        metrics = recorded.run(transform.function, None)
    return {"status": "success", "metrics": metrics, "run_id": token.run_id}
