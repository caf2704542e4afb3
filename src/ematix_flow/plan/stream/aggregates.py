"""Aggregations of windows in the SQL of Spark: what is remembered of some rows, and the number made of what was remembered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.types.identifiers import backticked

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ematix_flow.declare.stream.windows import Aggregation, Window

TIME = "_flow_ts"
"""Column of the time of an event in microseconds."""

KEY, START, END = "_flow_key", "_flow_start", "_flow_end"
"""Columns of the key and the bounds of windows; users may have columns that are called start and end."""

LABEL = "_flow_source"
"""Column of the source of a row, where rows of several are remembered."""

SUMMED = ("sum", "avg")
"""Aggregations whose values have to be numbers."""

ROWS = "n"
"""Column of how many events something remembered stands for."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregation: the columns that are remembered of rows, and the expression over them that gives its value."""

    name: str
    partial: tuple[tuple[str, str], ...]
    final: str
    type_from: str = ""
    """The remembered column whose type the value has; empty where it has a type of its own."""
    is_list: bool = False
    """Whether what is remembered is a list of values."""


def aggregates_of(
    window: Window, fractions: Collection[str] = (), numbers: Mapping[str, str] | None = None
) -> tuple[Aggregate, ...]:
    """Return the aggregations of a window in their order.

    `fractions` are the columns whose numbers may have some; `numbers` has what is summed of columns that may have something
    else.
    """
    return tuple(
        _aggregate(f"a{number}", one, fractions, numbers or {}) for number, one in enumerate(window.aggregations)
    )


def summed_columns(window: Window | None) -> tuple[str, ...]:
    """Return the columns whose values have to be numbers."""
    aggregations = () if window is None else window.aggregations
    return tuple(dict.fromkeys(one.column for one in aggregations if one.agg in SUMMED and one.column))


def comparable(column: str) -> str:
    """Return the text of a number that may have a fraction; the same as of a whole number that is equal."""
    # ABS fails at negative decimals that have as many digits as there can be.
    whole = f"FLOOR({column}) = {column} AND {column} > -1e15 AND {column} < 1e15"
    return f"CASE WHEN {whole} THEN CAST(CAST({column} AS BIGINT) AS STRING) ELSE CAST({column} AS STRING) END"


def group_names(window: Window) -> tuple[str, ...]:
    """Return the names under which the columns of groups are remembered."""
    return tuple(f"g{number}" for number in range(len(window.group_by)))


def partial_columns(aggregates: Sequence[Aggregate]) -> tuple[tuple[str, str], ...]:
    """Return all columns that are remembered of rows, with their expressions."""
    return (*(column for one in aggregates for column in one.partial), (ROWS, "COUNT(1)"))


def _aggregate(name: str, declared: Aggregation, fractions: Collection[str], numbers: Mapping[str, str]) -> Aggregate:
    column = "1" if declared.column is None else backticked(declared.column)
    number = numbers.get(declared.column or "", column)
    match declared.agg:
        case "count" | "count_col":
            return Aggregate(declared.as_, ((name, f"COUNT({column})"),), f"CAST(SUM({name}) AS BIGINT)")
        case "sum":
            return Aggregate(declared.as_, ((name, f"SUM({number})"),), f"SUM({name})", name)
        case "min" | "max":
            function = declared.agg.upper()
            return Aggregate(declared.as_, ((name, f"{function}({column})"),), f"{function}({name})", name)
        case "avg":
            partial = ((f"{name}s", f"SUM(CAST({number} AS DOUBLE))"), (f"{name}n", f"COUNT({number})"))
            return Aggregate(declared.as_, partial, f"SUM({name}s) / NULLIF(SUM({name}n), 0)")
        case "first" | "last":
            return _by_time(name, declared, column)
        case _:
            return _distinct(name, declared, column, has_fractions=declared.column in fractions)


def _by_time(name: str, declared: Aggregation, column: str) -> Aggregate:
    """Return the first or last value by event time that is not NULL; of several at one time the least or greatest."""
    pick, bound = ("MIN_BY", "MIN") if declared.agg == "first" else ("MAX_BY", "MAX")
    there = f"FILTER (WHERE {column} IS NOT NULL)"
    partial = (
        (f"{name}v", f"{pick}({column}, STRUCT({TIME}, {column})) {there}"),
        (f"{name}t", f"{bound}({TIME}) {there}"),
    )
    final = f"{pick}({name}v, STRUCT({name}t, {name}v)) FILTER (WHERE {name}t IS NOT NULL)"
    return Aggregate(declared.as_, partial, final, f"{name}v")


def _distinct(name: str, declared: Aggregation, column: str, *, has_fractions: bool) -> Aggregate:
    if declared.is_approximate:
        text = comparable(column) if has_fractions else f"CAST({column} AS STRING)"
        # A sketch ignores the empty text, which is a value like others.
        partial = ((name, f"HLL_SKETCH_AGG(IF({text} = '', CHAR(0), {text}), 14)"),)
        return Aggregate(declared.as_, partial, f"COALESCE(HLL_SKETCH_ESTIMATE(HLL_UNION_AGG({name})), 0)")
    values = f"SIZE(ARRAY_DISTINCT(FLATTEN(COLLECT_LIST({name}))))"
    most = declared.max_distinct_values_per_group
    name_in_text = declared.as_.replace("\\", "\\\\").replace("'", "\\'")
    message = f"{name_in_text} has more than {most} distinct values in one group (max_distinct_values_per_group)"
    limited = f"IF({values} > {most}, CAST(RAISE_ERROR('{message}') AS BIGINT), CAST({values} AS BIGINT))"
    return Aggregate(declared.as_, ((name, f"COLLECT_SET({column})"),), limited, is_list=True)
