"""Says whether a target can be divided as was asked; it asks nobody anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.registry import kinds_with_partitions
from ematix_flow.declare.partitions import TEXTS
from ematix_flow.errors import UnsupportedError

if TYPE_CHECKING:
    from ematix_flow.connect.base import Database, FoundTable
    from ematix_flow.declare.pipeline import TargetDeclaration
    from ematix_flow.plan.sql.ddl import WantedTable

COARSER = (
    "add a column that holds it, for example its day, and partition by that; Iceberg takes transforms as they are."
)


def check_partitions(target: TargetDeclaration, wanted: WantedTable, database: Database) -> None:
    """Refuse partitions that the target's system cannot make."""
    if database.partition_transforms is None:
        if target.partition_by:
            message = f"partition_by= divides lake tables, and the target is {database.kind}"
            raise UnsupportedError(message, hint=f"leave it out, or write to: {', '.join(kinds_with_partitions())}.")
        return
    for partition in wanted.partitions:
        if partition.transform and partition.transform not in database.partition_transforms:
            message = f"{database.kind} divides tables by columns only, not by {partition}"
            raise UnsupportedError(message, hint=COARSER, origin=target.table.origin)


def never_empty(wanted: WantedTable, found: FoundTable | None, database: Database) -> tuple[str, ...]:
    """Give the columns of text whose empty values the target would keep as NULL because it divides the table by them."""
    if "empty_partition" not in database.capabilities.cannot_store:
        return ()
    divided = {partition.column for partition in wanted.partitions} | set(found.partitions if found is not None else ())
    texts = (column.column for column in wanted.columns if column.column.type.kind in TEXTS)
    return tuple(column.name for column in texts if column.name in divided)


def partition_notes(target: TargetDeclaration, database: Database) -> tuple[str, ...]:
    """Give what is to be said where a table class names partitions and its target has none."""
    if database.partition_transforms is not None or not target.table.partition_columns:
        return ()
    return (f"__partition_columns__ of {target.table.qualified_name} divide lake tables; {database.kind} has none",)
