"""Lets queries of strangers through only if they read tables and nothing else: decided on the parsed tree, never on text.

It is the first of two locks: the query then runs in a read-only transaction.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ematix_flow.errors import DeclareError

_EXPLAIN = re.compile(r"\s*EXPLAIN(\s+QUERY\s+PLAN)?\s+", re.IGNORECASE)
_FORBIDDEN: tuple[type[exp.Expr], ...] = (
    exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Alter, exp.Command, exp.Into, exp.Lock,
    exp.Copy, exp.Attach, exp.Detach, exp.Set, exp.Pragma, exp.Use, exp.Transaction, exp.Commit, exp.Rollback,
    exp.LoadData, exp.Kill, exp.TruncateTable, exp.Export,
)  # fmt: skip
_TABLE_FUNCTIONS = frozenset({
    "generate_series", "range", "unnest", "json_each", "json_tree", "json_array_elements", "jsonb_array_elements",
    "json_array_elements_text", "jsonb_array_elements_text", "jsonb_each", "jsonb_each_text", "json_each_text",
    "json_table", "regexp_matches", "regexp_split_to_table", "string_to_table", "values",
    "lateral", "exploding_generate_series",
})  # fmt: skip
"""What may stand in FROM besides tables; everything else there may read files or call other servers."""
_FUNCTIONS = re.compile(
    r"(read_|parquet_|sniff_|glob$|scan_|.*_scan$|load_|readfile|writefile|edit$|fts\d_|zipfile|"
    r"pg_read_|pg_ls_|pg_stat_file|pg_file_|pg_write_|pg_sleep|pg_terminate|pg_cancel|pg_reload|pg_rotate|pg_advisory|"
    r"pg_try_advisory|pg_switch|pg_create|pg_drop|pg_promote|pg_logical|pg_replication|pg_export|pg_import|pg_execute|"
    r"lo_|dblink|postgres_|query_to_xml|database_to_xml|table_to_xml|schema_to_xml|cursor_to_xml|xpath_table|"
    r"set_config|current_setting|nextval|setval|inet_|getenv|sys_|benchmark|sleep$|get_lock|release_|master_pos_wait|"
    r"load_file|http|shell|system$|exec|query$|query_table|duckdb_secrets|duckdb_settings|which_secret|install|icu_)",
)
"""Names of functions that reach files, servers, sessions or settings."""
_PATH = re.compile(
    r"[/\\:*?]|\.(csv|tsv|json|jsonl|ndjson|parquet|txt|gz|zst|db|duckdb|sqlite|xlsx|arrow|avro)$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class GuardedQuery:
    """A query that only reads, as it is sent."""

    sql: str
    plain_sql: str
    """The query without our limit, of which the columns are described."""
    is_explain: bool = False


def guarded(sql: str, dialect: str, most_rows: int) -> GuardedQuery:
    """Return a query that reads at most one row more than `most_rows`; refuse what is no plain query."""
    explain = _EXPLAIN.match(sql)
    body = sql[explain.end() :] if explain else sql
    tree = _only_statement(body, dialect)
    for node in tree.walk():
        _check(node)
    plain = tree.sql(dialect=dialect, comments=False)
    if explain:
        lead = "EXPLAIN QUERY PLAN" if dialect == "sqlite" else "EXPLAIN"
        return GuardedQuery(f"{lead} {plain}", plain, is_explain=True)
    return GuardedQuery(_limited(tree, most_rows + 1).sql(dialect=dialect, comments=False), plain)


def _only_statement(sql: str, dialect: str) -> exp.Query:
    try:
        trees = [tree for tree in sqlglot.parse(sql, dialect=dialect) if tree is not None]
        tokens = sqlglot.tokenize(sql, dialect=dialect)
    except (SqlglotError, RecursionError) as error:
        text = str(error).partition("\n")[0]
        raise DeclareError(f"the query cannot be read: {text}") from None
    inner = [token for token in tokens[:-1] if token.token_type.name == "SEMICOLON"]
    if len(trees) != 1 or inner:
        raise DeclareError("exactly one statement is allowed", hint="send them one by one.")
    tree = trees[0]
    if not isinstance(tree, exp.Query):
        name = tree.key.upper()
        raise DeclareError(f"only SELECT, WITH and EXPLAIN are allowed, not {name}")
    return tree


def _check(node: exp.Expr) -> None:
    """Refuse a part of a query that does more than read tables."""
    if isinstance(node, _FORBIDDEN):
        raise DeclareError(f"a query may not {node.key.upper()}", hint="only SELECT, WITH and EXPLAIN are allowed.")
    if isinstance(node, exp.Table):
        _check_table(node)
    if isinstance(node, exp.Func):
        name = (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
        if _FUNCTIONS.match(name):
            raise DeclareError(f"the function {name} may not be called in a query")


def _check_table(table: exp.Table) -> None:
    source = table.this
    if isinstance(source, exp.Func):
        name = (source.name if isinstance(source, exp.Anonymous) else source.sql_name()).lower()
        if name not in _TABLE_FUNCTIONS:
            raise DeclareError(f"the function {name} may not be read from")
        return
    for part in table.parts:
        if isinstance(part, exp.Literal) or _PATH.search(part.name):
            raise DeclareError("a file may not be read from", hint="name a table.")


def _limited(tree: exp.Query, most: int) -> exp.Query:
    """Return the query with a limit; a smaller one of its own stays."""
    limit = tree.args.get("limit")
    literal = limit.expression if isinstance(limit, exp.Limit) else None
    if isinstance(literal, exp.Literal) and literal.is_int and int(literal.name) <= most:
        return tree
    if limit is None or isinstance(literal, exp.Literal):
        copy = tree.copy()
        copy.set("limit", exp.Limit(expression=exp.Literal.number(most)))
        return copy
    return exp.select("*").from_(tree.subquery("q")).limit(most)
