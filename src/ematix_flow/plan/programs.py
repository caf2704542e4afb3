"""Which program of SQL a mode is, by the kind of its target; the programs themselves are in `plan.sql`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.plan.sql.modes import append_truncate_merge as modes
from ematix_flow.plan.sql.modes import changes, lake_changes, scd2
from ematix_flow.plan.sql.modes import files as file_modes
from ematix_flow.plan.sql.modes import lake as lake_modes

if TYPE_CHECKING:
    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.connect.base.columns import TableSchema
    from ematix_flow.declare.pipeline.write import Write
    from ematix_flow.plan.sql.program import Load, Program
    from ematix_flow.plan.steps import EnsureTable


def program_of(load: Load, write: Write, database: Catalog) -> Program:
    """Return the statements that a commit makes of staged rows, also for a load some of whose rows are rejected."""
    program = _program(load, write, database)
    if not load.delete_absent:
        return program
    return replace(program, retaining=_program(replace(load, delete_absent=False), write, database))


def _program(load: Load, write: Write, database: Catalog) -> Program:
    if load.dialect == lake_modes.DIALECT:
        return _lake_program(load, write, database)
    if not database.capabilities.answers_sql:
        return file_modes.truncate(load) if write.mode == "truncate" else file_modes.append(load)
    match write.mode:
        case "append":
            return modes.append(load)
        case "truncate":
            return modes.truncate(load)
        case "merge":
            return modes.merge(load)
        case "cdc":
            return changes.apply_changes(load)
        case _:
            return scd2.by_event_time(load) if load.event else scd2.by_load_time(load)


def _lake_program(load: Load, write: Write, database: Catalog) -> Program:
    match write.mode:
        case "append":
            return lake_modes.append(load)
        case "truncate":
            return lake_modes.truncate(load)
        case "merge":
            return lake_modes.merge(load, tells=database.capabilities.reports_merges)
        case "cdc":
            return lake_changes.apply_changes(load)
        case _:
            return lake_modes.scd2_by_event_time(load) if load.event else lake_modes.scd2_by_load_time(load)


def lake_append(
    database: Catalog, ensure: EnsureTable, existing: TableSchema | None, load: Load, required: tuple[str, ...]
) -> Program:
    """Return the program of an append into a lake: files are added, or rows are written again, with the reason."""
    reason = _rewritten_always(database, ensure) or _rewritten_now(database, ensure, existing, load, required)
    if reason or ensure.exists is None:
        return lake_modes.append(load, reason)
    return lake_modes.add_files(load)


def _rewritten_always(database: Catalog, ensure: EnsureTable) -> str:
    """Return why a target never takes staged files as they are; empty where it may."""
    if not database.capabilities.adds_files:
        return database.capabilities.rewrites or "tables of this kind take no files"
    return "the table has partitions" if ensure.wanted.partitions else ""


def _rewritten_now(
    database: Catalog, ensure: EnsureTable, existing: TableSchema | None, load: Load, required: tuple[str, ...]
) -> str:
    """Return why the table that exists cannot take staged files as they are; empty where it can."""
    if existing is None:
        return ""
    if existing.partitions:
        return "the table has partitions"
    if not existing.takes_files:
        return "the table requires more of its writers than plain files"
    known = {column.name: column for column in existing.columns}
    types = {definition.column.name: database.ddl_type(definition.column.type) for definition in ensure.wanted.columns}
    needed = {name for name, column in known.items() if not column.nullable}
    if ensure.statements or any(name not in known or known[name].type != kind for name, kind in types.items()):
        return "the table's columns are not the declared ones"
    return "" if needed <= {*required, *load.stamps} else "the table needs values that the load may lack"
