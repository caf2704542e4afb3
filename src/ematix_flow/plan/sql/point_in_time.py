"""Joins of a spine with the versions of a feature view, and lookups of current values, as SQL; it executes nothing.

The spine comes as one JSON document, which every database reads as a relation: no table has to be created for it, so
that a user who may only read can build training sets. A row of it has its number `r`, its instant `a` and its keys
`k0`, `k1` and so on. A version belongs to a row when it had begun at the row's instant and had not ended by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.plan.sql.render import native_column, native_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.columns import TableName

ROW, INSTANT = "r", "a"
"""Names of the number and the instant of a row of the spine."""

DOCUMENT = "?"
"""Where a database gets the spine; Spark has no parameters and gets it as text."""

RANK = "_flow_rank"


def key_name(position: int) -> str:
    """Return the name of a key in the spine."""
    return f"k{position}"


def point_in_time_sql(
    table: TableName, keys: Sequence[str], columns: Sequence[str], types: Sequence[str], dialect: str
) -> str:
    """Return the query for the number of each row and the values as of its instant; rows without any are left out.

    `types` are the types of the instant and of the keys in the dialect. Of two versions that both cover an instant,
    which no load writes, the one that began last counts.
    """
    names = {name: native_column(name, dialect) for name in (*keys, *columns, "valid_from", "valid_to")}
    begun, ended = f"f.{names['valid_from']}", f"f.{names['valid_to']}"
    same = [f"f.{names[key]} = s.{key_name(i)}" for i, key in enumerate(keys)]
    covers = [*same, f"{begun} <= s.{INSTANT}", f"({ended} IS NULL OR {ended} > s.{INSTANT})"]
    values = [f"f.{names[column]} AS {_value(i)}" for i, column in enumerate(columns)]
    if dialect == "postgres":
        # The primary key has the keys and then the beginning: its last entry before the instant is mostly the version.
        last = (
            f"SELECT {', '.join(values)} FROM {native_name(table, dialect)} AS f WHERE {' AND '.join(covers)} "
            f"ORDER BY {begun} DESC LIMIT 1"
        )
        listed = ", ".join([f"s.{ROW}", *(f"v.{_value(i)}" for i in range(len(columns)))])
        return f"SELECT {listed} FROM {_spine(types, dialect)} CROSS JOIN LATERAL ({last}) AS v"
    rank = f"ROW_NUMBER() OVER (PARTITION BY s.{ROW} ORDER BY {begun} DESC) AS {RANK}"
    inner = (
        f"SELECT {', '.join([f's.{ROW} AS {ROW}', *values, rank])} FROM {_spine(types, dialect)} "
        f"JOIN {native_name(table, dialect)} AS f ON {' AND '.join(covers)}"
    )
    outer = ", ".join([ROW, *(_value(i) for i in range(len(columns)))])
    return f"SELECT {outer} FROM ({inner}) AS versions WHERE {RANK} = 1"


def current_sql(
    store: TableName, keys: Sequence[str], columns: Sequence[str], types: Sequence[str], dialect: str
) -> str:
    """Return the lookup of one key in an online store, whose parameters are the values of the keys."""
    typed = dialect in ("postgres", "duckdb")
    values = [f"CAST(? AS {kind})" if typed else "?" for kind in types]
    where = " AND ".join(f"{native_column(k, dialect)} = {value}" for k, value in zip(keys, values, strict=True))
    listed = ", ".join(native_column(column, dialect) for column in columns)
    return f"SELECT {listed} FROM {native_name(store, dialect)} WHERE {where}"


def embedded(sql: str, document: str) -> str:
    """Return a query of Spark with the spine as text in it."""
    escaped = document.replace("\\", "\\\\").replace("'", "\\'")
    return sql.replace(DOCUMENT, f"'{escaped}'", 1)


def _value(position: int) -> str:
    return f"v{position}"


def _spine(types: Sequence[str], dialect: str) -> str:
    """Return the spine as a relation named `s`."""
    instant, *keys = types
    fields = [(ROW, "BIGINT"), (INSTANT, instant), *((key_name(i), kind) for i, kind in enumerate(keys))]
    match dialect:
        case "postgres":
            listed = ", ".join(f"{name} {kind}" for name, kind in fields)
            return f"JSON_TO_RECORDSET(CAST({DOCUMENT} AS JSON)) AS s({listed})"
        case "mysql":
            listed = ", ".join(f"{name} {kind} PATH '$.{name}'" for name, kind in fields)
            return f"JSON_TABLE({DOCUMENT}, '$[*]' COLUMNS ({listed})) AS s"
        case "sqlite":
            listed = ", ".join(f"JSON_EXTRACT(value, '$.{name}') AS {name}" for name, _ in fields)
            return f"(SELECT {listed} FROM JSON_EACH({DOCUMENT})) AS s"
        case "duckdb":
            shape = ", ".join(f'"{name}": "{kind}"' for name, kind in fields)
            read = f"FROM_JSON(CAST({DOCUMENT} AS JSON), '[{{{shape}}}]')"
            return f"(SELECT UNNEST({read}, recursive := TRUE)) AS s"
        case _:
            shape = ", ".join(f"{name}: {kind}" for name, kind in fields)
            return f"(SELECT INLINE(FROM_JSON({DOCUMENT}, 'array<struct<{shape}>>'))) AS s"
