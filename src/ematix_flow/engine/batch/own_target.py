"""Loads whose query reads their own target before it exists: inspection and the note about it; creates nothing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.files.source import Files
from ematix_flow.connect.lake.table import LakeTable
from ematix_flow.errors import FlowError
from ematix_flow.plan.sql.ddl import table_definition
from ematix_flow.plan.sql.user.own_target import Naming, without_rows_of

if TYPE_CHECKING:
    from ematix_flow.connect.base.source import SqlSource
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.connect.lake.source import LakeSource
    from ematix_flow.declare.pipeline.pipeline import TargetDeclaration
    from ematix_flow.engine.batch.inspect import Opener
    from ematix_flow.engine.batch.planner import LoadRequest
    from ematix_flow.engine.batch.source import OpenSource


def over_missing_target(load_request: LoadRequest, opened: Opener) -> LoadRequest | None:
    """Return the load with no rows in place of its own target; None when it does not read it or the table is there."""
    source = load_request.source
    sql = empty_target_in(source.value.sql, source, load_request.target, load_request.database)
    if sql is None or not _is_missing(load_request, opened):
        return None
    return replace(load_request, source=replace(source, value=replace(source.value, sql=sql)))


def empty_target_in(sql: str, source: OpenSource, target: TargetDeclaration, database: TargetSystem) -> str | None:
    """Return a query of a source with no rows in place of a target; None when it does not read it."""
    naming = _naming(source, database) if sql else None
    if naming is None:
        return None
    return without_rows_of(table_definition(target.table, target.write.mode, database), sql, database, naming)


def _naming(source: OpenSource, database: TargetSystem) -> Naming | None:
    """Return how the query of a source names tables of the target's connection; None where it cannot."""
    same = [side.alias.casefold() for side in source.sides if _is_same(side.system, database)]
    if same:
        return Naming(source.dialect, frozenset(same))
    return Naming(source.dialect) if _is_same(source.database or source.lake, database) else None


def _is_same(system: SqlSource | Files | LakeSource | None, database: TargetSystem) -> bool:
    return system is not None and not isinstance(system, Files) and system.identity() == database.identity()


def note_about(load_request: LoadRequest) -> str:
    """Return the note for people about such a load."""
    name = load_request.target.table.qualified_name
    return f"the query reads {name}, which does not exist yet: a run creates it before it reads, so it has no rows"


def _is_missing(load_request: LoadRequest, opened: Opener) -> bool:
    """Return whether the table is surely missing; planning raises for a database that does not answer."""
    database = load_request.database
    failures: Any = (FlowError, *database.failures)
    with suppress(failures):
        if not database.exists():
            return isinstance(database, LakeTable)  # a folder comes to be with its first table
        session = opened(database)
        try:
            table_name = database.table_name(load_request.target.table.schema, load_request.target.table.name)
            return database.find_table(session, table_name) is None
        finally:
            session.close()
    return False
