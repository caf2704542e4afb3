"""Writes frames of any library into tables: each is a load like any other, with its ledger, rejects and history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.connect.types.frames import arrow_table, is_frame, is_spark_frame
from ematix_flow.declare.origin import caller_origin
from ematix_flow.declare.table.class_body import table_of
from ematix_flow.engine.api.references import reference_to
from ematix_flow.engine.api.rows import arrow_rows, inferred_rows, is_rows
from ematix_flow.engine.api.sync import sync
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.frames.inferred_table import inferred_table, split_name
from ematix_flow.errors import DeclareError, DeclareTypeError, FlowError, PlanError, UnsupportedError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ematix_flow.declare.table.schema import Table

KEYED = ("merge", "scd1")


def write_frame(connection: Any, frame: Any, name: str, *, target: Any = None, **keywords: Any) -> dict[str, Any]:
    """Load a frame into a table and return the result; without `target` the table is built from the frame's types.

    The keywords are those of a load: `mode`, `keys`, `update_columns`, `compare_columns` and so on.
    """
    origin = caller_origin()
    try:
        reference = reference_to(connection)
        if target is None:
            return _write_inferred(reference, _rows(frame), name, keywords)
        table = _declared(target, name)
        rows = _rows(frame, table)
        _refuse_missing(table, rows)
        return _load(table, reference, rows, keywords)
    except FlowError as error:
        raise error.at(origin) from error.__cause__


def _load(table: Table, reference: Any, rows: Any, keywords: dict[str, Any]) -> dict[str, Any]:
    """Load rows: those in this process are moved by it, those of Spark by their own session."""
    if is_spark_frame(rows):
        options = Options(spark=rows.sparkSession)
    else:
        from ematix_flow.run.stage.raw_json import loadable_table

        rows = loadable_table(rows)
        options = Options(source_frame=rows)
    return sync(target=table, source=rows, target_connection=reference, options=options, **keywords)


def _write_inferred(reference: Any, rows: Any, name: str, keywords: dict[str, Any]) -> dict[str, Any]:
    mode = keywords.get("mode", "append")
    if mode == "scd2":
        message = f"scd2 into {name} needs a declared table"
        raise UnsupportedError(message, hint="pass target= a table class: its key says which rows are versions of one.")
    keys = _names(keywords.get("keys")) if mode in KEYED else ()
    if mode in KEYED and not keys:
        message = f"{mode} into {name} has no keys"
        raise PlanError(message, hint="pass keys= the columns that identify a row, or target= a table class.")
    layout = _layout(rows)
    for key in keys:
        if key not in layout.names:
            raise PlanError(f"the frame has no column {key!r}, which keys= names", hint=did_you_mean(key, layout.names))
    session = rows.sparkSession if is_spark_frame(rows) else None
    table = inferred_table(name, layout, keys, reference, Options(spark=session))
    return {**_load(table, reference, rows, keywords), "path": f"inferred_{mode}"}


def _rows(frame: Any, table: Table | None = None) -> Any:
    """Return the frame as a load takes it: an Arrow table, or the frame of Spark."""
    if is_rows(frame):
        return inferred_rows(frame) if table is None else arrow_rows(frame, table)
    if not is_frame(frame):
        message = f"{type(frame).__name__} is no frame"
        raise DeclareTypeError(
            message, hint="use a frame of polars, pandas, pyarrow, DuckDB, Spark or any other library."
        )
    return arrow_table(frame)


def _layout(rows: Any) -> pa.Schema:
    if not is_spark_frame(rows):
        return rows.schema
    from ematix_flow.run.read.frames import arrow_layout

    return arrow_layout(rows)


def _declared(target: Any, name: str) -> Table:
    table = table_of(target)
    if ".".join(split_name(name)) != table.qualified_name:
        message = f"the frame is written to {name!r}, and target= is {table.qualified_name!r}"
        raise DeclareError(message, hint="give both the same name.")
    return table


def _refuse_missing(table: Table, rows: Any) -> None:
    """Refuse a frame without all declared columns; those that nobody declared are left out by the load."""
    have = rows.columns if is_spark_frame(rows) else rows.column_names
    missing = [column.name for column in table.columns if column.name not in have]
    if missing:
        message = f"the frame lacks columns of {table.qualified_name}: {', '.join(missing)}"
        raise PlanError(message, hint=f"it has: {', '.join(have)}.")


def _names(keys: str | Sequence[str] | None) -> tuple[str, ...]:
    return (keys,) if isinstance(keys, str) else tuple(keys or ())
