"""Which columns the SQL of a stream takes from its batch and its lookups; what the SQL defines itself is not among them.

Names are compared as Spark does it, without regard to capitals. Spark decides about a name that is found
nowhere: this module decides what may be filled with NULL.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import traverse_scope

from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.dialect.annotate import UNRESOLVED
from ematix_flow.plan.sql.user.stream import SOURCE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sqlglot.optimizer.scope import Scope

_NOTHING = "_flow_nothing"
"""A column of every relation, because one without columns counts as unknown."""

_OF_A_VIEW = {"pos", "col", "key", "value"}
"""What Spark calls the columns of LATERAL VIEW EXPLODE that have no names."""

Columns = tuple[tuple[str, tuple[str, ...]], ...]
"""The columns of each lookup, by its name."""


def lacking(
    sql: str, fields: Collection[str], lookups: Mapping[str, Collection[str]], inner: Collection[str] = ()
) -> frozenset[str]:
    """Return the columns, in lower case, that Spark SQL takes from the batch and that the batch has not.

    `inner` are fields inside of those of the batch, which are columns behind `doc.*` and `inline(docs)`.
    """
    known = tuple((name.lower(), tuple(sorted(one.lower() for one in lookups[name]))) for name in sorted(lookups))
    names, nested = (frozenset(name.lower() for name in some) for some in (fields, inner))
    return _lacking(sql, names, known, nested)


def strange(sql: str, lookups: Mapping[str, Collection[str]]) -> tuple[str, str] | None:
    """Return a lookup and a column that the SQL takes from it and that it has not, or None."""
    columns = {name.lower(): {one.lower() for one in fields} for name, fields in lookups.items()}
    for table, column in _qualified(parse_one(sql, dialect="spark")):
        if table in columns and column not in columns[table]:
            return table, column
    return None


def spark_type(text: str) -> str:
    """Return a type as Spark writes it, or refuse what is none."""
    try:
        return exp.DataType.build(text, dialect="spark").sql(dialect="spark")
    except (SqlglotError, ValueError):
        message = f"optional_fields= names the type {text!r}, which Spark SQL does not have"
        raise PlanError(message, hint="for example STRING, BIGINT, DOUBLE, TIMESTAMP or ARRAY<STRING>.") from None


@lru_cache(maxsize=256)
def _lacking(sql: str, fields: frozenset[str], lookups: Columns, inner: frozenset[str]) -> frozenset[str]:
    tree = parse_one(sql, dialect="spark")
    own_fields = inner if _takes_out(tree) else frozenset()
    named = list(_qualified(tree))
    missing = {column for table, column in named if table == SOURCE} - fields
    missing |= _unqualifiable(tree) - fields
    tables = {SOURCE: {*fields, *missing}, **{name: set(columns) for name, columns in lookups}}
    for table, column in named:
        tables.setdefault(table, set()).add(column)
    schema: dict[str, object] = {
        name: dict.fromkeys((*columns, _NOTHING), "string") for name, columns in tables.items()
    }
    try:
        resolved = qualify(
            tree, schema=schema, dialect="spark", validate_qualify_columns=False, quote_identifiers=False
        )
    except UNRESOLVED:
        lookup_columns = {column for _, columns in lookups for column in columns}
        return frozenset(missing | _mentioned(parse_one(sql, dialect="spark")) - fields - lookup_columns)
    return frozenset(missing | set(_unresolved(resolved, own_fields)))


def _qualified(tree: exp.Expr) -> Iterator[tuple[str, str]]:
    """Return the columns that are named with a table that is read, by the table's own name."""
    for scope in traverse_scope(tree):
        for column in scope.columns:
            source = _source_of(scope, column.table) if column.table else None
            if isinstance(source, exp.Table):
                yield source.name.lower(), column.name.lower()


def _source_of(scope: Scope | None, name: str) -> object:
    """Return what a name stands for in a scope or in those around it."""
    while scope is not None:
        for known, source in scope.sources.items():
            if known.lower() == name.lower():
                return source
        scope = scope.parent
    return None


def _unqualifiable(tree: exp.Expr) -> set[str]:
    """Return the names that are written where no column can be and that the SQL does not define: USING and EXCEPT."""
    names = {name.name for join in tree.find_all(exp.Join) for name in join.args.get("using") or ()}
    names |= {name.name for star in tree.find_all(exp.Star) for name in star.args.get("except_") or ()}
    return {name.lower() for name in names} - _defined(tree)


def _mentioned(tree: exp.Expr) -> set[str]:
    """Return every name of a column that the SQL does not define, where nothing better is known."""
    return {column.parts[0].name.lower() for column in tree.find_all(exp.Column)} - _defined(tree)


def _defined(tree: exp.Expr) -> set[str]:
    names = {alias.alias for alias in tree.find_all(exp.Alias)}
    for alias in tree.find_all(exp.TableAlias):
        names |= {alias.name, *(column.name for column in alias.columns)}
    return {name.lower() for name in names}


def _takes_out(tree: exp.Expr) -> bool:
    """Return whether a query makes columns of the fields of a value, which only types tell."""
    for scope in traverse_scope(tree):
        query = scope.expression
        for one in query.selects if isinstance(query, exp.Query) else ():
            name = one.find(exp.Identifier) if isinstance(one, exp.Column | exp.Dot) and one.is_star else None
            if name is not None and _source_of(scope, name.name) is None:
                return True
    return tree.find(exp.Inline) is not None


def _unresolved(tree: exp.Expr, inner: frozenset[str]) -> Iterator[str]:
    """Return the columns that belong to no relation; of a value inside of another, the outermost.

    What a query takes out of a value are columns of those that read it.
    """
    for scope in traverse_scope(tree):
        # ORDER BY behind UNION, EXCEPT and INTERSECT has the columns of the result.
        results = scope.expression.named_selects if isinstance(scope.expression, exp.SetOperation) else ()
        named = {name.lower() for name in results}
        if any(not one.alias_column_names for one in scope.expression.args.get("laterals") or ()):
            named |= _OF_A_VIEW
        if not all(isinstance(source, exp.Table) for source in scope.sources.values()):
            named |= inner
        for column in scope.columns:
            name = column.parts[0].name.lower()
            if name not in named and (not column.table or _source_of(scope, column.table) is None):
                yield name
