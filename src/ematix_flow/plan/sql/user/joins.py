"""A user's query over tables of several connections: which tables it reads, and what of each; it reads nothing itself.

Tables are written `alias.table` or `alias.schema.table`, where the alias stands for a connection. What a query does not mention
of a table is left out, and Spark would refuse a query that lacks a column: so a doubt means to read more, never less.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from sqlglot import exp

from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.errors import PlanError, did_you_mean
from ematix_flow.plan.sql.render import text
from ematix_flow.plan.sql.user.query import check_query, read_query

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ematix_flow.plan.steps import TableRead

DIALECT = "spark"


@dataclass(frozen=True, slots=True)
class JoinedTable:
    """A table where a query reads it; one that is read twice is there twice."""

    number: int
    alias: str
    """The alias of the connection."""
    schema: str
    name: str
    full_name: str
    """How the query calls it."""
    called: str
    """The name of its rows in the query, in lower case."""
    travels: bool = False
    """The query names the version of it that is read."""
    sampled: bool = False
    renamed: bool = False
    """The query gives its columns other names, by their order."""


@dataclass(frozen=True, slots=True)
class JoinedQuery:
    """The query with the tables it reads, and what it mentions."""

    text: str
    tree: exp.Query
    tables: tuple[JoinedTable, ...]
    loose: frozenset[str] = frozenset()
    """Names that may be columns of any table, in lower case."""
    named: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Columns by the name of the rows that they are written with."""
    whole: frozenset[int] = frozenset()
    """Tables of which every column is requested."""

    def needed(self, table: JoinedTable, columns: Sequence[str]) -> tuple[str, ...]:
        """Return those columns of a table that the query may need; rows without any still have to be counted."""
        if table.number in self.whole:
            return tuple(columns)
        mentioned = self.loose | self.named.get(table.called, frozenset())
        return tuple(name for name in columns if name.lower() in mentioned) or tuple(columns[:1])

    def over(self, relations: Mapping[int, Sequence[str]], versions: Mapping[int, str] | None = None) -> str:
        """Return the query as it was written, with each table by the name that Spark knows it by, at a version where one is given."""
        edits = []
        for table, node in zip(self.tables, nodes_of(self.tree), strict=True):
            named = ".".join(backticked(part) for part in relations[table.number])
            version = (versions or {}).get(table.number, "")
            if version and not table.travels:
                named += f" VERSION AS OF {version if version.isdecimal() else text(version)}"
            called = "" if node.alias else f" AS {backticked(table.name)}"
            edits.append((*_text_range(node.parts), named + called))
            if not node.alias:
                edits += [(*text_range, backticked(table.name)) for text_range in _qualifiers(self.tree, node)]
        return _edited(self.text, edits)


def _text_range(parts: Sequence[exp.Expr]) -> tuple[int, int]:
    """Return where the parts of a name begin and end in the text of a query."""
    return parts[0].meta["start"], parts[-1].meta["end"] + 1


def _qualifiers(tree: exp.Query, node: exp.Table) -> Iterator[tuple[int, int]]:
    """Return where columns are written behind the whole name of a table."""
    written = [part.name.lower() for part in node.parts]
    for column in tree.find_all(exp.Column):
        parts = list(column.parts)
        if len(parts) > len(written) and [part.name.lower() for part in parts[: len(written)]] == written:
            yield _text_range(parts[: len(written)])


def _edited(whole: str, edits: Iterable[tuple[int, int, str]]) -> str:
    for start, end, put in sorted(set(edits), reverse=True):
        whole = whole[:start] + put + whole[end:]
    return whole


def read_joined(sql: str, aliases: Iterable[str]) -> JoinedQuery:
    """Return the query, or refuse one that reads a table of no connection."""
    tree = read_query(sql, DIALECT, DIALECT)
    known = {alias.lower(): alias for alias in aliases}
    tables = tuple(_table(number, node, known) for number, node in enumerate(nodes_of(tree)))
    if not tables:
        hint = f"write one as {next(iter(known.values()))}.table."
        raise PlanError("the query reads no table of a connection", hint=hint)
    loose, named = _mentioned(tree)
    return JoinedQuery(sql, tree, tables, loose, named, frozenset(_whole(tree, tables)))


def check_joined(sql: str, tables: Sequence[TableRead]) -> None:
    """Refuse a query over columns that its tables do not have; none is refused where those of one are unknown."""
    query = read_joined(sql, {table.alias for table in tables})
    if len(tables) == len(query.tables) and all(table.columns for table in tables):
        names = {one.number: (f"_flow_{one.number}",) for one in query.tables}
        known = {f"_flow_{n}": dict.fromkeys(table.columns, "") for n, table in enumerate(tables)}
        check_query(query.over(names), known)


def nodes_of(tree: exp.Query) -> list[exp.Table]:
    """Return the tables of a query that are not its own steps, in the order of the tree."""
    steps = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    tables = (node for node in tree.find_all(exp.Table) if isinstance(node.this, exp.Identifier | exp.Dot))
    return [node for node in tables if node.db or node.name.lower() not in steps]


def _table(number: int, node: exp.Table, known: Mapping[str, str]) -> JoinedTable:
    parts = [part.name for part in node.parts]
    full_name = ".".join(parts)
    if not 2 <= len(parts) <= 3:  # noqa: PLR2004 - alias.table or alias.schema.table
        message = f"the query reads {full_name!r}, which is not alias.table or alias.schema.table"
        raise PlanError(message, hint=f"begin it with one of connections=: {', '.join(known.values())}.")
    alias = known.get(parts[0].lower())
    if alias is None:
        message = f"the query reads {full_name!r}, and connections= has no {parts[0]!r}"
        raise PlanError(message, hint=did_you_mean(parts[0], list(known.values())))
    schema, name = ("", parts[1]) if len(parts) == 2 else (parts[1], parts[2])  # noqa: PLR2004 - as above
    sampled = bool(node.args.get("sample")) or isinstance(node.parent, exp.TableSample)
    travels = bool(node.args.get("version"))
    if (sampled or travels) and not node.alias:
        message = f"the query reads {full_name!r} with {'a sample' if sampled else 'a version'} and gives it no name"
        raise PlanError(message, hint=f"write AS {name} behind it.")
    called, renamed = (node.alias or name).lower(), bool(node.alias_column_names)
    return JoinedTable(number, alias, schema, name, full_name, called, travels, sampled, renamed)


def _mentioned(tree: exp.Query) -> tuple[frozenset[str], dict[str, frozenset[str]]]:
    """Return the names in a query that may be columns: by themselves, and behind the name of rows."""
    loose: set[str] = set()
    named: defaultdict[str, set[str]] = defaultdict(set)
    for column in tree.find_all(exp.Column):
        parts = [part.name.lower() for part in column.parts]
        # Every name but the last may be a column with fields.
        loose.update(parts[:-1] or parts)
        for one, other in pairwise(parts):
            named[one].add(other)
    ours = (exp.Column, exp.Table, exp.TableAlias)
    for identifier in tree.find_all(exp.Identifier, exp.Var):
        if not isinstance(identifier.parent, ours) and not (
            isinstance(identifier.parent, exp.Alias) and identifier.arg_key == "alias"
        ):
            loose.add(identifier.name.lower())
    return frozenset(loose), {name: frozenset(columns) for name, columns in named.items()}


def _whole(tree: exp.Query, tables: Sequence[JoinedTable]) -> Iterator[int]:
    """Return the tables whose columns all count: behind a star, and where their number itself has a meaning."""
    nodes = nodes_of(tree)
    joins = any(str(join.args.get("method") or "").upper() == "NATURAL" for join in tree.find_all(exp.Join))
    if joins or tree.find(exp.Pivot):
        yield from range(len(tables))
        return
    yield from (table.number for table in tables if table.renamed)
    for star in tree.find_all(exp.Star):
        holder = star.parent
        if isinstance(holder, exp.Count):
            continue
        select = star.find_ancestor(exp.Select)
        called = holder.table.lower() if isinstance(holder, exp.Column) else ""
        for table, node in zip(tables, nodes, strict=True):
            near = select is None or node.find_ancestor(exp.Select) is select
            if (called and table.called == called) or (not called and near):
                yield table.number
