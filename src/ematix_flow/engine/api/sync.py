"""Loads that no module declares: a table, a source and a connection put together at the call."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.types.frames import arrow_table, is_frame, is_spark_frame
from ematix_flow.declare.decorators import target as declare_target
from ematix_flow.declare.origin import caller_origin
from ematix_flow.declare.pipeline.keywords import pipeline_keywords
from ematix_flow.declare.pipeline.pipeline import Pipeline, Source
from ematix_flow.declare.pipeline.transforms import check_transforms
from ematix_flow.declare.table.class_body import table_of
from ematix_flow.engine.api.references import reference_to
from ematix_flow.engine.api.rows import arrow_rows, is_rows
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.run import run_pipeline
from ematix_flow.errors import DeclareError, DeclareTypeError, FlowError, RunError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta


PATHS = (None, "same_db", "cross_db")


def sync(  # noqa: PLR0913 - the public keywords
    *,
    target: Any,
    source: Any,
    target_connection: Any = None,
    mode: str = "append",
    pipeline_name: str | None = None,
    on_drift: str = "error",
    keys: Sequence[str] | None = None,
    update_columns: Sequence[str] | None = None,
    compare_columns: Sequence[str] | None = None,
    force_path: str | None = None,
    incremental_column: str | None = None,
    handle_deletes: str | None = None,
    event_timestamp_column: str | None = None,
    ttl: timedelta | float | str | None = None,
    dry_run: bool = False,
    compress: bool = False,
    options: Options | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Load a source into a table now and return the result; `dry_run=True` counts and changes nothing.

    `source` is a `Source`, SQL text for the target's own database, a frame or a list of dicts. `compress` is accepted
    and has no effect: rows go from the source to the target's staging through this process and its workers only.
    """
    del compress
    keywords = {
        "mode": mode,
        "on_drift": on_drift,
        "keys": keys,
        "update_columns": update_columns,
        "compare_columns": compare_columns,
        "incremental_column": incremental_column,
        "handle_deletes": handle_deletes,
        "event_timestamp_column": event_timestamp_column,
        "ttl": ttl,
        **more,
    }
    origin = caller_origin()
    try:
        pipeline = adhoc_pipeline(
            target, source, target_connection, name=pipeline_name, force_path=force_path, keywords=keywords
        )
    except FlowError as error:
        raise error.at(origin) from None
    if dry_run:
        return _dry_run(pipeline, options)
    known = replace(options or Options(), request=f"{pipeline.name}#{_fingerprint(pipeline)}")
    return _dict(run_pipeline(pipeline, known))


def _fingerprint(pipeline: Pipeline) -> str:
    """Return what distinguishes this load from another one into the same table, so that only itself is resumed."""
    source, write = pipeline.function(), pipeline.targets[0].write
    digest = hashlib.sha256(repr(write).encode())
    if isinstance(source, str | Source):
        digest.update(repr(source).encode())
    elif is_spark_frame(source):
        # The rows of such a frame are not known before it is read, so no load of one is another's repetition.
        digest.update(uuid.uuid4().bytes)
    else:
        for batch in source.to_batches():
            digest.update(batch.serialize())
    return digest.hexdigest()[:16]


def adhoc_pipeline(
    target: Any,
    source: Any,
    connection: Any,
    *,
    name: str | None = None,
    force_path: str | None = None,
    keywords: dict[str, Any] | None = None,
) -> Pipeline:
    """Return the pipeline that loads this source into this table; it is not added to the project."""
    table = table_of(target)
    options = {keyword: value for keyword, value in pipeline_keywords(keywords or {}).items() if value is not None}
    if force_path not in PATHS:
        message = f"force_path={force_path!r} is not known"
        raise DeclareError(message, hint="same_db or cross_db.")
    pre = check_transforms(options.pop("transforms_pre", ()))
    value = _source(source, table)

    def rows() -> Any:
        return value

    return Pipeline(
        name=name or table.qualified_name,
        function=rows,
        targets=(declare_target(table, target_connection=reference_to(connection), **options),),
        force_path=force_path,
        transforms_pre=pre,
        origin=caller_origin(),
    )


def _source(source: Any, table: Any) -> Any:
    if is_rows(source):
        return arrow_rows(source, table)
    if source is None or isinstance(source, dict):
        message = f"a source cannot be {type(source).__name__}"
        raise DeclareTypeError(message, hint="use Source.sql(connection, query), SQL text, a frame or a list of dicts.")
    if isinstance(source, Source) and isinstance(source.connection, str):
        return replace(source, connection=reference_to(source.connection))
    return arrow_table(source) if is_frame(source) else source


def _dict(result: Any) -> dict[str, Any]:
    assert isinstance(result, dict)  # noqa: S101 - one target gives one result
    return result


def _dry_run(pipeline: Pipeline, options: Options | None) -> dict[str, Any]:
    """Return the counts of a dry run in the form of a result."""
    from ematix_flow.engine.review.dry_run import dry_run_pipeline

    planned = dry_run_pipeline(pipeline, options).targets[0]
    if planned.dry_run_error:
        raise RunError(planned.dry_run_error, origin=pipeline.origin)
    run_id = planned.plan.token.run_id if planned.plan is not None else None
    return {"run_id": run_id, **(planned.dry_run_rows_affected or {}), "status": "dry_run", "path": planned.path}
