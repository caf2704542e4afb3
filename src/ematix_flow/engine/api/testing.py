"""Runs a user's pipeline over given rows on a DuckDB file that vanishes: the real load, without the declared systems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.commit.runlog.open import sqlite_run_log
from ematix_flow.connect.base.scratch import scratch_folder
from ematix_flow.connect.config.lookup import find_connection
from ematix_flow.connect.registry import DATABASES, open_database
from ematix_flow.connect.types.frames import is_spark_frame
from ematix_flow.declare.connection.registry import DuckDBConnection
from ematix_flow.declare.pipeline.pipeline import Pipeline, Source
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.quality.checks import EXISTS_IN
from ematix_flow.declare.quality.expectations import Quality
from ematix_flow.engine.api.rows import arrow_frame
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.run import run_pipeline
from ematix_flow.engine.rejects import list_rejects
from ematix_flow.errors import DeclareTypeError, FlowError, UnknownNameError, did_you_mean
from ematix_flow.plan.sql.ddl import IS_CURRENT, VALID_FROM, VALID_TO

if TYPE_CHECKING:
    from ematix_flow.clock import Clock
    from ematix_flow.connect.duckdb.database import DuckDB
    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.declare.pipeline.pipeline import TargetDeclaration

SOURCE_TABLE = "test_given.source_rows"
EARLIER = timedelta(days=1)
"""How long before the run the rows count as loaded that the target has already."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class TestResult:
    """What a run over given rows left behind."""

    __test__: ClassVar[bool] = False

    rows: Any
    """The target's rows as dicts, in key order; for several targets a dict of them by table."""
    result: Any
    """What the run itself would have returned."""
    rejects: Rows = field(default_factory=list)
    """Rejected rows: `reason`, `column_name` and `row`."""


def run_with(
    pipeline: Any,
    rows: Any,
    *,
    target: Any = None,
    posts: bool = False,
    spark: Any = None,
    clock: Clock = SYSTEM_CLOCK,
) -> TestResult:
    """Load rows through a pipeline as it is declared, into an empty target or one that has rows already.

    `rows` is a list of dicts or a frame and stands for the source; the pipeline's function is not called. `target` is
    a list of dicts, or a dict of such lists by table when the pipeline has several targets. Post steps use the SQL
    of the declared database and run only with `posts=True`. Spark is started only for what a database cannot do; with
    `spark=` the whole load runs on that session.
    """
    declared = _pipeline(pipeline)
    with scratch_folder("test") as folder:
        connection = DuckDBConnection(name="test", path=str(Path(folder) / "test.duckdb"))
        options = Options(
            run_log=sqlite_run_log(Path(folder) / "run_log.db"),
            clock=clock,
            spark=spark,
            user_dialect=_dialect(declared),
        )
        relocated = _relocated(declared, connection, posts=posts)
        _fill(relocated, target, options)
        return _tried(relocated, connection, rows, options)


def _tried(pipeline: Pipeline, connection: DuckDBConnection, rows: Any, options: Options) -> TestResult:
    frame = arrow_frame(rows, pipeline.targets[0].table)
    if options.spark is not None or is_spark_frame(frame):
        result = run_pipeline(pipeline, replace(options, source_frame=frame))
    else:
        _write_source_rows(connection, frame)
        result = run_pipeline(pipeline, options)
    left = {target.table.qualified_name: _rows_of(target) for target in pipeline.targets}
    rejects = [_reject(reject.to_dict()) for reject in list_rejects(pipeline, status=None, limit=1_000_000)]
    return TestResult(left if pipeline.fan_out else next(iter(left.values())), result, rejects)


def _pipeline(pipeline: Any) -> Pipeline:
    declared = PROJECT.pipeline(pipeline) if isinstance(pipeline, str) else getattr(pipeline, "pipeline", pipeline)
    if not isinstance(declared, Pipeline) or not declared.targets:
        message = f"{pipeline!r} is not a pipeline that loads rows"
        raise DeclareTypeError(message, hint="pass what @ematix.pipeline made, or its name.")
    return declared


def _dialect(pipeline: Pipeline) -> str:
    """Return the dialect that the pipeline's own SQL is written in, as far as its source's kind is known."""
    return _dialect_of(pipeline.source_ref())


def _dialect_of(reference: str | Connection | None) -> str:
    try:
        connection = reference if reference and not isinstance(reference, str) else None
        kind = (connection or find_connection(str(reference or "default")).connection).kind
    except FlowError:
        return ""
    return kind if kind in DATABASES else "spark"


def _relocated(pipeline: Pipeline, connection: DuckDBConnection, *, posts: bool) -> Pipeline:
    """Return the pipeline with its source and all of its targets in the stand-in."""

    def source() -> Source:
        return Source(connection, query=f"SELECT * FROM {SOURCE_TABLE}")

    return replace(
        pipeline,
        function=source,
        source_connection=connection,
        source_table=None,
        force_path=None,
        targets=tuple(_replaced(target, connection) for target in pipeline.targets),
        transforms_post=pipeline.transforms_post if posts else (),
    )


def _replaced(target: TargetDeclaration, connection: DuckDBConnection) -> TargetDeclaration:
    """Return the target in the stand-in, whose source has rows and no files and which lacks all other tables."""
    quality = target.quality
    measurable = tuple(one for one in quality.expectations if one.kind != EXISTS_IN)
    quality = replace(quality, expectations=measurable, dialect=_dialect_of(target.connection))
    return replace(target, connection=connection, write=replace(target.write, incremental=None), quality=quality)


def _fill(pipeline: Pipeline, existing: Any, options: Options) -> None:
    """Load the rows that the target has already, in an earlier run."""
    known = {target.table.qualified_name: target for target in pipeline.targets}
    by_table = existing if isinstance(existing, Mapping) else {next(iter(known)): existing}
    for name, rows in by_table.items():
        if name not in known:
            message = f"the pipeline has no target {name!r}"
            raise UnknownNameError(message, hint=did_you_mean(str(name), known))
        if rows is not None and len(rows):
            _fill_one(pipeline, known[name], rows, options)


def _fill_one(pipeline: Pipeline, target: TargetDeclaration, rows: Any, options: Options) -> None:
    plain = replace(target.table, columns=tuple(replace(column, normalizers=()) for column in target.table.columns))
    write = target.write
    simple = replace(write, mode="scd2" if write.mode == "scd2" else "append", handle_deletes=None, ttl=None)
    simple = replace(simple, incremental_column=None, lookback=None)
    connection = target.connection
    assert isinstance(connection, DuckDBConnection)  # noqa: S101 - the stand-in
    _write_source_rows(connection, arrow_frame(rows, plain))
    earlier = replace(options.clock, now=lambda: options.clock.now() - EARLIER)
    before = replace(
        pipeline,
        name=f"{pipeline.name} (before)",
        fan_out=False,
        targets=(replace(target, table=plain, write=simple, column_map=None, quality=Quality()),),
        transforms_pre=(),
        transforms_post=(),
    )
    run_pipeline(before, replace(options, clock=earlier))


def _write_source_rows(connection: DuckDBConnection, frame: Any) -> None:
    """Write the rows to the table that the stand-in's source query reads."""
    session = _stand_in(connection).session()
    try:
        session.execute(f"CREATE SCHEMA IF NOT EXISTS {SOURCE_TABLE.split('.', maxsplit=1)[0]}")
        session.connection.register("_given", frame)
        session.execute(f"CREATE OR REPLACE TABLE {SOURCE_TABLE} AS SELECT * FROM _given")
    finally:
        session.close()


def _rows_of(target: TargetDeclaration) -> Rows:
    """Return the rows of a target: its declared columns and, for scd2, the validity of each version."""
    names = [column.name for column in target.table.columns]
    order_columns = list(target.table.primary_key)
    if target.write.mode == "scd2":
        names += [VALID_FROM.name, VALID_TO.name, IS_CURRENT.name]
        order_columns.append(VALID_FROM.name)
    database = _stand_in(target.connection)
    table_name = database.table_name(target.table.schema, target.table.name)
    session = database.session()
    try:
        if database.find_table(session, table_name) is None:
            return []
        sql = f"SELECT {_listed(names)} FROM {_listed([table_name.schema])}.{_listed([table_name.name])} ORDER BY {_listed(order_columns)}"
        table: Any = session.connection.sql(sql).to_arrow_table()
    finally:
        session.close()
    rows: Rows = table.to_pylist()
    return rows


def _listed(names: list[str]) -> str:
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)


def _stand_in(connection: Any) -> DuckDB:
    from ematix_flow.connect.duckdb.database import DuckDB

    database = open_database(connection)
    assert isinstance(database, DuckDB)  # noqa: S101 - the kind that run_with chose
    return database


def _reject(reject: dict[str, Any]) -> dict[str, Any]:
    return {name: reject[name] for name in ("reason", "column_name", "row")}
