"""Where the columns of a load come from, read off its plan; what the SQL does not show is left out, never guessed."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import lineage
from sqlglot.optimizer import build_scope
from sqlglot.optimizer.qualify import qualify

from ematix_flow.events import ColumnOrigin, Dataset, LoadFacts
from ematix_flow.plan.columns import SOURCE_VIEW

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlglot.lineage import Node

    from ematix_flow.plan.steps import Read, TableRead, TargetPlan


@dataclass(frozen=True, slots=True)
class DatasetLocation:
    """A system that data lives in."""

    kind: str
    dialect: str
    info: Mapping[str, object]
    """Host, port and database, or the folder, as systems show them."""


@dataclass(frozen=True, slots=True)
class DatasetLocations:
    """Where the tables of a query are: all in one location, or each in that of the first part of its name."""

    one: DatasetLocation | None
    sides: Mapping[str, DatasetLocation]

    @property
    def dialect(self) -> str:
        """Return the dialect of the query."""
        return "spark" if self.one is None else self.one.dialect

    def dataset(self, table: exp.Table) -> Dataset:
        """Return the table of a query by its name in the world."""
        if self.one is not None:
            return _table(self.one, table.db, table.name)
        alias, schema = (table.catalog, table.db) if table.catalog else (table.db, "")
        location = {name.lower(): side for name, side in self.sides.items()}[alias.lower()]
        if _is_folder(location):
            return _folder(location, _joined(schema, table.name))
        return _table(location, schema, table.name)


def facts_of(
    plan: TargetPlan,
    target: DatasetLocation,
    source: DatasetLocation | None,
    sides: Mapping[str, DatasetLocation] = MappingProxyType({}),
) -> LoadFacts:
    """Return what a load reads and writes; without `source` and `sides` its rows come from memory or are unknown.

    `sides` are the locations of a query over several connections, by their aliases in it.
    """
    table_name = plan.commit.load.target
    output = (
        _folder(target, plan.commit.load.folder)
        if _is_folder(target)
        else _table(target, table_name.schema, table_name.name)
    )
    columns = tuple((column.name, column.type.kind) for column in plan.commit.load.columns)
    if source is None and not sides:
        return LoadFacts((), output, columns, {})
    locations = DatasetLocations(source, sides)
    try:
        return LoadFacts(
            _inputs(plan, locations), output, columns, _origins([name for name, _ in columns], plan, locations)
        )
    except SqlglotError:
        # SQL that a database understands and the parser does not.
        return LoadFacts((), output, columns, {})


def _inputs(plan: TargetPlan, source: DatasetLocations) -> tuple[Dataset, ...]:
    read = plan.read
    if not read.sql and source.one is not None:
        return (_whole(read, source.one),)
    tree = _parse_query(read.sql, source.dialect)
    own = {cte.alias for cte in tree.find_all(exp.CTE)} | {SOURCE_VIEW}
    tables = [table for table in tree.find_all(exp.Table) if table.db or table.name not in own]
    return tuple(sorted({source.dataset(table) for table in tables}, key=lambda one: (one.namespace, one.name)))


def _whole(read: Read, source: DatasetLocation) -> Dataset:
    """Return a source that is read without SQL."""
    if read.span is not None:
        return Dataset(read.connection, read.span.source)
    return _folder(source, read.path)


def _origins(names: list[str], plan: TargetPlan, source: DatasetLocations) -> dict[str, tuple[ColumnOrigin, ...]]:
    shape, below = plan.shape, plan.read.sql
    tree: exp.Expr = _parse_query(shape.sql, shape.dialect)
    if below and below != shape.sql:
        tree = exp.expand(tree, {SOURCE_VIEW: _parse_query(below, source.dialect)}, dialect=shape.dialect)
    schema = _schema(tree, plan)
    known = qualify(tree, dialect=shape.dialect, schema=schema, validate_qualify_columns=False, identify=False)
    scope, by_column = build_scope(known), {}
    for name in names:
        column = exp.column(exp.to_identifier(name, quoted=True))
        try:
            node = lineage(column, known, schema, scope=scope, dialect=shape.dialect, copy=False)
        except SqlglotError:
            continue
        by_column[name] = tuple(dict.fromkeys(_leaves(node, plan, source)))
    return {name: origins for name, origins in by_column.items() if origins}


def _parse_query(sql: str, dialect: str) -> exp.Query:
    tree = sqlglot.parse_one(sql, dialect=dialect)
    if not isinstance(tree, exp.Query):
        raise SqlglotError("no query")
    return tree


def _schema(tree: exp.Expr, plan: TargetPlan) -> dict[str, object]:
    """Return the columns of the only table that is read, so that `*` has a meaning; with several it has none here."""
    own = {cte.alias for cte in tree.find_all(exp.CTE)}
    tables = {table.sql(): table for table in tree.find_all(exp.Table) if table.db or table.name not in own}
    if plan.read.tables:
        return _schema_of(plan.read.tables)
    if len(tables) != 1:
        return {}
    (table,) = tables.values()
    schema: dict[str, object] = {column.name: "text" for column in plan.read.columns}
    for part in reversed([part.name for part in table.parts]):
        schema = {part: schema}
    return schema


def _schema_of(tables: Sequence[TableRead]) -> dict[str, object]:
    """Return the columns of tables of several connections, where all are known and named with as many words."""
    depths = {len(table.name.split(".")) for table in tables}
    schema: dict[str, Any] = {}
    for table in tables if len(depths) == 1 and all(table.columns for table in tables) else ():
        *above, name = table.name.split(".")
        inner = schema
        for part in above:
            inner = inner.setdefault(part, {})
        inner[name] = dict.fromkeys(table.columns, "text")
    return schema


def _leaves(node: Node, plan: TargetPlan, source: DatasetLocations, *, changed: bool = False) -> Iterator[ColumnOrigin]:
    """Return the columns of tables at the ends of a column's way; those of which no table is known are left out."""
    if not node.downstream:
        if isinstance(node.expression, exp.Table):
            table = node.expression
            whole = table.name == SOURCE_VIEW and not table.db
            if whole and source.one is None:
                return
            dataset = _whole(plan.read, source.one) if whole and source.one else source.dataset(table)
            yield ColumnOrigin(dataset, exp.to_column(node.name).name, changed)
        return
    value = node.expression.unalias()
    changed = changed or not isinstance(value, exp.Column | exp.Star)
    for below in node.downstream:
        yield from _leaves(below, plan, source, changed=changed)


def _table(location: DatasetLocation, schema: str, name: str) -> Dataset:
    """Return the name of a table under the rules of OpenLineage."""
    info = location.info
    match location.kind:
        case "postgres":
            return Dataset(f"postgres://{info['host']}:{info['port']}", f"{info['dbname']}.{schema or 'public'}.{name}")
        case "mysql":
            return Dataset(f"mysql://{info['host']}:{info['port']}", f"{schema or info['dbname']}.{name}")
        case "sqlite" | "duckdb":
            return Dataset(f"{location.kind}://{info['dbname']}", f"{schema or 'main'}.{name}")
        case "delta_local" | "delta_s3" if schema == "delta":
            return _located(name)
    return _located(str(info.get("dbname", "")), schema, name)


def _is_folder(location: DatasetLocation) -> bool:
    return location.kind.startswith("object_store")


def _folder(location: DatasetLocation, path: str) -> Dataset:
    return _located(str(location.info.get("dbname", "")), path)


def _located(address: str, *parts: str) -> Dataset:
    """Return the name of something at an address: a bucket and a key, or a path of this machine."""
    scheme, is_url, remainder = address.partition("://")
    if is_url and scheme != "file":
        bucket, _, prefix = remainder.partition("/")
        # Spark's own name for buckets of S3 is used by no other tool.
        return Dataset(f"{'s3' if scheme == 's3a' else scheme}://{bucket}", _joined(prefix, *parts))
    path = remainder if is_url else address
    return Dataset("file", ("/" if path.startswith("/") else "") + _joined(path, *parts))


def _joined(*parts: str) -> str:
    return "/".join(part.strip("/") for part in parts if part.strip("/"))
