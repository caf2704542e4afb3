"""The SQL of a warehouse pipeline, run by DuckDB over the rows of its source."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from ematix_flow.connect.base.scratch import scratch_folder
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.errors import PlanError, RunError
from ematix_flow.plan.sql.user.query import statements_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

BATCH_ROWS = 100_000


def transformed(rows: pa.RecordBatchReader, sql: str | None, resources: ExitStack) -> pa.RecordBatchReader:
    """Return what the SQL makes of the rows; without SQL the rows themselves.

    The rows lie in a file of DuckDB meanwhile: a query may read them more than once, and memory need not hold them.
    """
    if sql is None:
        return rows
    if len(statements_in(sql, "duckdb")) != 1:
        raise PlanError("the SQL of a warehouse pipeline is one query over `source`")
    folder = resources.enter_context(scratch_folder("warehouse"))
    connection = resources.enter_context(duckdb.connect(f"{folder}/rows.duckdb"))
    # A date or a text of an instant must not depend on the zone of this machine.
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("_flow_rows", rows)
    try:
        connection.execute("CREATE TABLE source AS SELECT * FROM _flow_rows")
    except duckdb.Error as error:
        raise RunError(f"the rows of the source could not be read to their end: {safe_text(error)}") from None
    with _translated():
        result = connection.sql(sql).to_arrow_reader(BATCH_ROWS)
    return pa.RecordBatchReader.from_batches(result.schema, _batches(result))


def _batches(result: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    with _translated():
        yield from result


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        message = f"the SQL of the warehouse pipeline failed: {safe_text(error)}"
        raise PlanError(message, hint="it is DuckDB's SQL, over the table `source`.") from None
