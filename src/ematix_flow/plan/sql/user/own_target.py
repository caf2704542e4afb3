"""A query that reads the table it loads, run before that table exists: a relation without rows replaces it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import ParseError, TokenError, exp, parse_one

from ematix_flow.connect.lake import types as spark_types
from ematix_flow.errors import UnsupportedError

if TYPE_CHECKING:
    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.connect.base.columns import TableName
    from ematix_flow.plan.sql.ddl import TableDefinition

_DEFAULTS = {"sqlite": "main", "duckdb": "main", "postgres": "public"}
"""The schema of a name that has none; of MySQL it is the database of the connection."""

_CAST_IN_MYSQL = {"JSON": "CHAR", "LONGBLOB": "BINARY", "TINYINT(1)": "BIGINT"}
"""Types that MySQL or MariaDB have for columns and not for casts."""


@dataclass(frozen=True, slots=True)
class Naming:
    """How a query names the tables of a target's connection."""

    dialect: str
    aliases: frozenset[str] = frozenset()
    """The aliases of the connection in a query over several, in lower case; none where it has only one."""


def without_rows_of(definition: TableDefinition, sql: str, database: Catalog, naming: Naming) -> str | None:
    """Return the query with an empty relation instead of the table; None when it does not read the table."""
    try:
        tree = parse_one(sql, dialect=naming.dialect)
    except (ParseError, TokenError):
        return None
    steps = {cte.alias_or_name.casefold() for cte in tree.find_all(exp.CTE)}
    matches = [table for table in tree.find_all(exp.Table) if _is_target(table, definition, database, naming, steps)]
    if not matches:
        return None
    names = {table.name.casefold() for table in matches}
    for column in tree.find_all(exp.Column):
        if column.args.get("db") is not None and column.table.casefold() in names:
            column.set("db", None)  # a subquery has no schema
            column.set("catalog", None)
    for table in matches:
        table.replace(_no_rows(definition, database, naming).subquery(table.alias or table.name, copy=False))
    return tree.sql(dialect=naming.dialect)


def _is_target(
    table: exp.Table, definition: TableDefinition, database: Catalog, naming: Naming, steps: set[str]
) -> bool:
    if table.args.get("version") is not None or not table.name or (not table.db and table.name.casefold() in steps):
        return False
    schema = table.db
    if naming.aliases:
        # alias.schema.table, or alias.table
        alias, schema = (table.catalog, table.db) if table.catalog else (table.db, "")
        if alias.casefold() not in naming.aliases:
            return False
    if database.dialect == "spark":
        return _placed(schema, table.name, database) == definition.place
    default = _DEFAULTS.get(database.dialect) or str(database.info()["dbname"] or "")
    same = table.name.casefold() == definition.place.name.casefold()
    return same and (schema or default).casefold() == (definition.place.schema or default).casefold()


def _placed(schema: str, name: str, database: Catalog) -> TableName | None:
    """Return where a table would be; None for a name that the system cannot have."""
    try:
        return database.table_name(schema, name)
    except UnsupportedError:
        return None


def _no_rows(definition: TableDefinition, database: Catalog, naming: Naming) -> exp.Select:
    """Return a query with the columns and types of the table, and no row."""
    columns = []
    for one in definition.columns:
        text = one.column.native or database.ddl_type(one.column.type)
        if naming.dialect == "spark":
            text = spark_types.ddl_type(one.column.type)
        elif database.dialect == "mysql":
            text = _CAST_IN_MYSQL.get(text.upper(), text)
        kind = exp.DataType.build(text, dialect=naming.dialect, udt=True)
        columns.append(exp.alias_(exp.Cast(this=exp.null(), to=kind), one.column.name, quoted=True))
    return exp.select(*columns).where(exp.EQ(this=exp.Literal.number(1), expression=exp.Literal.number(0)))
