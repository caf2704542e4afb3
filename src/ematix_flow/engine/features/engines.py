"""Chooses who joins a training set, by what was asked for, what can and about how large it is, and has it joined."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.registry import LAKES
from ematix_flow.connect.types.frames import is_spark_frame
from ematix_flow.declare.values import one_of
from ematix_flow.engine.api.references import declared_connection
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.connection import Connection
from ematix_flow.engine.features.joins import join
from ematix_flow.engine.features.on_spark import joined_table
from ematix_flow.engine.features.read import reading
from ematix_flow.engine.spark.session import local_reason
from ematix_flow.errors import DeclareError
from ematix_flow.plan.sql.render import native_name
from ematix_flow.plan.steps import Choice
from ematix_flow.plan.training_join import AUTO, DATABASE, ENGINES, SPARK, JoinSize, TrainingPlan, by_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from ematix_flow.declare.table.schema import Table
    from ematix_flow.engine.features.joins import Joined
    from ematix_flow.engine.features.read import Reader


def join_plan(conn: Any, spine: Any, views: Sequence[Table], engine: str) -> TrainingPlan:
    """Return who joins a spine, an Arrow table or a frame of Spark, with views; only sizes are read."""
    one_of("engine", engine, ENGINES)
    rows = None if is_spark_frame(spine) else int(spine.num_rows)
    only = _only(conn)
    if only is not None and engine not in (AUTO, only.value):
        message = f"engine={engine!r} cannot join this training set: {only.reason}"
        raise DeclareError(message, hint=f'leave engine= out, or write engine="{only.value}".')
    size = JoinSize(rows, {})
    if only is not None:
        choice = only
    elif engine != AUTO:
        choice = Choice(engine, "engine= says so")
    elif rows is None:
        choice = Choice(SPARK, "the spine is a frame of Spark")
    elif local := local_reason(Options()):
        choice = Choice(DATABASE, local)
    else:
        size = JoinSize(rows, _versions(conn, views))
        choice = by_size(size)
    return TrainingPlan(choice.value, choice.reason, size)


def joined_as_planned(plan: TrainingPlan, conn: Any, spine: Any, joined: Sequence[Joined]) -> pa.Table:
    """Return the spine with the columns of every view, joined by whom the plan says."""
    return join(conn, spine, joined) if plan.engine == DATABASE else joined_table(conn, spine, joined)


def _only(conn: Any) -> Choice | None:
    """Return who alone can read a connection; None where both can."""
    if isinstance(conn, Connection):
        if conn.in_transaction:
            return Choice(DATABASE, "only the connection itself sees what its transaction has not committed")
        # Tasks are processes of their own, which DuckDB does not let in.
        return Choice(DATABASE, "DuckDB has its file open in this process") if conn.database.kind == "duckdb" else None
    if declared_connection(conn).kind in LAKES:
        return Choice(SPARK, "the versions are in a lake, which Spark reads")
    return None


def _versions(conn: Any, views: Sequence[Table]) -> dict[str, int]:
    """Return about how many versions every view has, from what the database knows without reading them."""
    with reading(conn, views[0]) as reader:
        return {view.qualified_name: _estimate(reader, view) for view in views}


def _estimate(reader: Reader, view: Table) -> int:
    place = reader.place(view)
    return max(
        0, _ESTIMATES[reader.dialect](reader, native_name(place, reader.dialect), place.schema or "", place.name)
    )


def _planned(reader: Reader, table: str, schema: str, name: str) -> int:
    """Return what the planner of PostgreSQL expects, which goes by the size of the table also where nothing was analyzed."""
    del schema, name
    answer = reader.query(f"EXPLAIN (FORMAT JSON) SELECT 1 FROM {table}", ())[0][0]
    plan = json.loads(answer) if isinstance(answer, str | bytes) else answer
    return int(plan[0]["Plan"]["Plan Rows"])


def _listed(reader: Reader, table: str, schema: str, name: str) -> int:
    del table
    sql = "SELECT table_rows FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?"
    rows = reader.query(sql, (schema, name))
    return int(rows[0][0] or 0) if rows else 0


def _counted(reader: Reader, table: str, schema: str, name: str) -> int:
    """Return the rows as they are: DuckDB knows them, and SQLite has no other number."""
    del schema, name
    return int(reader.query(f"SELECT COUNT(*) FROM {table}", ())[0][0])


_ESTIMATES: dict[str, Callable[[Reader, str, str, str], int]] = {
    "postgres": _planned,
    "mysql": _listed,
    "duckdb": _counted,
    "sqlite": _counted,
}
"""How each dialect tells the number of rows of a table."""
