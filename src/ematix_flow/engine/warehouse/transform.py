"""The SQL of a warehouse pipeline, run by DuckDB over the rows of its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

from ematix_flow.connect.base.scratch import scratch_folder
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.user.query import statements_in

if TYPE_CHECKING:
    from contextlib import ExitStack

    import pyarrow as pa

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
    connection.register("_flow_rows", rows)
    connection.execute("CREATE TABLE source AS SELECT * FROM _flow_rows")
    try:
        return connection.sql(sql).to_arrow_reader(BATCH_ROWS)
    except duckdb.Error as error:
        message = f"the SQL of the warehouse pipeline failed: {safe_text(error)}"
        raise PlanError(message, hint="it is DuckDB's SQL, over the table `source`.") from None
