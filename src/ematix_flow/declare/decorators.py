"""The `ematix` namespace: decorators that turn functions and classes into declarations."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.connection.registry import connection_from_class, register_connection
from ematix_flow.declare.origin import caller_origin
from ematix_flow.declare.pipeline.fan_out import target, targets_of
from ematix_flow.declare.pipeline.handle import PipelineHandle, TransformHandle
from ematix_flow.declare.pipeline.keywords import pipeline_keywords
from ematix_flow.declare.pipeline.pipeline import (
    Pipeline,
    Transform,
    TransformRef,
    arguments_of,
    check_pipeline_function,
    check_source_table,
    connection_reference,
)
from ematix_flow.declare.pipeline.transforms import Limit, check_transforms
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.schedule.schedule import check_schedule, timing_of
from ematix_flow.declare.table.class_body import table
from ematix_flow.declare.table.feature_view import feature_view
from ematix_flow.errors import DeclareError, DeclareTypeError, FlowError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ematix_flow.declare.pipeline.pipeline import TargetDeclaration
    from ematix_flow.declare.pipeline.warehouse import WarehouseHandle
    from ematix_flow.declare.schedule.workflow import Workflow
    from ematix_flow.declare.stream.handle import StreamHandle
    from ematix_flow.declare.stream.replication import Replication

__all__ = [
    "Ematix",
    "connection",
    "dataset",
    "ematix",
    "feature_view",
    "pipeline",
    "pool",
    "preview_training_set",
    "replicate",
    "streaming_pipeline",
    "target",
    "training_set",
    "transform",
    "transform_ref",
    "warehouse_pipeline",
    "workflow",
]

TRAINING = "ematix_flow.engine.features.training"
"""What builds training sets; looked up at the call, so that declaring never loads what reading needs."""


def pipeline(**keywords: Any) -> Callable[[Callable[..., Any]], PipelineHandle]:
    """Declare a pipeline: the function returns the source, the keywords state where it goes and when."""
    origin = caller_origin()

    def declare(function: Callable[..., Any]) -> PipelineHandle:
        try:
            declared = _pipeline(function, dict(keywords), origin)
            PROJECT.add_pipeline(declared)
        except FlowError as error:
            raise error.at(origin) from None
        return PipelineHandle(declared)

    return declare


def streaming_pipeline(**keywords: Any) -> Callable[[Callable[[], Any]], StreamHandle]:
    """Declare a stream: the keywords state where rows come from and where they go, for as long as it runs."""
    # Loaded here: most modules declare no stream and need not wait for what declares one.
    from ematix_flow.declare.stream import decorator as streaming

    return streaming.streaming_pipeline(**keywords)


def replicate(source: Any, **keywords: Any) -> Replication:
    """Declare mirrors of many tables: `tables=` says of which, `into=` where they are."""
    from ematix_flow.declare.stream import replication

    return replication.replicate(source, **keywords)


def _pipeline(function: Callable[..., Any], keywords: dict[str, Any], origin: Any) -> Pipeline:
    options = pipeline_keywords(keywords)
    targets, fan_out = targets_of(options)
    source_table = options.get("source_table")
    check_source_table(source_table, dotted=options.get("source_connection") is None)
    check_pipeline_function(function, source_table)
    if options.get("force_path") not in (None, "same_db", "cross_db"):
        message = f"force_path={options['force_path']!r} is not known"
        raise DeclareError(message, hint="same_db or cross_db.")
    known = {name: options[name] for name in ("source_table", "force_path") if name in options}
    return Pipeline(
        name=options.get("name") or function.__name__,
        function=function,
        targets=targets,
        fan_out=fan_out,
        source_connection=connection_reference("source_connection", options.get("source_connection")),
        continue_on_failure=bool(options.get("continue_on_failure")),
        transforms_pre=_pre_transforms(options.get("transforms_pre") or (), targets),
        transforms_post=_post_steps(options.get("transforms_post"), fan_out=fan_out),
        continue_on_failure_post=bool(options.get("continue_on_failure_post")),
        origin=origin,
        **_functions(options),
        **timing_of(options),
        **known,
    )


def _functions(options: dict[str, Any]) -> dict[str, Any]:
    if not options.get("udfs") and not options.get("aggregate_udfs"):
        return {}
    from ematix_flow.declare.stream import udf

    kinds = {"udfs": udf.PythonScalarUdfHandle, "aggregate_udfs": udf.PythonAggregateUdfHandle}
    functions = {name: udf.functions_of(name, options.get(name), kind) for name, kind in kinds.items()}
    udf.check_functions([one for handles in functions.values() for one in handles])
    return functions


def _pre_transforms(entries: Any, targets: Sequence[TargetDeclaration]) -> tuple[Any, ...]:
    """Return the transforms before the load, or refuse what would leave rows out that no later load reads."""
    transforms = check_transforms(entries)
    incremental = any(one.write.incremental_column or one.write.incremental for one in targets)
    if incremental and any(isinstance(transform, Limit) for transform in transforms):
        message = "limit() leaves rows out that an incremental load counts as read, so that none ever loads them"
        raise DeclareError(message, hint="drop limit(), or the incremental options.")
    return transforms


def _post_steps(steps: Any, *, fan_out: bool) -> tuple[Any, ...]:
    if steps is None:
        return ()
    if not isinstance(steps, list | tuple):
        message = f"transforms_post= takes a list of steps, not {type(steps).__name__}"
        raise DeclareTypeError(message, hint='put it in brackets, for example transforms_post=["ANALYZE"].')
    if steps and fan_out:
        message = "transforms_post= runs after the load of one target, and targets= has a load for each"
        raise DeclareError(message, hint="declare a pipeline with target= for the table that the steps belong to.")
    for step in steps:
        if not isinstance(step, str | TransformRef) and not callable(step):
            message = f"a post step cannot be {type(step).__name__}"
            raise DeclareTypeError(message, hint="use SQL text, a function (conn) or ematix.transform_ref(name).")
    return tuple(steps)


def transform(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    target_connection: Any = None,
    schedule: str | None = None,
) -> Any:
    """Declare a named step `(conn)` or `(conn, parent)`."""
    origin = caller_origin()

    def declare(step: Callable[..., Any]) -> TransformHandle:
        if len(arguments_of(step)) not in (1, 2):
            message = f"transform {step.__name__}() takes {len(arguments_of(step))} arguments"
            raise DeclareTypeError(message, hint="a transform takes (conn) or (conn, parent).", origin=origin)
        try:
            declared = Transform(
                name=name or step.__name__,
                function=step,
                connection=connection_reference("target_connection", target_connection),
                schedule=check_schedule(schedule, None),
                origin=origin,
            )
        except FlowError as error:
            raise error.at(origin) from None
        PROJECT.add_transform(declared)
        return TransformHandle(declared)

    return declare if function is None else declare(function)


def workflow(**keywords: Any) -> Workflow:
    """Declare pipelines that are set off together: by a schedule, by successes of others or by a message."""
    from ematix_flow.declare.schedule import workflow as workflows

    return workflows.workflow(**keywords)


def warehouse_pipeline(**keywords: Any) -> Callable[[Callable[[], str | None]], WarehouseHandle]:
    """Declare a pipeline between warehouses: a query, SQL over `source` in between, and a table."""
    from ematix_flow.declare.pipeline import warehouse

    return warehouse.warehouse_pipeline(**keywords)


def pool(name: str, size: int) -> str:
    """Declare how many pipelines with `pool=name` run at the same time, and return the name."""
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        message = f"pool {name!r} needs a size of at least 1, not {size!r}"
        raise DeclareError(message, origin=caller_origin())
    PROJECT.pools[name] = size
    return name


def engine() -> Any:
    """Let pipelines of this program run on the warm engine; return it as a value and a context manager."""
    # Looked up at the call, so that declaring never loads what running needs.
    return importlib.import_module("ematix_flow.engine.spark.warm").engine()


def dataset(what: Any, connection: Any = None) -> Any:
    """Return a loaded table, by its pipeline or by its name, whose rows any library of frames can read."""
    return importlib.import_module("ematix_flow.engine.frames.dataset").dataset(what, connection)


def training_set(  # noqa: PLR0913 - the public keywords
    conn: Any,
    *,
    spine: Any,
    feature_views: Sequence[Any],
    columns: Any = None,
    prefer: str = "auto",
    manifest: Any = None,
    engine: str = "auto",
) -> Any:
    """Return the spine with the values of every view as of each row's instant, as one frame; the database or Spark joins it."""
    return importlib.import_module(TRAINING).training_set(
        conn,
        spine=spine,
        feature_views=feature_views,
        columns=columns,
        prefer=prefer,
        manifest=manifest,
        engine=engine,
    )


def preview_training_set(conn: Any, *, spine: Any, feature_views: Sequence[Any], engine: str = "auto") -> Any:
    """Return who would join a training set, the database or Spark, and why; only sizes are read."""
    training = importlib.import_module(TRAINING)
    return training.preview_training_set(conn, spine=spine, feature_views=feature_views, engine=engine)


def transform_ref(name: str) -> TransformRef:
    """Name a declared transform or pipeline as a post step."""
    return TransformRef(name)


def connection(cls: type) -> Any:
    """Declare a connection from a class body; the name then means the typed connection."""
    return register_connection(connection_from_class(cls))


class Ematix:
    """The decorators under one name."""

    table = staticmethod(table)
    feature_view = staticmethod(feature_view)
    training_set = staticmethod(training_set)
    preview_training_set = staticmethod(preview_training_set)
    pipeline = staticmethod(pipeline)
    job = staticmethod(pipeline)
    streaming_pipeline = staticmethod(streaming_pipeline)
    replicate = staticmethod(replicate)
    target = staticmethod(target)
    transform = staticmethod(transform)
    transform_ref = staticmethod(transform_ref)
    warehouse_pipeline = staticmethod(warehouse_pipeline)
    workflow = staticmethod(workflow)
    pool = staticmethod(pool)
    connection = staticmethod(connection)
    engine = staticmethod(engine)
    dataset = staticmethod(dataset)


ematix = Ematix()
