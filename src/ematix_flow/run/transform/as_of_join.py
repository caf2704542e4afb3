"""As-of joins of frames: every row of a spine gets the version of its entity that was valid at its instant.

Spine and versions are sorted together by entity and time, and each row takes the last version before it. So no row meets
more than its own entity's, nothing is collected, and what does not fit into memory is sorted on disk. Of two versions that
both began before a row the later one counts, and nothing does where that one has ended: as in the databases' queries.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.types.identifiers import backticked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

ROW, INSTANT = "_flow_row", "_flow_instant"
"""The number and the instant of a row of the spine."""

BEGUN, ENDED = "_flow_begun", "_flow_ended"
"""When a version begins and ends."""

_SALTS = 1024
"""Over how many groups rows are spread that belong to no entity: in one group they would be sorted by one task."""


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """A column of a view with its declared type."""

    name: str
    kind: str
    arrow_type: pa.DataType


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of one view as a frame: its keys `k0`, `k1` and so on, BEGUN, ENDED and the values."""

    frame: DataFrame
    columns: tuple[str, ...]
    """Names of the values in the frame, which no other frame of the join has."""


def spine_frame(spine: DataFrame, names: Sequence[str], keys: Sequence[TypedColumn]) -> DataFrame:
    """Return a spine with its columns as `c0` and so on, its keys as `x0` and so on, and the instant, which is its last name.

    A row without an instant fails what evaluates it.
    """
    from pyspark.sql import functions as sf

    *others, as_of = names
    columns = [sf.col(backticked(name)).alias(f"c{number}") for number, name in enumerate(others)]
    cast = [_key(spine, key).alias(f"x{number}") for number, key in enumerate(keys)]
    missing = sf.raise_error(sf.lit(f"a row of the spine has no instant in {as_of}")).cast("timestamp")
    instant = sf.coalesce(_instants(sf.col(backticked(as_of)), spine.schema[as_of].dataType.typeName()), missing)
    numbered = spine.select("*", sf.monotonically_increasing_id().alias(ROW))
    return numbered.select(*columns, ROW, instant.alias(INSTANT), *cast)


def versions_frame(
    frame: DataFrame, keys: Sequence[TypedColumn], columns: Mapping[str, TypedColumn], bounds: tuple[Any, Any] | None
) -> Versions:
    """Return the versions of a view, read from its system, under the names of the join; outside the bounds none is needed."""
    from pyspark.sql import functions as sf

    ends = {name: frame.schema[name].dataType.typeName() for name in ("valid_from", "valid_to")}
    begun, ended = (_instants(sf.col(name), kind) for name, kind in ends.items())
    versions = frame.select(
        *(_declared(frame, key).alias(_key_name(position)) for position, key in enumerate(keys)),
        *(_declared(frame, column).alias(name) for name, column in columns.items()),
        begun.alias(BEGUN),
        ended.alias(ENDED),
    )
    if bounds is not None and bounds[0] is not None:
        first, last = (sf.lit(bound).cast("timestamp") for bound in bounds)
        versions = versions.where((sf.col(BEGUN) <= last) & (sf.col(ENDED).isNull() | (sf.col(ENDED) > first)))
    return Versions(versions, tuple(columns))


def _key_name(position: int) -> str:
    return f"k{position}"


def as_of_join(spine: DataFrame, keys: Sequence[str], views: Sequence[Versions]) -> DataFrame:
    """Return the spine with the values of views that have the same keys; `keys` are columns of the spine."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    names = [_key_name(position) for position in range(len(keys))]
    keyed = [sf.col(key).alias(name) for key, name in zip(keys, names, strict=True)]
    both = spine.select(sf.struct("*").alias("s"), *keyed).select(
        *names,
        sf.when(_any_null(names), sf.monotonically_increasing_id() % _SALTS).otherwise(0).alias("salt"),
        sf.col(f"s.{INSTANT}").alias("t"),
        sf.lit(1).alias("side"),
        sf.col("s"),
    )
    for number, view in enumerate(views):
        both = both.unionByName(_as_rows(view, names, number), allowMissingColumns=True)
    window = Window.partitionBy(*names, "salt").orderBy("t", "side", sf.col("e").asc_nulls_last())
    until_now = window.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    matches = [
        sf.last(f"v{number}", ignorenulls=True).over(until_now).alias(f"v{number}") for number in range(len(views))
    ]
    joined = both.select("side", "t", "s", *matches).where("side = 1")
    values = [
        sf.when(
            sf.col(f"v{number}.e").isNull() | (sf.col(f"v{number}.e") > sf.col("t")), sf.col(f"v{number}.{name}")
        ).alias(name)
        for number, view in enumerate(views)
        for name in view.columns
    ]
    return joined.select("s.*", *values)


def _as_rows(view: Versions, names: Sequence[str], number: int) -> DataFrame:
    """Return versions as rows of the union; those that cover no instant, and those of no entity, are left out."""
    from pyspark.sql import functions as sf

    covering = sf.col(ENDED).isNull() | (sf.col(ENDED) > sf.col(BEGUN))
    return view.frame.where(covering & ~_any_null(names)).select(
        *names,
        sf.lit(0).cast("bigint").alias("salt"),
        sf.col(BEGUN).alias("t"),
        sf.lit(0).alias("side"),
        sf.struct(*view.columns, sf.col(ENDED).alias("e")).alias(f"v{number}"),
        sf.col(ENDED).alias("e"),
    )


def _any_null(names: Sequence[str]) -> Column:
    from pyspark.sql import functions as sf

    condition = sf.lit(False)  # noqa: FBT003 - a value of SQL
    for name in names:
        condition = condition | sf.col(name).isNull()
    return condition


def _instants(column: Column, kind: str) -> Column:
    """Return a column of instants; timestamps without a zone are in UTC, whatever the session's zone is."""
    from pyspark.sql import functions as sf

    if kind in ("timestamp_ntz", "date"):
        return sf.concat(column.cast("timestamp_ntz").cast("string"), sf.lit("+00:00")).cast("timestamp")
    return column.cast("timestamp")


def _declared(frame: DataFrame, column: TypedColumn) -> Column:
    """Return a column of a system in the type that is declared for it."""
    from pyspark.sql import functions as sf
    from pyspark.sql.pandas.types import from_arrow_type

    value = sf.col(backticked(column.name))
    if column.kind == "timestamp_tz":
        return _instants(value, frame.schema[column.name].dataType.typeName())
    if column.kind in ("json", "jsonb"):
        return sf.udf(document, "string", useArrow=False)(value.cast("string"))
    return value.cast(from_arrow_type(column.arrow_type, prefer_timestamp_ntz=True))


def _key(frame: DataFrame, column: TypedColumn) -> Column:
    """Return a key of a spine as views have it."""
    from pyspark.sql import functions as sf

    value = _declared(frame, column)
    return sf.lower(value) if column.kind == "uuid" else value


def document(text: Any) -> str | None:
    """Return a document as a training set has it, however its database writes it."""
    return None if text is None else json.dumps(json.loads(text), ensure_ascii=False)
