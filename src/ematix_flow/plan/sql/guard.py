"""Lets queries of strangers through only if they read tables and nothing else: decided on the parsed tree, never on text.

It is the first of two locks: the query then runs in a read-only transaction.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Never

import sqlglot
from sqlglot import Dialect, TokenType, exp
from sqlglot.errors import SqlglotError

from ematix_flow.errors import DeclareError
from ematix_flow.plan.sql.harmless import EXTERNAL, FUNCTIONS, SYSTEM_TABLES, TABLE_FUNCTIONS
from ematix_flow.plan.sql.user.query import adapted

_EXPLAIN = re.compile(r"\s*EXPLAIN(\s+QUERY\s+PLAN)?\s+", re.IGNORECASE)
_FORBIDDEN: tuple[type[exp.Expr], ...] = (
    exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Alter, exp.Command, exp.Into, exp.Lock,
    exp.Copy, exp.Attach, exp.Detach, exp.Set, exp.Pragma, exp.Use, exp.Transaction, exp.Commit, exp.Rollback,
    exp.LoadData, exp.Kill, exp.TruncateTable, exp.Export, exp.Summarize, exp.Describe, exp.Show, exp.Analyze,
)  # fmt: skip
_READINGS = 3
"""How often a query is read at most until its text stays what it is."""
_RELATIONS = (exp.Query, exp.Table, exp.Values, exp.Pivot)
"""What may stand between parentheses in FROM, and in WITH."""
_NAMED = (exp.Anonymous, exp.AnonymousAggFunc, exp.CombinedAggFunc, exp.ParameterizedAgg)
"""Functions that the parser does not know."""
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


def guarded(sql: str, dialect: str, most_rows: int, more_functions: frozenset[str] = frozenset()) -> GuardedQuery:
    """Return a query that reads at most one row more than `most_rows`; refuse what is no plain query.

    `more_functions` are names, in lower case, that may be called besides those that are known to be harmless.
    """
    explain = _EXPLAIN.match(sql)
    body = sql[explain.end() :] if explain else sql
    rules = _Rules(dialect, more_functions)
    tree = _stable(body, rules)
    plain, limited = _text(tree, dialect), _text(_limited(tree, most_rows + 1), dialect)
    if explain:
        lead = "EXPLAIN QUERY PLAN" if dialect == "sqlite" else "EXPLAIN"
        return GuardedQuery(f"{lead} {plain}", plain, is_explain=True)
    if _text(_checked(limited, rules), dialect) != limited:
        raise _unstable()
    return GuardedQuery(limited, plain)


def _stable(sql: str, rules: _Rules) -> exp.Query:
    """Return the query that is read from its own text again: some names lose their quotes there, and become SQL."""
    for _ in range(_READINGS):
        tree = adapted(_checked(sql, rules), rules.dialect, rules.dialect)
        text = _text(tree, rules.dialect)
        if text == sql:
            return tree
        sql = text
    raise _unstable()


def _checked(sql: str, rules: _Rules) -> exp.Query:
    tree = _only_statement(sql, rules.dialect)
    for node in tree.walk():
        rules.check(node)
    return tree


def _text(tree: exp.Query, dialect: str) -> str:
    return tree.sql(dialect=dialect, comments=False)


def _unstable() -> DeclareError:
    return DeclareError("the query cannot be sent as it was read", hint="use plain names, without SQL in their quotes.")


def _only_statement(sql: str, dialect: str) -> exp.Query:
    try:
        trees = [tree for tree in sqlglot.parse(sql, dialect=dialect) if not isinstance(tree, exp.Semicolon | None)]
        tokens = sqlglot.tokenize(sql, dialect=dialect)
    except (SqlglotError, RecursionError) as error:
        text = str(error).partition("\n")[0]
        raise DeclareError(f"the query cannot be read: {text}") from None
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if len(trees) != 1 or any(token.token_type is TokenType.SEMICOLON for token in tokens):
        raise DeclareError("exactly one statement is allowed", hint="send them one by one.")
    tree = trees[0]
    if not isinstance(tree, exp.Query):
        name = tree.key.upper()
        raise DeclareError(f"only SELECT, WITH and EXPLAIN are allowed, not {name}")
    return tree


@dataclass(frozen=True, slots=True)
class _Rules:
    """What a query may name in a dialect."""

    dialect: str
    more_functions: frozenset[str]

    def check(self, node: exp.Expr) -> None:
        """Refuse a part of a query that does more than read tables."""
        inside = node.this if isinstance(node, exp.Subquery | exp.CTE) else None
        if isinstance(node, _FORBIDDEN) or (inside is not None and not isinstance(inside, _RELATIONS)):
            name = (inside or node).key.upper()
            raise DeclareError(f"a query may not {name}", hint="only SELECT, WITH and EXPLAIN are allowed.")
        if isinstance(node, exp.SessionParameter):
            raise DeclareError(f"the setting @@{node.name} may not be read in a query")
        if isinstance(node, exp.Operator) and not str(node.args["operator"]).startswith("pg_catalog."):
            raise DeclareError(f"the operator {node.args['operator']} may not be used in a query")
        if isinstance(node, exp.Table):
            self._check_table(node)
        elif isinstance(node, exp.Lateral) and isinstance(node.this, exp.Func):
            self._check_table_function(node.this, "")
        elif isinstance(node, exp.Func):
            self._check_function(node)

    def _check_function(self, function: exp.Func) -> None:
        name, schema = _function_name(function), self._schema(function)
        full = f"{schema}.{name}" if schema else name
        known = schema in ("", "pg_catalog") and self._is_harmless(function, name)
        if not known and full not in self.more_functions:
            self._refuse(full, "called in a query")

    def _schema(self, function: exp.Func) -> str:
        """Return the schema that a function is called with; DuckDB also writes x.lower() for lower(x)."""
        place = function.parent
        is_qualified = isinstance(place, exp.Dot) and place.expression is function and self.dialect != "duckdb"
        return str(place.this.name).lower() if place is not None and is_qualified else ""

    def _is_harmless(self, function: exp.Func, name: str) -> bool:
        if not isinstance(function, _NAMED):
            return not isinstance(function, EXTERNAL)
        known = Dialect.get_or_raise(self.dialect).parser_class.FUNCTIONS
        is_sql = name.upper() in known and not any(name.upper() in one.sql_names() for one in EXTERNAL)
        return is_sql or name in FUNCTIONS.get(self.dialect, ())

    def _check_table(self, table: exp.Table) -> None:
        if isinstance(table.this, exp.Func):
            self._check_table_function(table.this, table.db.lower())
            return
        for part in table.parts:
            if isinstance(part, exp.Literal) or _PATH.search(part.name):
                raise DeclareError("a file may not be read from", hint="name a table.")
        system = SYSTEM_TABLES.get(self.dialect)
        if system is not None and system.refuse(table.db, table.name):
            name = ".".join(part.name for part in table.parts)
            message = f"the system table {name} may not be read in a query"
            raise DeclareError(message, hint="if it is a table of yours, name its schema too.")

    def _check_table_function(self, function: exp.Func, schema: str) -> None:
        name = _function_name(function)
        full = f"{schema}.{name}" if schema else name
        known = isinstance(function, exp.JSONTable | exp.XMLTable) or name in TABLE_FUNCTIONS
        if not (known and schema in ("", "pg_catalog")) and full not in self.more_functions:
            self._refuse(full, "read from")

    def _refuse(self, name: str, what: str) -> Never:
        hint = "only functions that are known to be harmless are, and those that EMATIX_FLOW_QUERY_FUNCTIONS names."
        raise DeclareError(f"the function {name} may not be {what}", hint=hint)


def _function_name(function: exp.Func) -> str:
    return (function.name if isinstance(function, _NAMED) else function.sql_name()).lower()


def _limited(tree: exp.Query, most: int) -> exp.Query:
    """Return the query with a limit; a smaller one of its own stays."""
    limit = tree.args.get("limit")
    literal = limit.expression if isinstance(limit, exp.Limit) and not limit.args.get("limit_options") else None
    if isinstance(literal, exp.Literal) and literal.is_int and int(literal.name) <= most:
        return tree
    if limit is None or isinstance(literal, exp.Literal):
        copy = tree.copy()
        copy.set("limit", exp.Limit(expression=exp.Literal.number(most)))
        return copy
    return exp.select("*").from_(tree.subquery("q")).limit(most)
