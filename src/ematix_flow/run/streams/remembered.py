"""What the state of a stream holds as rows for people, with the columns that a declaration gives them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any

from ematix_flow.errors import UnknownNameError, did_you_mean
from ematix_flow.plan.columns import ORDER
from ematix_flow.plan.stream.state import LEFT
from ematix_flow.run.streams.results import COUNTED, SIZE, window_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from ematix_flow.declare.stream.windows import Window
    from ematix_flow.plan.stream.state import StatePlan
    from ematix_flow.run.streams.stored import StoredState

_BEGIN, _END, _KIND, _STATUS = "_flow_begin", "_flow_until", "_flow_kind", "_flow_status"
_ROW = "_flow_row"
"""Column of a row of a join as JSON; the columns of its key are next to it."""
_OURS = (_BEGIN, _END, _KIND, _STATUS, COUNTED, SIZE, _ROW)


@dataclass(frozen=True, slots=True)
class Remembered:
    """One thing that a stream remembers."""

    kind: str
    """window, session, left, right or key."""
    status: str
    """open or given out; of rows of a join waiting or paired; of keys loaded."""
    begin: int
    end: int
    """When it is over, in microseconds: the end of a window; from when on a row or a key is forgotten."""
    columns: Mapping[str, Any]
    """Its key and its values, as they would be given out now."""
    rows: int
    """How many messages it stands for."""
    bytes: int


@dataclass(frozen=True, slots=True)
class Oldest:
    """The oldest things of a state, and how many there are."""

    rows: tuple[Remembered, ...]
    total: int
    bytes: int


def window_frame(
    stored: StoredState, plan: StatePlan, window: Window, schema: StructType, watermark: int | None
) -> DataFrame:
    """Return windows or sessions with the values that they have so far."""
    from pyspark.sql import functions as sf

    rows = window_rows(stored.results(plan), window, schema, keeps_rows=plan.keeps_rows, sizes=True).drop(ORDER)
    begin, end = (sf.unix_micros(f"`{name}`") for name in (window.window_start_column, window.window_end_column))
    is_over = sf.lit(False) if watermark is None else end <= watermark  # noqa: FBT003 - a value of SQL
    columns = {
        _KIND: sf.lit(plan.operator),
        _BEGIN: begin,
        _END: end,
        _STATUS: sf.when(is_over, "given out").otherwise("open"),
    }
    return rows.withColumns(columns).drop(window.window_start_column, window.window_end_column)


def join_frame(stored: StoredState, plan: StatePlan, keys: Sequence[str]) -> DataFrame:
    """Return the rows of a join that partners can still come for."""
    from pyspark.sql import functions as sf

    until = sf.when(sf.col("side") == LEFT, sf.col("ts") + plan.most).otherwise(sf.col("ts") - plan.least)
    return stored.buffered().select(
        *_key_columns(keys),
        sf.col("block").alias(_ROW),
        sf.col("side").alias(_KIND),
        sf.col("ts").alias(_BEGIN),
        (until + plan.allowed).alias(_END),
        sf.when(sf.col("matched"), "paired").otherwise("waiting").alias(_STATUS),
        sf.lit(1).alias(COUNTED),
        sf.octet_length("block").alias(SIZE),
    )


def key_frame(stored: StoredState, plan: StatePlan, keys: Sequence[str]) -> DataFrame:
    """Return the keys of rows that were loaded."""
    from pyspark.sql import functions as sf

    return stored.firsts().select(
        *_key_columns(keys),
        sf.lit("key").alias(_KIND),
        sf.col("ts").alias(_BEGIN),
        (sf.col("ts") + plan.longest).alias(_END),
        sf.lit("loaded").alias(_STATUS),
        sf.lit(1).alias(COUNTED),
        (sf.octet_length("key") + 8).alias(SIZE),
    )


def oldest(frame: DataFrame, limit: int, keys: Mapping[str, str]) -> Oldest:
    """Return the oldest things of a frame; `keys` are values that columns have to have."""
    from pyspark.sql import functions as sf

    shown = [name for name in frame.columns if name not in _OURS]
    for name, value in keys.items():
        if name not in shown:
            raise UnknownNameError(f"the state has no column {name!r}", hint=did_you_mean(name, shown))
        frame = frame.where(sf.col(f"`{name}`").cast("string") == value)
    cached = frame.persist()
    try:
        total, size = cached.agg(sf.count(sf.lit(1)), sf.coalesce(sf.sum(SIZE), sf.lit(0))).collect()[0]
        ordered = cached.orderBy(_BEGIN, _END, *(sf.col(f"`{name}`").cast("string") for name in shown))
        instants = [field.name for field in frame.schema.fields if field.dataType.typeName() == "timestamp"]
        rows = ordered.limit(limit).collect()
        return Oldest(tuple(_remembered(row, shown, instants) for row in rows), int(total), int(size))
    finally:
        cached.unpersist()


def _remembered(row: Any, names: Sequence[str], instants: Collection[str]) -> Remembered:
    """Return one thing of a frame; columns that are `instants` are in UTC, not in the zone of this machine as Spark gives them."""
    known = {name: row[name] for name in names}
    known |= {name: known[name].astimezone(UTC) for name in instants if known.get(name) is not None}
    columns = json.loads(row[_ROW]) if _ROW in row else known
    return Remembered(row[_KIND], row[_STATUS], row[_BEGIN], row[_END], columns, int(row[COUNTED]), int(row[SIZE]))


def _key_columns(names: Sequence[str]) -> list[Column]:
    """Return the columns of a key, which the state has as texts."""
    from pyspark.sql import functions as sf

    values = sf.from_json("key", "array<string>")
    return [values[number].alias(name) for number, name in enumerate(names)]
