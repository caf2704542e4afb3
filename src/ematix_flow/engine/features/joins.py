"""Joins a spine with several views: which columns come under which names, and the values as of each row's instant."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.types.arrow import arrow_type
from ematix_flow.declare.table.feature_view import view_of
from ematix_flow.engine.features.read import chosen_columns, features_of, one_state, reading, versions_at
from ematix_flow.engine.features.spine import AS_OF, instants_of, keys_of, ordered_names
from ematix_flow.engine.features.values import feature_value
from ematix_flow.errors import DeclareError, DeclareTypeError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ematix_flow.declare.table.schema import Column, Table
    from ematix_flow.engine.features.read import Reader


@dataclass(frozen=True, slots=True)
class Joined:
    """One view of a training set with the columns that are taken from it, and their names in the set."""

    view: Table
    columns: tuple[Column, ...]
    names: tuple[str, ...]


def views_of(declared: Sequence[Any]) -> tuple[Table, ...]:
    """Return the tables of the views of a training set, each once."""
    if not isinstance(declared, list | tuple):
        message = f"feature_views= takes a list of classes, not {type(declared).__name__}"
        raise DeclareTypeError(message, hint="write feature_views=[UserFeatures].")
    views = tuple(view_of(one) for one in declared)
    if not views:
        message = "feature_views= names no feature view"
        raise DeclareError(message, hint="write feature_views=[UserFeatures].")
    for name, count in Counter(view.qualified_name for view in views).items():
        if count > 1:
            message = f"feature_views= names {name} {count} times"
            raise DeclareError(message)
    return views


def in_order(spine: pa.Table) -> pa.Table:
    """Return the columns of a spine sorted by name, with the instant last."""
    return spine.select(ordered_names(spine.column_names))


def joined_views(views: Sequence[Table], columns: Any, spine_names: Sequence[str]) -> tuple[Joined, ...]:
    """Return the columns of every view and their names: one that another column has too gets the table's as a prefix."""
    chosen = [chosen_columns(view, _requested(view, views, columns), features_of(view)) for view in views]
    counts = Counter([*spine_names, *(column.name for each in chosen for column in each)])
    joined = []
    for view, each in zip(views, chosen, strict=True):
        names = tuple(c.name if counts[c.name] == 1 else f"{view.name}__{c.name}" for c in each)
        joined.append(Joined(view, each, names))
    _refuse_repeated([*spine_names, *(name for one in joined for name in one.names)])
    return tuple(joined)


def _refuse_repeated(names: Sequence[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            message = f"the training set would have {count} columns named {name!r}"
            raise DeclareError(message, hint="rename a column of the spine, or choose the columns with columns={...}.")


def _requested(view: Table, views: Sequence[Table], columns: Any) -> Sequence[str] | None:
    if columns is None:
        return None
    if isinstance(columns, Mapping):
        by_view = {_reference(key, views): names for key, names in columns.items()}
        names: Sequence[str] | None = by_view.get(view.qualified_name)
        return names
    if isinstance(columns, str) or not isinstance(columns, list | tuple):
        message = f"columns= takes a dict by view or a list of names, not {type(columns).__name__}"
        raise DeclareTypeError(message, hint='for example columns={UserFeatures: ["score"]}.')
    known = {name for one in views for name in one.column_names}
    for name in columns:
        if name not in known:
            message = f"no view of the training set declares a column {name!r}"
            raise DeclareError(message, hint=did_you_mean(str(name), known))
    mine = [name for name in columns if name in view.column_names]
    if not mine:
        message = f"columns= names no column of feature view {view.qualified_name}"
        raise DeclareError(message, hint="leave the view out, or name a column of it.")
    return mine


def _reference(key: Any, views: Sequence[Table]) -> str:
    """Return the table that a key of `columns=` means: a class, or a name of its view."""
    for view in views:
        names = (view.qualified_name, view.name, view.features.name if view.features else "")
        if (key in names) if isinstance(key, str) else view_of(key).qualified_name == view.qualified_name:
            return view.qualified_name
    message = f"columns= names {key!r}, which is not among the feature_views="
    raise DeclareError(message)


def join(conn: Any, spine: pa.Table, joined: Sequence[Joined]) -> pa.Table:
    """Return the spine with the columns of every view, which a database joins; all views are read in one state of it."""
    instants = instants_of(spine)
    # The instants of the set are those that were compared, whatever the spine had them as.
    table = spine.set_column(spine.column_names.index(AS_OF), AS_OF, instants)
    lookups = len(instants) * len(joined)
    with reading(conn, joined[0].view) as reader, one_state(reader, lookups) as readers:
        for one in joined:
            table = _with_view(readers, table, one, instants)
    return table


def _with_view(readers: Sequence[Reader], table: pa.Table, one: Joined, instants: pa.Array) -> pa.Table:
    """Return a table with the values of one view; rows without any have NULL."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = [column.type for column in one.columns]
    matched = [pa.array([], pa.int64())]
    chunks: list[list[pa.Array]] = [[pa.array([], arrow_type(kind))] for kind in kinds]
    if len(instants):
        for rows in versions_at(readers, one.view, one.columns, keys_of(table, one.view), instants):
            numbers, *values = zip(*rows, strict=True) if rows else ((), *(() for _ in kinds))
            matched.append(pa.array(numbers, pa.int64()))
            for chunk, each, kind in zip(chunks, values, kinds, strict=True):
                chunk.append(pa.array(_arrow_values(each, kind.kind), arrow_type(kind)))
    rows_of_spine = pa.array(range(len(instants)), pa.int64())
    order = pc.index_in(rows_of_spine, value_set=pa.chunked_array(matched).combine_chunks())
    for name, chunk in zip(one.names, chunks, strict=True):
        table = table.append_column(name, pa.chunked_array(chunk).take(order))
    return table


_AS_THEY_ARE = ("small_int", "integer", "big_int", "float", "double", "text", "string")
"""Types that every driver gives as Arrow takes them."""


def _arrow_values(values: Sequence[Any], kind: str) -> Sequence[Any]:
    """Return values of a driver as Arrow holds them: documents as text."""
    if kind in _AS_THEY_ARE:
        return values
    read = [feature_value(value, kind) for value in values]
    if kind not in ("json", "jsonb"):
        return read
    return [None if value is None else json.dumps(value, ensure_ascii=False) for value in read]
