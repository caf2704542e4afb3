"""Carries out the read, shape and stage steps of a plan, on Spark or in this process; it commits nothing."""

from __future__ import annotations

import uuid
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.session import Split
from ematix_flow.connect.base.stage import StageSpec
from ematix_flow.connect.base.target import RelayTarget
from ematix_flow.connect.types.frames import is_spark_frame
from ematix_flow.engine.batch.joins import joined_frame
from ematix_flow.engine.batch.new_files import refuse_changed
from ematix_flow.engine.batch.progress import counting
from ematix_flow.engine.spark.parallelism import engine_for, fewest, most_connected, spark_engine
from ematix_flow.engine.spark.session import engine_ended
from ematix_flow.engine.spark.transport import carrier_of
from ematix_flow.errors import EngineLostError
from ematix_flow.plan.steps import TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.engine.batch.inspect import LoadInspection
    from ematix_flow.engine.batch.source import OpenSource
    from ematix_flow.plan.steps import TargetPlan
    from ematix_flow.records import TaskReport, Token
    from ematix_flow.run.engine import Engine
    from ematix_flow.run.stage.tasks import StageWork

TASKS = "ematix_flow.run.stage.tasks"
"""The module that every task runs; workers fork from a process that has it already."""

FILE_TASKS = "ematix_flow.run.stage.file_tasks"


@dataclass(frozen=True, slots=True)
class Staging:
    """What is staged: the plan, the source it reads and the target it waits in, under a name of its own."""

    name: str
    plan: TargetPlan
    source: OpenSource
    load_inspection: LoadInspection
    database: TargetSystem


def stage_name(token: Token) -> str:
    """Return a new name for the staging of a load, which holds the tag of that load."""
    return f"stg_{token.tag}_{uuid.uuid4().hex[:12]}"


def stage(
    staging: Staging, spark: Callable[..., Any], report: Callable[[int, int], None] | None = None
) -> tuple[StageSpec, tuple[TaskReport, ...]]:
    """Stage the rows of a plan and return the reports of the winning attempts; `report` gets rows and parts."""
    from ematix_flow.connect.types.arrow import staged_schema

    plan, database = staging.plan, staging.database
    stamped = plan.commit.load.stamped
    schema = staged_schema(plan.stage.columns).serialize().to_pybytes()
    spec = StageSpec(
        staging.name,
        schema,
        columns=plan.stage.columns,
        lookup=not plan.commit.program.reads_staged_once,
        required=frozenset(plan.check.required),
        stamp=(plan.commit.load.loaded_at.isoformat(), plan.commit.load.batch_id) if stamped else ("", ""),
        options=plan.stage.options,
        final=plan.commit.program.adds,
    )
    session = database.session()
    try:
        spec = database.open_stage(session, spec)
        at_once = most_connected(database, session)
    finally:
        session.close()
    if plan.read.is_empty:
        return spec, ()
    reports = () if staging.load_inspection.without_lines else _staged(staging, spec, spark, report, at_once)
    choice, files = plan.read.files, staging.source.files
    if choice is not None and files is not None and staging.load_inspection.files is not None:
        refuse_changed(files, staging.load_inspection.files.paths, choice.chosen)
    return spec, reports


def _staged(
    staging: Staging,
    spec: StageSpec,
    spark: Callable[..., Any],
    report: Callable[[int, int], None] | None,
    at_once: int | None,
) -> tuple[TaskReport, ...]:
    from ematix_flow.run.spark.job_names import describing
    from ematix_flow.run.stage.conform import Rules
    from ematix_flow.run.stage.tasks import StageWork

    plan, database = staging.plan, staging.database
    rules = Rules(
        columns=plan.stage.columns,
        required=frozenset(plan.check.required),
        forbidden=database.capabilities.cannot_store,
        times=database.capabilities.times,
        filled=frozenset(plan.check.filled),
        alters=plan.shape.alters,
        given=plan.shape.given,
    )
    try:
        with ExitStack() as resources:
            resources.enter_context(describing(f"{plan.pipeline}: stage {plan.table_name}"))
            work = StageWork(database, spec, rules, resources.enter_context(counting(report)))
            carrier = carrier_of(plan, spec)
            # A task of another machine has no use for a folder of this one.
            there = work if carrier is None else replace(work, spec=replace(spec, folder=""), carrier=carrier)
            rejects = there if is_spark_frame(staging.source.rejects) else work
            return (
                *_staged_rows(staging, there, spark, resources, at_once),
                *_staged_rejects(staging, rejects, at_once),
            )
    except Exception as error:
        why = engine_ended()
        if why is not None:
            raise _lost(why) from error
        raise translate_spark_error(error) from error


def _lost(why: str) -> EngineLostError:
    more = 'give it more with "spark.driver.memory" under [spark.conf], or' if "out of memory" in why else ""
    message = f"the Spark engine ended while rows were staged{f': {why}' if why else ''}"
    return EngineLostError(message, hint=f"{more} run it again.".strip())


def _staged_rows(
    staging: Staging, work: StageWork, spark: Callable[..., Any], resources: ExitStack, at_once: int | None
) -> tuple[TaskReport, ...]:
    plan, database = staging.plan, staging.database
    if plan.read.kind == "sql" and plan.shape.place.value == "source":
        return _stage_query(engine_for(plan, spark), work, staging.source, plan, at_once)
    if plan.shape.place.value == TASK:
        return _stage_rows(engine_for(plan, spark), work, staging, at_once)
    engine = spark_engine(spark)
    session = engine.session((TASKS, *database.task_imports))
    slots = engine.slots() if staging.source.database is not None or staging.source.sides else 1
    return engine.stage_frame(_frame(session, staging, resources, slots), work, at_once)


def _staged_rejects(staging: Staging, work: StageWork, at_once: int | None) -> tuple[TaskReport, ...]:
    """Stage what was found unreadable before there were rows."""
    rejects = staging.source.rejects
    if rejects is None:
        return ()
    from ematix_flow.run.stage.tasks import stage_reject_frame, stage_rejects

    return stage_reject_frame(work, rejects, at_once) if is_spark_frame(rejects) else (stage_rejects(work, rejects),)


def _stage_query(
    engine: Engine, work: StageWork, source: OpenSource, plan: TargetPlan, at_once: int | None
) -> tuple[TaskReport, ...]:
    from ematix_flow.run.engine import Tasks
    from ematix_flow.run.stage.tasks import split_partitions

    reader = source.database
    assert reader is not None  # noqa: S101 - plans of kind sql have a source database
    session = reader.session()
    try:
        at_once = fewest(at_once, most_connected(reader, session))
        if at_once is not None and reader.identity() == work.target.identity():
            at_once = max(1, at_once // 2)  # a task has a connection to read and one to stage
        opened = reader.open_read(session, plan.read.sql, engine.slots())
        relayed = isinstance(work.target, RelayTarget) and all(
            work.target.relays(reader, session, split, work.spec) for split in opened.splits
        )
        with opened.resources or nullcontext():
            used = () if relayed else (*reader.task_imports, *work.target.task_imports)
            partitions = split_partitions(work, reader, opened.splits, relayed=relayed)
            # Spark starts while all of the above is queried.
            imports = (TASKS, type(work.target).__module__, *used)
            return engine.stage_partitions(partitions, Tasks(imports, at_once, work.carrier))
    finally:
        session.close()


def _stage_rows(engine: Engine, work: StageWork, staging: Staging, at_once: int | None) -> tuple[TaskReport, ...]:
    """Stage files or rows in memory, shaped by the tasks that stage them."""
    from ematix_flow.run.engine import Tasks
    from ematix_flow.run.stage.file_tasks import files_to_stage, frame_to_stage, partitions_to_stage

    plan, frame, message_range = staging.plan, staging.source.value.frame, staging.source.stream
    if frame is not None:
        partitions = frame_to_stage(work, frame, plan.shape.sql)
    elif message_range is not None:
        partitions = partitions_to_stage(work, message_range.partitions(), plan.shape.sql)
    else:
        assert staging.load_inspection.files is not None  # noqa: S101 - the other kind of rows that nobody else shapes
        ordered = staging.source.ordered
        partitions = files_to_stage(
            work, staging.load_inspection.files, plan.shape.sql, ordered=ordered, slots=engine.slots
        )
    return engine.stage_partitions(partitions, Tasks((FILE_TASKS, *work.target.task_imports), at_once, work.carrier))


def _frame(spark: Any, staging: Staging, resources: ExitStack, slots: int) -> Any:
    from ematix_flow.run.read.frames import read_once, shaped_frame

    plan = staging.plan
    raw = raw_frame(spark, staging.source, staging.load_inspection, plan.read.sql, resources, slots)
    if plan.shape.reads_twice:
        raw = resources.enter_context(read_once(raw))
    return shaped_frame(spark, raw, plan.shape.sql)


def raw_frame(  # noqa: PLR0913 - a source, and how much of it is wanted
    spark: Any,
    source: OpenSource,
    load_inspection: LoadInspection,
    sql: str,
    resources: ExitStack,
    slots: int = 1,
    *,
    reads: bool = True,
) -> Any:
    """Return the rows of a source as Spark sees them before the shape; `resources` holds what the frame needs.

    Without `reads` it is only for its columns and its plan. A database is read in about as many parts as `slots`.
    """
    from ematix_flow.run.read import frames
    from ematix_flow.run.read.broadcasting import measured_joins

    if _sizes_unknown(source, load_inspection):
        measured_joins(spark, resources)
    with_functions(spark, source)
    if load_inspection.join is not None:
        return joined_frame(spark, load_inspection.join, resources, slots, reads=reads)
    if source.value.frame is not None:
        return frames.user_frame(spark, source.value.frame)
    if load_inspection.files is not None and source.files is not None:
        if not load_inspection.tables:
            return frames.file_frame(spark, load_inspection.files, ordered=source.ordered)
        tables = {name: frames.file_frame(spark, files, strict=True) for name, files in load_inspection.tables.items()}
        return frames.query_frame(spark, source.value.sql, tables, resources)
    if source.lake is not None:
        return frames.as_documents(spark.sql(sql))
    if source.stream is not None:
        return frames.partition_frame(spark, source.stream.partitions(), source.stream.schema)
    assert source.database is not None  # noqa: S101 - the remaining kind
    columns = load_inspection.inspection.source_columns
    query = frames.interchange_query(source.database, columns, sql)
    if not reads:
        return frames.database_frame(spark, source.database, (Split(query),), columns)
    session = source.database.session()
    resources.callback(session.close)
    opened = source.database.open_read(session, query, slots)
    if opened.resources is not None:
        resources.enter_context(opened.resources)
    at_once = most_connected(source.database, session)
    return frames.database_frame(spark, source.database, opened.splits, columns, at_once)


def with_functions(spark: Any, source: OpenSource) -> Any:
    """Return the session as one whose SQL can call the functions of the source's pipeline."""
    if any(source.functions):
        from ematix_flow.run.transform.udfs import register

        register(spark, *source.functions)
    return spark


def _sizes_unknown(source: OpenSource, load_inspection: LoadInspection) -> bool:
    """Return whether our own tasks read rows of the source; of Parquet and of lake tables Spark knows how large they are."""
    if load_inspection.join is not None:
        return any(
            one.sql or (one.files is not None and one.files.format != "parquet") for one in load_inspection.join.tables
        )
    return source.database is not None or (
        load_inspection.files is not None and load_inspection.files.format != "parquet"
    )


def translate_spark_error(error: BaseException) -> BaseException:
    """Return an error of a Spark job as one of ours: the deepest fact first, without a Java stack."""
    from ematix_flow.run.spark.errors import reason_of

    return reason_of(error)


@contextmanager
def translating_spark_errors() -> Iterator[None]:
    """Raise errors of Spark in a block as ours."""
    try:
        yield
    except Exception as error:
        raise translate_spark_error(error) from error
