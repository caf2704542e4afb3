"""How a target is divided, and whether its system can do so; it queries nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.registry import kinds_with_partitions
from ematix_flow.declare.table.partitions import TEXTS, partitions_of
from ematix_flow.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.connect.base.columns import TableSchema
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.pipeline.pipeline import TargetDeclaration
    from ematix_flow.declare.table.partitions import Partition
    from ematix_flow.declare.table.schema import Table
    from ematix_flow.declare.table.types import ColumnType
    from ematix_flow.plan.sql.ddl import TableDefinition

COARSER = (
    "add a column that holds it, for example its day, and partition by that; Iceberg takes transforms as they are."
)


def declared_partitions(
    table: Table, partition_by: tuple[str, ...], columns: Mapping[str, ColumnType], database: TargetSystem
) -> tuple[Partition, ...]:
    """Return the partitions of a table that has these columns, or refuse what the target's system cannot make.

    Partitions of a table class mean nothing outside of lakes; those of a target have to be possible.
    """
    transforms = database.capabilities.partition_transforms
    if transforms is None:
        if partition_by:
            message = f"partition_by= divides lake tables, and the target is {database.kind}"
            raise UnsupportedError(message, hint=f"leave it out, or write to: {', '.join(kinds_with_partitions())}.")
        return ()
    partitions = partitions_of(partition_by or table.partition_columns, columns, table.qualified_name, table.origin)
    for partition in partitions:
        if partition.transform and partition.transform not in transforms:
            message = f"{database.kind} divides tables by columns only, not by {partition}"
            raise UnsupportedError(message, hint=COARSER, origin=table.origin)
    return partitions


def never_empty(definition: TableDefinition, existing: TableSchema | None, database: Catalog) -> tuple[str, ...]:
    """Return the columns of text whose empty values the target would keep as NULL because it divides the table by them."""
    if "empty_partition" not in database.capabilities.cannot_store:
        return ()
    divided = {partition.column for partition in definition.partitions} | set(
        existing.partitions if existing is not None else ()
    )
    texts = (column.column for column in definition.columns if column.column.type.kind in TEXTS)
    return tuple(column.name for column in texts if column.name in divided)


def partition_notes(target: TargetDeclaration, database: TargetSystem) -> tuple[str, ...]:
    """Return the warning where a table class names partitions and its target has none."""
    if database.capabilities.partition_transforms is not None or not target.table.partition_columns:
        return ()
    return (f"__partition_columns__ of {target.table.qualified_name} divide lake tables; {database.kind} has none",)
