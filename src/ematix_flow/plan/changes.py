"""How changes of another database are planned: their staged columns, the rules of their table and where versions are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.base.columns import TableName
from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.declare.pipeline.write import CHANGES
from ematix_flow.declare.table.types import BigInt, Text, TimestampTZ
from ematix_flow.plan.columns import CHANGE_COLUMNS
from ematix_flow.plan.keys import check_soft
from ematix_flow.plan.metadata_tables import VERSIONS, points_name
from ematix_flow.plan.sql.program import ChangeRules
from ematix_flow.plan.sql.render import native_column

if TYPE_CHECKING:
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.pipeline.write import Write
    from ematix_flow.declare.table.schema import Table


def change_columns(*, changes: bool) -> tuple[StageColumn, ...]:
    """Return the staged columns of changes besides those of their table."""
    types = (Text(), Text(), TimestampTZ(), BigInt(), Text())
    return tuple(map(StageColumn, CHANGE_COLUMNS, types)) if changes else ()


def change_rules(table: Table, write: Write, database: TargetSystem, scope: str) -> ChangeRules:
    """Return how changes are applied to a table; `scope` names the versions of its keys unless the load does."""
    cdc = write.cdc
    if cdc is not None and cdc.soft_column is not None:
        check_soft(table, cdc.soft_column)
    return ChangeRules(
        scope=write.versions_of or scope,
        versions=database.metadata_table(VERSIONS) if database.capabilities.rolls_back else None,
        soft=(cdc.soft_column or "") if cdc is not None else "",
        inserts=cdc is None or cdc.missing_rows == "insert",
        is_snapshot=write.is_snapshot,
        tolerated_ms=0 if cdc is None else cdc.out_of_order_tolerance_ms,
        required=tuple(column.name for column in table.columns if not column.nullable),
        casts=tuple(
            (c.name, database.existing.typed(c.native, f"s.{native_column(c.name, database.dialect)}"))
            for c in table.columns
            if c.native
        ),
    )


def remembers_keys(write: Write, database: TargetSystem) -> bool:
    """Return whether keys of deleted rows are remembered where folded events are: on lakes."""
    return write.mode == CHANGES and not database.capabilities.rolls_back


def points_table(table: Table, database: TargetSystem) -> TableName:
    """Return where folded events are remembered: a table of ours, or what a lake's metadata names."""
    name = points_name(table)
    return database.metadata_table(name) if database.capabilities.rolls_back else TableName("", f"_flow_{name}")
