"""Runs a pipeline between warehouses: read, transform, stage, commit; only this module has the order."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.commit.warehouse import commit_load, recorded_load
from ematix_flow.connect.base.cancellation import current
from ematix_flow.connect.warehouse.rows import common_schema
from ematix_flow.engine.batch.source import called
from ematix_flow.engine.warehouse.open import open_warehouse
from ematix_flow.engine.warehouse.transform import transformed
from ematix_flow.errors import DeclareTypeError, PlanError, did_you_mean
from ematix_flow.plan.warehouse import LoadFacts, commit_of, create_table_sql, source_sql, watermark_text
from ematix_flow.records import Token

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.clock import Clock
    from ematix_flow.connect.warehouse.session import WarehouseSession
    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.declare.pipeline.warehouse import WarehouseLoad


def run_warehouse_pipeline(pipeline: Pipeline, load: WarehouseLoad, slot: str, clock: Clock) -> dict[str, Any]:
    """Load what the source has now into the target, once for a slot, and return the result of the run."""
    started = time.monotonic()
    target = load.target
    token = Token(pipeline.name, f"{target.connection_name}:{target.table_name}", slot).key
    sql = _transform_sql(pipeline)
    with closing(open_warehouse(target.connection, target.kind)) as session:
        facts = recorded_load(session, target.table_name, token, pipeline.name)
        if facts is None:
            begun = LoadFacts(token, pipeline.name, 0, 0, committed_at=f"{clock.now():%Y-%m-%d %H:%M:%S}")
            facts = _load(load, begun, sql, session)
    if load.watermark_store is not None and facts.watermark is not None:
        load.watermark_store.set(pipeline.name, facts.watermark)
    return {
        "status": "success",
        "pipeline": pipeline.name,
        "rows_read": facts.rows_read,
        "rows_written": facts.rows_written,
        "duration_ms": round((time.monotonic() - started) * 1000),
    }


def _transform_sql(pipeline: Pipeline) -> str | None:
    returned = called(pipeline.function)
    if returned is None or (isinstance(returned, str) and returned.strip()):
        return returned
    message = f"{pipeline.name!r} returned {type(returned).__name__}"
    raise DeclareTypeError(message, hint="return None, or SQL over `source`.", origin=pipeline.origin)


def _load(load: WarehouseLoad, begun: LoadFacts, sql: str | None, session: WarehouseSession) -> LoadFacts:
    """Read, transform, stage and commit; return what was recorded of the load."""
    target, source = load.target, load.source
    low = load.watermark_store.get(begun.pipeline) if load.watermark_store is not None else None
    with ExitStack() as resources:
        reading = resources.enter_context(closing(open_warehouse(source.connection, source.kind)))
        rows = _Counted(reading.read(source_sql(source.sql, source.kind, load.incremental_column, low)), load)
        result = transformed(rows.reader(), sql, resources)
        schema = common_schema(result.schema)
        current().next_step()
        staged = session.stage(schema, result, begun.token)
    facts = replace(begun, rows_read=rows.count, rows_written=staged.rows, watermark=rows.watermark or low)
    if target.create_if_not_exists:
        session.query(create_table_sql(target.table_name, target.kind, session.columns_sql(schema)))
    current().next_step()
    commit = commit_of(target.table_name, target.kind, staged.relation, schema.names, facts)
    return commit_load(session, commit, facts, lambda: open_warehouse(target.connection, target.kind))


class _Counted:
    """Counts the rows that pass, and keeps the highest value of the incremental column."""

    def __init__(self, rows: pa.RecordBatchReader, load: WarehouseLoad) -> None:
        self._rows = rows
        self._column = self._named(load.incremental_column)
        self._highest: Any = None
        self.count = 0

    def _named(self, column: str | None) -> str | None:
        names = {name.lower(): name for name in self._rows.schema.names}
        if column is not None and column.lower() not in names:
            message = f"incremental_column={column!r} is not among the columns of the source"
            raise PlanError(message, hint=did_you_mean(column, self._rows.schema.names))
        return None if column is None else names[column.lower()]

    @property
    def watermark(self) -> str | None:
        """Return the highest value so far as a watermark."""
        return None if self._highest is None else watermark_text(self._highest)

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows."""
        return pa.RecordBatchReader.from_batches(self._rows.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._rows:
            self.count += batch.num_rows
            if self._column is not None:
                highest = pc.max(batch[self._column]).as_py()
                if highest is not None and (self._highest is None or highest > self._highest):
                    self._highest = highest
            yield batch
