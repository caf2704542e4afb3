"""Training sets that Spark joins: the spine and the versions of every view as frames, of which no row passes the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.types.arrow import arrow_type
from ematix_flow.connect.types.frames import is_spark_frame
from ematix_flow.engine.api.references import declared_connection
from ematix_flow.engine.batch.stager import translate_spark_error
from ematix_flow.engine.features.spine import AS_OF, instants_of, key_array, ordered_names
from ematix_flow.engine.frames.on_spark import own_session, value_on_spark
from ematix_flow.errors import DeclareTypeError
from ematix_flow.plan.source import SourceValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ematix_flow.declare.table.schema import Column
    from ematix_flow.engine.features.joins import Joined
    from ematix_flow.run.transform.as_of_join import TypedColumn, Versions

    Key = tuple[str, str]

_TIMES = ("timestamp", "timestamp_ntz", "date")
"""Types of Spark that an instant may have."""


@dataclass(frozen=True, slots=True)
class _Spine:
    """A spine as a frame with names of ours: `c0` and so on for its columns, and the row's number and instant."""

    frame: DataFrame
    keys: dict[Key, str]
    """By name and type, the columns of the frame that have the keys of views."""
    bounds: tuple[Any, Any] | None
    """The first and the last instant, where they are known."""


def joined_table(conn: Any, spine: Any, joined: Sequence[Joined]) -> pa.Table:
    """Return the set as a table of this process, in the order of the spine; columns that are here do not go to Spark."""
    from ematix_flow.run.read.frames import collected
    from ematix_flow.run.transform.as_of_join import ROW

    if is_spark_frame(spine):
        frame = joined_frame(conn, spine, joined, numbered=True)
        names = [*ordered_names(spine.columns), *(name for one in joined for name in one.names)]
        local = _run(lambda: collected(frame)).sort_by(ROW).drop_columns([ROW])
        return _declared(local.rename_columns(names), joined)
    session = own_session(None)
    rows = _from_arrow(spine, joined, session, whole=False)
    wanted = _with_views(rows, conn, joined, session).select(ROW, *_value_names(joined))
    features = _run(lambda: collected(wanted)).sort_by(ROW).columns[1:]
    table = spine.set_column(spine.column_names.index(AS_OF), AS_OF, instants_of(spine))
    for name, values in zip((name for one in joined for name in one.names), features, strict=True):
        table = table.append_column(name, values)
    return _declared(table, joined)


def joined_frame(conn: Any, spine: Any, joined: Sequence[Joined], *, numbered: bool = False) -> DataFrame:
    """Return the set as a frame of Spark, which is joined when it is evaluated; `numbered` adds the number of each row."""
    from ematix_flow.run.transform.as_of_join import INSTANT, ROW

    there = is_spark_frame(spine)
    session = own_session(spine.sparkSession if there else None)
    rows = _from_spark(spine, joined) if there else _from_arrow(spine, joined, session, whole=True)
    names = ordered_names(spine.columns if there else spine.column_names)
    own = [*(f"c{number}" for number in range(len(names) - 1)), INSTANT]
    extra = [ROW] if numbered else []
    values = _with_views(rows, conn, joined, session).select(*own, *_value_names(joined), *extra)
    return values.toDF(*names, *(name for one in joined for name in one.names), *extra)


def _run(work: Any) -> Any:
    try:
        return work()
    except Exception as error:
        raise translate_spark_error(error) from error


def _declared(table: pa.Table, joined: Sequence[Joined]) -> pa.Table:
    """Return the set with its features in their declared types."""
    import pyarrow as pa

    types = {name: arrow_type(c.type) for one in joined for name, c in zip(one.names, one.columns, strict=True)}
    return table.cast(pa.schema([pa.field(f.name, types.get(f.name, f.type)) for f in table.schema]))


def _keys(joined: Sequence[Joined]) -> list[Column]:
    """Return the keys of all views, each once by name and type."""
    unique = {(c.name, c.type.kind): c for one in joined for c in one.view.columns if c.primary_key}
    return list(unique.values())


def _from_arrow(spine: pa.Table, joined: Sequence[Joined], session: Any, *, whole: bool) -> _Spine:
    """Return a spine of this process as a frame, its keys cast here; without `whole` its other columns stay here."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from ematix_flow.run.transform.as_of_join import INSTANT, ROW

    instants = instants_of(spine)
    columns = {ROW: pa.array(range(spine.num_rows), pa.int64()), INSTANT: instants}
    named = {}
    for number, column in enumerate(_keys(joined)):
        named[column.name, column.type.kind] = f"x{number}"
        columns[f"x{number}"] = key_array(spine, column, joined[0].view.qualified_name)
    if whole:
        columns |= {f"c{n}": spine.column(name) for n, name in enumerate(spine.column_names) if name != AS_OF}
    bounds = pc.min_max(instants).as_py() if spine.num_rows else {"min": None, "max": None}
    return _Spine(session.createDataFrame(pa.table(columns)), named, (bounds["min"], bounds["max"]))


def _from_spark(spine: DataFrame, joined: Sequence[Joined]) -> _Spine:
    """Return a spine of Spark with names of ours."""
    from ematix_flow.run.transform.as_of_join import spine_frame

    kind = spine.schema[AS_OF].dataType.typeName()
    if kind not in _TIMES:
        message = f"{AS_OF!r} of the spine is {kind}, and not a timestamp"
        raise DeclareTypeError(message, hint=f'cast it first: spine.withColumn("{AS_OF}", ...).')
    keys = _keys(joined)
    named = {(column.name, column.type.kind): f"x{number}" for number, column in enumerate(keys)}
    return _Spine(spine_frame(spine, ordered_names(spine.columns), [_typed(key) for key in keys]), named, None)


def _typed(column: Column) -> TypedColumn:
    from ematix_flow.run.transform.as_of_join import TypedColumn

    return TypedColumn(column.name, column.type.kind, arrow_type(column.type))


def _with_views(rows: _Spine, conn: Any, joined: Sequence[Joined], session: Any) -> DataFrame:
    """Return the spine with the values of all views; those with the same keys are joined at once."""
    from ematix_flow.run.transform.as_of_join import as_of_join

    groups: dict[tuple[Key, ...], list[int]] = {}
    for number, one in enumerate(joined):
        keys = tuple(sorted((c.name, c.type.kind) for c in one.view.columns if c.primary_key))
        groups.setdefault(keys, []).append(number)
    frame = rows.frame
    for keys, numbers in groups.items():
        views = [_versions(conn, joined[number], number, rows.bounds, session) for number in numbers]
        frame = as_of_join(frame, [rows.keys[key] for key in keys], views)
    return frame


def _versions(conn: Any, one: Joined, number: int, bounds: tuple[Any, Any] | None, session: Any) -> Versions:
    """Return the versions of a view that can be valid at an instant of the spine, as a frame."""
    from ematix_flow.run.transform.as_of_join import versions_frame

    keys = sorted((column for column in one.view.columns if column.primary_key), key=lambda column: column.name)
    wanted = dict.fromkeys(column.name for column in (*keys, *one.columns)) | {"valid_from": None, "valid_to": None}
    declared = declared_connection(conn)
    source = SourceValue(declared, table=(one.view.schema, one.view.name), columns=tuple(wanted))
    columns = dict(zip(_names(number, one), map(_typed, one.columns), strict=True))
    return versions_frame(value_on_spark(source, session), [_typed(key) for key in keys], columns, bounds)


def _names(number: int, one: Joined) -> tuple[str, ...]:
    return tuple(f"f{number}_{position}" for position in range(len(one.columns)))


def _value_names(joined: Sequence[Joined]) -> list[str]:
    return [name for number, one in enumerate(joined) for name in _names(number, one)]
