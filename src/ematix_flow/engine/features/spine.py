"""The spine of a training set as an Arrow table, checked: every row has an instant, and the keys of every view."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.types.arrow import arrow_type
from ematix_flow.connect.types.frames import arrow_table
from ematix_flow.engine.api.rows import arrow_rows, is_rows
from ematix_flow.engine.features.values import check_key, instant_of, instant_text, key_value
from ematix_flow.errors import DeclareError, DeclareTypeError, did_you_mean
from ematix_flow.plan.sql.point_in_time import INSTANT, ROW, key_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from ematix_flow.declare.table.schema import Table

AS_OF = "as_of"
"""The column of a spine with the instant of each row."""

AT_ONCE = 10_000
"""Rows of the spine in one statement."""


def spine_table(spine: Any, views: Sequence[Table]) -> pa.Table:
    """Return a spine, a list of dicts or a frame, as an Arrow table; an empty list has the keys of the views."""
    import pyarrow as pa

    if is_rows(spine):
        rows = list(spine)
        if not rows:
            return _empty(views)
        _check_rows(rows, views)
        typed = {column.name: column for view in views for column in view.columns if column.primary_key}
        return arrow_rows(rows, _KeyTypes(tuple(typed.values())))  # type: ignore[arg-type]
    if type(spine).__module__.startswith("pyspark"):
        spine = spine.toArrow()
    table = arrow_table(spine)
    if not isinstance(table, pa.Table):
        message = f"a spine cannot be {type(spine).__name__}"
        raise DeclareTypeError(message, hint="use a list of dicts, or a frame of polars, pandas, pyarrow or Spark.")
    _check_columns(table.column_names, views)
    return table


class _KeyTypes:
    """The declared types of the keys, which the values of a list of dicts get."""

    def __init__(self, columns: tuple[Any, ...]) -> None:
        self.columns = columns


def _empty(views: Sequence[Table]) -> pa.Table:
    import pyarrow as pa

    keys = {column.name: column for view in views for column in view.columns if column.primary_key}
    types = {name: arrow_type(column.type) for name, column in keys.items()}
    return pa.schema([*types.items(), (AS_OF, pa.timestamp("us", tz="UTC"))]).empty_table()


def _check_rows(rows: Sequence[Mapping[str, Any]], views: Sequence[Table]) -> None:
    needed = (*dict.fromkeys(key for view in views for key in view.primary_key), AS_OF)
    for number, row in enumerate(rows):
        for name in needed:
            if name not in row:
                raise _lacks(f"row {number} of the spine", name, list(row))


def _check_columns(names: Sequence[str], views: Sequence[Table]) -> None:
    for name in (*(key for view in views for key in view.primary_key), AS_OF):
        if name not in names:
            raise _lacks("the spine", name, names)


def _lacks(what: str, name: str, names: Sequence[str]) -> DeclareError:
    hint = did_you_mean(name, names) if names else None
    return DeclareError(f"{what} lacks {name!r}", hint=hint or f"every row needs the entity keys and {AS_OF!r}.")


def instants_of(spine: pa.Table) -> list[datetime]:
    """Return the instant of every row."""
    column = spine.column(AS_OF)
    values = column.cast(_microseconds(column.type), safe=False) if _is_timestamp(column.type) else column
    return [instant_of(value, f"row {number} of the spine") for number, value in enumerate(values.to_pylist())]


def _is_timestamp(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind))


def _microseconds(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return pa.timestamp("us", tz=kind.tz)


def keys_of(spine: pa.Table, view: Table) -> list[list[Any]]:
    """Return the values of the keys of a view, one list per key, in their declared types."""
    import pyarrow as pa

    lists = []
    for column in view.columns:
        if not column.primary_key:
            continue
        check_key(column, view.qualified_name)
        values = spine.column(column.name)
        try:
            lists.append(values.cast(arrow_type(column.type)).to_pylist())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            message = f"the values of {column.name!r} in the spine are not {column.type.kind}: {error}"
            raise DeclareError(message) from None
    return lists


def documents(
    keys: Sequence[Sequence[Any]], kinds: Sequence[str], instants: Sequence[datetime], dialect: str
) -> Iterator[str]:
    """Return the rows of a spine as JSON documents, each as large as one statement takes."""
    for start in range(0, len(instants), AT_ONCE):
        rows = []
        for number in range(start, min(start + AT_ONCE, len(instants))):
            row = {ROW: number, INSTANT: instant_text(instants[number], dialect)}
            for position, (values, kind) in enumerate(zip(keys, kinds, strict=True)):
                row[key_name(position)] = key_value(values[number], kind, dialect)
            rows.append(row)
        yield json.dumps(rows)
