"""Queries over several connections: inspects columns in each system, and passes the rows that it needs to Spark."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.session import Split
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.files.source import ALL_FILES, Files
from ematix_flow.connect.lake.source import LakeSource
from ematix_flow.engine.batch.target import engine_on
from ematix_flow.engine.frames.columns import frame_columns
from ematix_flow.engine.spark.parallelism import most_connected
from ematix_flow.errors import PlanError, RunError, did_you_mean
from ematix_flow.plan.sql.render import native_name
from ematix_flow.plan.sql.user.join_bounds import bound_sql, bounding_column
from ematix_flow.plan.sql.user.join_conditions import conditions_of
from ematix_flow.plan.sql.user.joins import read_joined
from ematix_flow.plan.sql.user.pushdown import conditions_sql, relation_sql
from ematix_flow.plan.steps import TableRead
from ematix_flow.plan.timezones import zoned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.source import SqlSource
    from ematix_flow.connect.files.source import FileSet
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.plan.sql.user.joins import JoinedQuery, JoinedTable
    from ematix_flow.plan.sql.user.pushdown import Condition

    System = SqlSource | Files | LakeSource
    Opener = Callable[[Catalog], Session]


@dataclass(frozen=True, slots=True)
class Side:
    """A connection of a query over several, under its name in the query."""

    alias: str
    name: str
    system: System


@dataclass(frozen=True, slots=True)
class InspectedTable:
    """A table as its system describes it, and what is read of it."""

    table: JoinedTable
    side: Side
    columns: tuple[SourceColumn, ...] = ()
    """Those that are read; none where Spark knows them better."""
    described: tuple[SourceColumn, ...] = ()
    """All that a database describes."""
    where: tuple[str, ...] = ()
    """The conditions that a database evaluates."""
    sql: str = ""
    """The query that a database runs."""
    files: FileSet | None = None

    @property
    def read(self) -> TableRead:
        """Return the table as a part of the plan."""
        names = tuple(column.name for column in self.columns)
        return TableRead(self.table.full_name, self.side.alias, self.side.name, self.side.system.kind, names, self.sql)


@dataclass(frozen=True, slots=True)
class InspectedJoin:
    """A query over several connections with all that is read for it."""

    query: JoinedQuery
    tables: tuple[InspectedTable, ...]
    versions: Mapping[int, str] = field(default_factory=dict)
    """Of lake tables the version that this load reads, however long it takes."""

    @property
    def reads(self) -> tuple[TableRead, ...]:
        """Return what is read, for the plan."""
        return tuple(one.read for one in self.tables)


def inspect_join(sql: str, sides: Sequence[Side], opened: Opener) -> InspectedJoin:
    """Inspect the tables in every system; Spark is not queried, so columns of lake tables stay unknown."""
    by_alias = {side.alias: side for side in sides}
    query = read_joined(sql, by_alias)
    described = [_described(table, by_alias[table.alias], opened) for table in query.tables]
    known = {one.table.number: one.columns for one in described if one.columns}
    conditions = conditions_of(query, known)
    return InspectedJoin(query, tuple(_reduced(query, one, conditions.get(one.table.number, ())) for one in described))


def _described(table: JoinedTable, side: Side, opened: Opener) -> InspectedTable:
    if isinstance(side.system, LakeSource):
        return InspectedTable(table, side)
    if table.travels:
        message = f"the query reads {table.full_name!r} at a version, and {side.system.kind} keeps none"
        raise PlanError(message, hint="tables of lakes have versions.")
    if isinstance(side.system, Files):
        files = _files(table, side.system)
        return InspectedTable(table, side, files.columns, files=files)
    return InspectedTable(table, side, _columns(table, side.system, opened))


def _files(table: JoinedTable, system: Files) -> FileSet:
    """Return the files that a table means: a folder, a path or a glob in backticks, or all of them as `source`."""
    path = "/".join(part for part in (table.schema, table.name) if part)
    known = system.folders()
    if path.lower() == ALL_FILES and path not in known:
        return system.file_set("", {})
    if not table.schema and table.name not in known:
        path = next((name for name in known if name.lower() == table.name.lower()), path)
    try:
        return system.file_set(path, {})
    except RunError as error:
        if not next(iter(system.list_files(path)), None):
            raise PlanError(
                f"the query reads {table.full_name!r}: {error.what}", hint=did_you_mean(path, known)
            ) from None
        raise


def _columns(table: JoinedTable, database: SqlSource, opened: Opener) -> tuple[SourceColumn, ...]:
    if not database.exists():
        message = f"the query reads {table.full_name!r}, and the database {database.info()['dbname']} does not exist"
        raise RunError(message)
    table_name = database.table_name(table.schema, table.name)
    session = _opened_for(table, database, opened)
    try:
        return database.describe(session, f"SELECT * FROM {native_name(table_name, database.dialect)}")
    except database.errors as error:
        error_text = safe_text(error)
    finally:
        session.close()
    raise _unknown(table, database, opened, error_text)


def _opened_for(table: JoinedTable, database: SqlSource, opened: Opener) -> Session:
    try:
        return opened(database)
    except database.errors as error:
        message = f"the query reads {table.full_name!r}, and its database cannot be queried: {safe_text(error)}"
        raise RunError(message) from None


def _unknown(table: JoinedTable, database: SqlSource, opened: Opener, error_text: str) -> PlanError:
    """Return the error for a table that a database does not describe, with the nearest one that it has."""
    session = _opened_for(table, database, opened)
    try:
        tables = [(schema, name) for schema, name in database.table_names(session)]
    except database.errors:
        tables = []
    finally:
        session.close()
    requested = table.full_name.partition(".")[2]
    names = [f"{schema}.{name}" if table.schema and schema else name for schema, name in tables]
    message = f"the query reads {table.full_name!r}, which {database.kind} cannot give: {error_text.splitlines()[0]}"
    return PlanError(message, hint=did_you_mean(requested, [f"{table.alias}.{name}" for name in names]))


def _reduced(query: JoinedQuery, inspected: InspectedTable, conditions: Sequence[Condition]) -> InspectedTable:
    """Return the table with only what the query needs of it."""
    needed = query.needed(inspected.table, [column.name for column in inspected.columns])
    columns = tuple(column for column in inspected.columns if column.name in needed)
    system = inspected.side.system
    if isinstance(system, LakeSource):
        return inspected
    if isinstance(system, Files):
        assert inspected.files is not None  # noqa: S101 - described above
        return replace(inspected, columns=columns, files=replace(inspected.files, columns=columns))
    # Times without a zone become instants, which the query compares with other constants than the database would.
    sendable = [c for c in inspected.columns if system.timezone is None or c.family != "timestamp"]
    where = conditions_sql(conditions, sendable, system.dialect)
    return _with_query(replace(inspected, columns=columns, described=inspected.columns, where=where), system)


def _with_query(inspected: InspectedTable, database: SqlSource) -> InspectedTable:
    """Return the table with the query that its database runs."""
    table_name, names = (
        database.table_name(inspected.table.schema, inspected.table.name),
        {column.name for column in inspected.columns},
    )
    columns = [column for column in inspected.described if column.name in names]
    sql = relation_sql(table_name, [column.name for column in columns], inspected.where, database.dialect)
    sql, zoned_columns = zoned(sql, columns, database.timezone, database.dialect)
    return replace(inspected, columns=zoned_columns, sql=sql)


def bounded_join(
    join: InspectedJoin, pipeline: Pipeline, target: TargetDeclaration, lo: str | None, hi: str | None
) -> InspectedJoin:
    """Return the join with the range of an incremental load in the query of the database that decides it, if any."""
    known = {one.table.number: one.described for one in join.tables if one.described}
    match = bounding_column(join.query, known, pipeline, target)
    if match is None:
        return join
    table, column = match
    inspected = join.tables[table.number]
    database = inspected.side.system
    if isinstance(database, Files | LakeSource) or (database.timezone is not None and column.family == "timestamp"):
        return join
    condition = bound_sql(column, lo, hi, target.write.lookback, database.dialect)
    if not condition:
        return join
    narrowed = _with_query(replace(inspected, where=(*inspected.where, condition)), database)
    return replace(join, tables=tuple(narrowed if one is inspected else one for one in join.tables))


def with_versions(join: InspectedJoin, spark: Callable[..., Any]) -> InspectedJoin:
    """Return the join with the newest versions of its lake tables; later ones are not seen by this load."""
    versions: dict[int, str] = {}
    prepared: set[str] = set()
    for one in join.tables:
        lake = one.side.system
        if not isinstance(lake, LakeSource):
            continue
        engine = engine_on(spark)
        if one.side.alias not in prepared:
            lake.prepare(engine)
            prepared.add(one.side.alias)
        if not one.table.travels:
            try:
                versions[one.table.number] = lake.newest(engine, one.table.schema, one.table.name)
            except RunError as error:
                raise PlanError(f"the query reads {one.table.full_name!r}: {error.what}", hint=error.hint) from None
    return replace(join, versions=versions)


def joined_columns(spark: Any, join: InspectedJoin) -> tuple[SourceColumn, ...]:
    """Return the columns that the query returns; nothing is read, and nothing stays in the session."""
    with ExitStack() as resources:
        return frame_columns(joined_frame(spark, join, resources, reads=False))


def joined_frame(spark: Any, join: InspectedJoin, resources: ExitStack, slots: int = 1, *, reads: bool = True) -> Any:
    """Return the rows of the query; `resources` holds what they need until read. Without `reads` only inspect it."""
    from ematix_flow.run.read import frames, relations

    names: dict[int, tuple[str, ...]] = {}
    views: dict[str, Any] = {}
    opened = _database_frames(spark, join, resources, slots) if reads else {}
    for one in join.tables:
        system, number = one.side.system, one.table.number
        if isinstance(system, LakeSource):
            names[number] = system.relation(one.table.schema, one.table.name)
            continue
        view = f"_flow_{uuid.uuid4().hex[:16]}"
        names[number] = (view,)
        if isinstance(system, Files):
            assert one.files is not None  # noqa: S101 - described when it was looked at
            views[view] = frames.file_frame(spark, one.files, strict=True)
        elif reads:
            views[view] = opened[number]
        else:
            views[view] = relations.database_relation(spark, system, (Split(one.sql),), one.columns)
    return frames.view_frame(spark, join.query.over(names, join.versions), views, resources)


def _database_frames(spark: Any, join: InspectedJoin, resources: ExitStack, slots: int) -> dict[int, Any]:
    """Return the frames of databases by the numbers of their tables; all queries of one connection are sent at once."""
    sides: dict[str, list[InspectedTable]] = {}
    for one in join.tables:
        if one.sql:
            sides.setdefault(one.side.alias, []).append(one)
    return {number: frame for tables in sides.values() for number, frame in _side(spark, tables, resources, slots)}


def _side(spark: Any, tables: Sequence[InspectedTable], resources: ExitStack, slots: int) -> Iterator[tuple[int, Any]]:
    from ematix_flow.run.read.relations import database_relation

    database = tables[0].side.system
    assert not isinstance(database, Files | LakeSource)  # noqa: S101 - these are asked no SQL
    session = database.session()
    resources.callback(session.close)
    at_once = most_connected(database, session)
    reads = database.open_reads(session, [one.sql for one in tables], slots)
    for one, opened in zip(tables, reads, strict=True):
        if opened.resources is not None:
            resources.enter_context(opened.resources)
        yield one.table.number, database_relation(spark, database, opened.splits, one.columns, at_once)
