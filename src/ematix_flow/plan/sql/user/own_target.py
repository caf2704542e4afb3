"""A query that reads the table it loads, asked before that table exists: a relation without rows stands in for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import ParseError, TokenError, exp, parse_one

if TYPE_CHECKING:
    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.plan.sql.ddl import WantedTable

_DEFAULTS = {"sqlite": "main", "duckdb": "main", "postgres": "public"}
"""The schema of a name that has none; of MySQL it is the database of the connection."""

_CAST_IN_MYSQL = {"JSON": "CHAR", "LONGBLOB": "BINARY", "TINYINT(1)": "BIGINT"}
"""Types that MySQL or MariaDB have for columns and not for casts."""


def without_rows_of(wanted: WantedTable, sql: str, database: Catalog) -> str | None:
    """Return the query with an empty relation in the place of the table; None when it does not read the table."""
    try:
        tree = parse_one(sql, dialect=database.dialect)
    except (ParseError, TokenError):
        return None
    own = {cte.alias_or_name.casefold() for cte in tree.find_all(exp.CTE)}
    found = [table for table in tree.find_all(exp.Table) if _is_target(table, wanted, database, own)]
    if not found:
        return None
    for column in tree.find_all(exp.Column):
        if column.args.get("db") is not None and column.table.casefold() == wanted.place.name.casefold():
            column.set("db", None)  # a subquery has no schema
    for table in found:
        table.replace(_no_rows(wanted, database).subquery(table.alias or table.name, copy=False))
    return tree.sql(dialect=database.dialect)


def _is_target(table: exp.Table, wanted: WantedTable, database: Catalog, own: set[str]) -> bool:
    name = table.name.casefold()
    if name != wanted.place.name.casefold() or (name in own and not table.db):
        return False
    default = _DEFAULTS.get(database.dialect) or str(database.info()["dbname"] or "")
    return (table.db or default).casefold() == (wanted.place.schema or default).casefold()


def _no_rows(wanted: WantedTable, database: Catalog) -> exp.Select:
    """Return a query with the columns and types of the table, and no row."""
    columns = []
    for one in wanted.columns:
        text = one.column.native or database.ddl_type(one.column.type)
        if database.dialect == "mysql":
            text = _CAST_IN_MYSQL.get(text.upper(), text)
        kind = exp.DataType.build(text, dialect=database.dialect, udt=True)
        columns.append(exp.alias_(exp.Cast(this=exp.null(), to=kind), one.column.name, quoted=True))
    return exp.select(*columns).where(exp.EQ(this=exp.Literal.number(1), expression=exp.Literal.number(0)))
