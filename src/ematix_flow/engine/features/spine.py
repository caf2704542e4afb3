"""The spine of a training set as an Arrow table, checked: every row has an instant, and the keys of every view."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.types.arrow import arrow_type
from ematix_flow.connect.types.frames import arrow_table
from ematix_flow.engine.api.rows import arrow_rows, is_rows
from ematix_flow.engine.features.values import check_key, instant_of, key_value
from ematix_flow.errors import DeclareError, DeclareTypeError, did_you_mean
from ematix_flow.plan.sql.point_in_time import INSTANT, ROW, key_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.declare.table.schema import Column, Table

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
    check_columns(table.column_names, views)
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


def check_columns(names: Sequence[str], views: Sequence[Table]) -> None:
    """Refuse a spine that lacks a key of a view, or the instant."""
    for name in (*(key for view in views for key in view.primary_key), AS_OF):
        if name not in names:
            raise _lacks("the spine", name, names)


def _lacks(what: str, name: str, names: Sequence[str]) -> DeclareError:
    hint = did_you_mean(name, names) if names else None
    return DeclareError(f"{what} lacks {name!r}", hint=hint or f"every row needs the entity keys and {AS_OF!r}.")


def instants_of(spine: pa.Table) -> pa.Array:
    """Return the instants of a spine as they are compared, whatever the spine had them as; parts of a microsecond are dropped."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column, kind = spine.column(AS_OF), pa.timestamp("us", tz="UTC")
    if pa.types.is_timestamp(column.type):
        values = column.cast(pa.timestamp(column.type.unit, tz="UTC"))
        if column.type.unit == "ns":  # a cast would round to 1970, which is the future for what was before
            values = pc.floor_temporal(values, unit="microsecond")
        values = values.cast(kind, safe=False)
        if not values.null_count:
            return values.combine_chunks()
        column = values
    rows = enumerate(column.to_pylist())
    return pa.array([instant_of(value, f"row {number} of the spine") for number, value in rows], kind)


def ordered_names(names: Sequence[str]) -> list[str]:
    """Return the columns of a spine sorted by name, with the instant last."""
    return [*sorted(name for name in names if name != AS_OF), AS_OF]


def keys_of(spine: pa.Table, view: Table) -> list[pa.ChunkedArray]:
    """Return the values of the keys of a view, in their declared types."""
    return [key_array(spine, column, view.qualified_name) for column in view.columns if column.primary_key]


def key_array(spine: pa.Table, column: Column, view: str) -> pa.ChunkedArray:
    """Return the values of one key in its declared type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    check_key(column, view)
    values = spine.column(column.name)
    try:
        typed = values.cast(arrow_type(column.type))
        return pc.utf8_lower(typed) if column.type.kind == "uuid" else typed
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        message = f"the values of {column.name!r} in the spine are not {column.type.kind}: {error}"
        raise DeclareError(message) from None


def documents(keys: Sequence[pa.ChunkedArray], kinds: Sequence[str], instants: pa.Array, dialect: str) -> Iterator[str]:
    """Return the rows of a spine as JSON documents, each as large as one statement takes."""
    for start in range(0, len(instants), AT_ONCE):
        cut = instants.slice(start, AT_ONCE)
        literals = [_literals(key.slice(start, AT_ONCE), kind, dialect) for key, kind in zip(keys, kinds, strict=True)]
        yield "[" + ",".join(_objects(start, cut, literals, dialect)) + "]"


def _objects(start: int, instants: pa.Array, literals: Sequence[pa.Array], dialect: str) -> list[str]:
    """Return rows as JSON; columns are joined at once, because a spine has millions of rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = pa.array(range(start, start + len(instants))).cast(pa.string())
    zone = "" if dialect == "mysql" else "+00:00"
    parts: list[Any] = [f'{{"{ROW}": ', numbers, f', "{INSTANT}": "', pc.strftime(instants, _INSTANT), f'{zone}"']
    for position, values in enumerate(literals):
        parts += [f', "{key_name(position)}": ', values]
    texts: list[str] = pc.binary_join_element_wise(*parts, "}", "").to_pylist()
    return texts


_INSTANT = "%Y-%m-%d %H:%M:%S"
"""How an instant is written; Arrow adds the microseconds to the seconds."""


def _literals(values: pa.ChunkedArray, kind: str, dialect: str) -> pa.Array:
    """Return the values of a key as JSON."""
    import pyarrow as pa

    if kind in ("small_int", "integer", "big_int"):
        return values.cast(pa.string()).fill_null("null").combine_chunks()
    return pa.array([json.dumps(key_value(value, kind, dialect)) for value in values.to_pylist()], pa.string())
