"""What the catalog of PostgreSQL knows about tables whose changes are read: which there are, their keys and types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.base.columns import TableName
from ematix_flow.connect.change_log.tables import TableId
from ematix_flow.connect.postgres.cdc.values import Types
from ematix_flow.connect.types.fingerprint import qualified
from ematix_flow.errors import DeclareError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.postgres.session import PostgresSession

_TABLES = """
SELECT n.nspname, c.relname, c.relreplident, c.reltuples, c.relkind,
  EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND (CASE c.relreplident WHEN 'i' THEN i.indisreplident
    ELSE i.indisprimary END)),
  c.relreplident = 'i' AND EXISTS (SELECT 1 FROM pg_index k CROSS JOIN LATERAL unnest(k.indkey) AS own(number)
    WHERE k.indrelid = c.oid AND k.indisprimary AND NOT EXISTS (SELECT 1 FROM pg_index i
      WHERE i.indrelid = c.oid AND i.indisreplident AND own.number = ANY (i.indkey::int2[]))),
  c.relkind = 'r' AND EXISTS (SELECT 1 FROM pg_inherits h WHERE h.inhparent = c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'ematix_flow') AND n.nspname NOT LIKE 'pg\\_%'
"""

_KEYS = """
SELECT i.indrelid::bigint, array_agg(a.attname::text ORDER BY k.place)
FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indisprimary AND k.place <= i.indnkeyatts AND i.indrelid >= 16384 GROUP BY i.indrelid
"""

_USER_TYPES = """
SELECT oid::bigint, typbasetype::bigint, CASE WHEN typcategory = 'A' THEN typelem::bigint ELSE 0 END
FROM pg_type WHERE oid >= 16384 AND (typtype = 'd' OR typcategory = 'A')
"""

_COLUMNS = """
SELECT attname, atttypid::bigint FROM pg_attribute
WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""


_GENERATED = """
SELECT n.nspname, c.relname, array_agg(a.attname::text) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE a.attgenerated <> '' AND NOT a.attisdropped GROUP BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table that can be read."""

    id: TableId
    identity: str
    """Its replica identity: d(efault), n(othing), f(ull) or i(ndex)."""
    rows: int
    """About how many rows it has."""
    is_partitioned: bool
    has_identity_key: bool
    """Whether the key that its replica identity needs is there."""
    lacks_key: bool = False
    """Whether its replica identity is an index without all columns of the primary key."""
    is_inherited: bool = False
    """Whether other tables inherit from it."""

    @property
    def is_identified(self) -> bool:
        """Return whether the log says which row was updated or deleted."""
        return self.identity == "f" or (self.identity in "di" and self.has_identity_key)


def list_tables(session: PostgresSession) -> dict[TableId, SourceTable]:
    """Return the tables of the database that have a log."""
    rows = session.query(_TABLES)
    tables = (
        SourceTable(
            TableId(schema, name), identity, max(0, int(count)), kind == "p", bool(has_key), lacks_key, inherited
        )
        for schema, name, identity, count, kind, has_key, lacks_key, inherited in rows
    )
    return {table.id: table for table in tables}


def refuse_unidentified(tables: Sequence[SourceTable]) -> None:
    """Refuse tables whose log does not say which row was changed.

    Of those without any identity, users could no longer update or delete rows once they are published.
    """
    unidentified = [table for table in tables if not table.is_identified]
    if unidentified:
        names = ", ".join(str(table.id) for table in unidentified)
        alter = "; ".join(f"ALTER TABLE {sql_name(table.id)} REPLICA IDENTITY FULL" for table in unidentified)
        message = (
            f"{names} has no replica identity: the log does not say which row a change is about, and PostgreSQL "
            "would refuse every UPDATE and DELETE of a published table"
        )
        raise DeclareError(message, hint=f"give it a primary key, or: {alter}.")
    for table in tables:
        if table.lacks_key:
            message = (
                f"the replica identity of {table.id} is an index without all columns of its primary key: the log does "
                "not say which row was deleted, or had another key before"
            )
            raise DeclareError(message, hint=f"ALTER TABLE {sql_name(table.id)} REPLICA IDENTITY DEFAULT, or FULL.")


def unheard_changes(table: SourceTable) -> str:
    """Return what the log of a published table does not say, for an operator; empty where it says all."""
    if table.is_partitioned:
        return (
            f"{table.id} has partitions: TRUNCATE of one of them, or one that is detached or attached with rows, is no "
            "change of the table in the log; delete the rows, or have the table read again"
        )
    if table.is_inherited:
        return f"other tables inherit from {table.id}: their rows are not read with it; name these tables too"
    return ""


def sql_name(table: TableId) -> str:
    """Return the name of a table in SQL."""
    return qualified(TableName(table.schema, table.name))


def read_types(session: PostgresSession) -> Types:
    """Return how values become JSON."""
    return Types({int(oid): (int(base), int(element)) for oid, base, element in session.query(_USER_TYPES)})


def primary_keys(session: PostgresSession) -> dict[int, tuple[str, ...]]:
    """Return the columns of primary keys by the number of their table."""
    return {int(oid): tuple(names) for oid, names in session.query(_KEYS)}


def logged_columns(session: PostgresSession, table: TableId) -> Sequence[tuple[str, int]]:
    """Return name and type of the columns of a table that its log has."""
    return [(str(name), int(oid)) for name, oid in session.query(_COLUMNS, (sql_name(table),))]


def generated_columns(session: PostgresSession) -> dict[TableId, frozenset[str]]:
    """Return the columns that the server computes, which its log does not have, by their table."""
    return {TableId(schema, name): frozenset(columns) for schema, name, columns in session.query(_GENERATED)}


def rows_of(session: PostgresSession, table: TableId) -> str:
    """Return the rows of a table in SQL as its log has them: with those of partitions, without those of what inherits from it."""
    rows = session.query("SELECT relkind FROM pg_class WHERE oid = to_regclass(?)", (sql_name(table),))
    return sql_name(table) if rows and rows[0][0] == "p" else f"ONLY {sql_name(table)}"


def table_number(session: PostgresSession, table: TableId) -> int:
    """Return the number of a table."""
    return int(session.query("SELECT coalesce(to_regclass(?)::oid::bigint, 0)", (sql_name(table),))[0][0])
