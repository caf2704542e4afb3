"""Which program of SQL a mode is, by the kind of its target; the programs themselves are in `plan.sql`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.plan.sql.modes import append_truncate_merge as modes
from ematix_flow.plan.sql.modes import files as file_modes
from ematix_flow.plan.sql.modes import lake as lake_modes
from ematix_flow.plan.sql.modes import scd2

if TYPE_CHECKING:
    from ematix_flow.connect.base import Database
    from ematix_flow.declare.pipeline.write import Write
    from ematix_flow.plan.sql.program import Load, Program


def program_of(load: Load, write: Write, database: Database) -> Program:
    """Return the statements that a commit makes of staged rows."""
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
        case _:
            return scd2.by_event_time(load) if load.event else scd2.by_load_time(load)


def _lake_program(load: Load, write: Write, database: Database) -> Program:
    match write.mode:
        case "append":
            return lake_modes.append(load)
        case "truncate":
            return lake_modes.truncate(load)
        case "merge":
            return lake_modes.merge(load, tells=database.capabilities.tells_merges)
        case _:
            return lake_modes.scd2_by_event_time(load) if load.event else lake_modes.scd2_by_load_time(load)
