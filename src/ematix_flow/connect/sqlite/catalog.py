"""What SQLite's catalog holds about its tables and about the columns of a query; it changes nothing that lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ematix_flow.connect.base.columns import ColumnSchema, SourceColumn, TableSchema
from ematix_flow.connect.sqlite import types as sqlite_types
from ematix_flow.connect.types.identifiers import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.session import Session

SAMPLE_ROWS = 1000
VIEW = "_flow_described"


def find_table(session: Session, name: str, *, bounds: bool = False) -> TableSchema | None:
    """Describe a table from SQLite's pragmas; with `bounds`, whole numbers are as wide as the table's conditions allow."""
    entries = session.query(
        "SELECT type, sql FROM main.sqlite_master WHERE lower(name) = lower(?) AND type IN ('table', 'view')", (name,)
    )
    if not entries:
        return None
    rows = session.query(
        "SELECT name, type, \"notnull\", pk FROM pragma_table_xinfo(?, 'main') WHERE hidden <> 1 ORDER BY cid", (name,)
    )
    key = tuple(column for _, column in sorted((pk, column) for column, _, _, pk in rows if pk))
    return TableSchema(
        columns=tuple(
            ColumnSchema(
                column,
                sqlite_types.as_enforced(column, declared, entries[0][1] or "") if bounds else declared or "no type",
                nullable=not not_null and not _is_row_id(column, declared, key),
            )
            for column, declared, not_null, _ in rows
        ),
        primary_key=key,
        unique=_unique(session, name),
        problem=_problem(*entries[0]),
    )


def _is_row_id(column: str, declared: str, key: tuple[str, ...]) -> bool:
    """Return whether the column is the row id, which is never NULL, whatever the table declares."""
    return key == (column,) and declared.upper() == "INTEGER"


def _unique(session: Session, table: str) -> tuple[tuple[str, ...], ...]:
    rows = session.query(
        "SELECT l.seq, i.name FROM pragma_index_list(?, 'main') AS l, pragma_index_xinfo(l.name, 'main') AS i "
        "WHERE l.\"unique\" = 1 AND l.origin <> 'pk' AND l.partial = 0 AND i.key = 1 ORDER BY l.seq DESC, i.seqno",
        (table,),
    )
    groups: dict[int, list[str | None]] = {}
    for index, name in rows:
        groups.setdefault(index, []).append(name)
    # A part without a name is an expression, and no constraint on columns.
    return tuple(tuple(cast("list[str]", names)) for names in groups.values() if None not in names)


def _problem(kind: str, sql: str | None) -> str:
    if kind == "view":
        return "it is a view"
    return "it is a virtual table" if (sql or "").upper().startswith("CREATE VIRTUAL") else ""


def describe(session: Session, sql: str) -> tuple[SourceColumn, ...]:
    """Return the columns of a query: by declared type, which a view shows, else by the first values."""
    session.execute(f"CREATE TEMP VIEW {VIEW} AS SELECT * FROM (\n{sql}\n)")
    try:
        rows = session.query(f"SELECT name, type FROM pragma_table_xinfo('{VIEW}', 'temp') ORDER BY cid")
        families = {name: sqlite_types.family(declared) for name, declared in rows}
        families |= _sampled(session, [name for name, family in families.items() if not family])
    finally:
        session.execute(f"DROP VIEW temp.{VIEW}")
    return tuple(SourceColumn(name, families[name], declared) for name, declared in rows)


def _sampled(session: Session, names: Sequence[str]) -> dict[str, str]:
    if not names:
        return {}
    storage = ", ".join(f"typeof({quoted(name)})" for name in names)
    rows = session.query(f"SELECT DISTINCT {storage} FROM (SELECT * FROM temp.{VIEW} LIMIT {SAMPLE_ROWS})")
    return {name: sqlite_types.family_of_values({row[i] for row in rows}) for i, name in enumerate(names)}
