"""Tables as DDL, and the difference between a declaration and what a database has; it executes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.declare.pipeline.write import CHANGES
from ematix_flow.declare.table.types import UUID, Boolean, Bytes, Text, TimestampTZ
from ematix_flow.errors import DeclareError, PlanError
from ematix_flow.plan.partitions import declared_partitions
from ematix_flow.plan.sql.render import native_column, native_name

if TYPE_CHECKING:
    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.connect.base.columns import TableName, TableSchema
    from ematix_flow.connect.base.metadata_store import MetadataStore
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.table.partitions import Partition
    from ematix_flow.declare.table.schema import Table

LOADED_AT = StageColumn("_loaded_at", TimestampTZ())
BATCH_ID = StageColumn("_batch_id", UUID())
VALID_FROM = StageColumn("valid_from", TimestampTZ(), in_key=True)
VALID_TO = StageColumn("valid_to", TimestampTZ())
IS_CURRENT = StageColumn("is_current", Boolean())
ROW_HASH = StageColumn("row_hash", Bytes())
VERSION = StageColumn("_cdc_version", Text())
"""Where a lake table has the version of a row's last change; a database has a table for that."""
SCD2_COLUMNS = (VALID_FROM, VALID_TO, IS_CURRENT, ROW_HASH)


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column as the DDL will have it."""

    column: StageColumn
    nullable: bool


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """The table that a load needs in its target: declared columns, framework columns and constraints."""

    place: TableName
    columns: tuple[ColumnDefinition, ...]
    primary_key: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...]
    partitions: tuple[Partition, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which the database's table differs from the declared one."""

    text: str
    cure: str = ""
    """The statement that removes the difference without losing anything, if there is one."""
    harmless: bool = False
    """True when a load works in spite of it: a column more, or a column that allows more."""
    absent: bool = False
    """True when no load works in spite of it: a column that is not there takes no values."""


def table_definition(
    table: Table, mode: str, database: TargetSystem, partition_by: tuple[str, ...] = ()
) -> TableDefinition:
    """Return the table that a load of this mode needs; `partition_by` replaces the table's own partitions."""
    keyed = {*table.primary_key, *(name for group in table.unique_constraints for name in group)}
    declared = [
        ColumnDefinition(StageColumn(c.name, c.type, in_key=c.name in keyed, native=c.native), c.nullable)
        for c in table.columns
    ]
    stamps = [ColumnDefinition(LOADED_AT, nullable=False), ColumnDefinition(BATCH_ID, nullable=False)]
    added = stamps if table.stamped else []
    primary_key, unique = table.primary_key, table.unique_constraints
    if mode == "scd2":
        _refuse_clash(table)
        added = [*(ColumnDefinition(c, nullable=c is VALID_TO) for c in SCD2_COLUMNS), *added]
        primary_key = (*primary_key, VALID_FROM.name) if primary_key else ()
        # A natural key repeats once per version, so the version has to be part of what is unique.
        unique = tuple((*group, VALID_FROM.name) for group in unique)
    if mode == CHANGES and not database.capabilities.rolls_back:
        added = [ColumnDefinition(VERSION, nullable=True), *added]
    _refuse_characters(table, database)
    table_name = database.table_name(table.schema, table.name)
    if not database.capabilities.constraints:
        primary_key, unique = (), ()
    columns = (*declared, *added)
    types = {definition.column.name: definition.column.type for definition in columns}
    partitions = declared_partitions(table, partition_by, types, database)
    return TableDefinition(table_name, columns, primary_key, unique, partitions)


def _refuse_clash(table: Table) -> None:
    clashing = [c.name for c in table.columns if c.name in {column.name for column in SCD2_COLUMNS}]
    if clashing:
        message = f"table {table.qualified_name} declares {', '.join(clashing)}, which scd2 adds itself"
        raise DeclareError(message, hint="rename the column.", origin=table.origin)


def _refuse_characters(table: Table, database: Catalog) -> None:
    """Refuse names with characters that the database keeps in values only."""
    last = database.capabilities.max_character
    named = [("schema", table.schema), ("table", table.name), *(("column", name) for name in table.column_names)]
    for what, name in named:
        character = next((character for character in name if character > last), "")
        if character:
            message = (
                f"the {what} name {name!r} has {character!r}, which {database.kind} takes in values but not in names"
            )
            raise PlanError(message, hint="choose another name; column_map= renames a column.", origin=table.origin)


def create_table_sql(definition: TableDefinition, database: MetadataStore) -> str:
    """Return the CREATE TABLE statement."""
    dialect = database.dialect
    lines = [_column_line(column_definition, database) for column_definition in definition.columns]
    if definition.primary_key:
        lines.append(f"PRIMARY KEY ({_columns(definition.primary_key, dialect)})")
    lines.extend(f"UNIQUE ({_columns(group, dialect)})" for group in definition.unique)
    body = ",\n  ".join(lines)
    return f"CREATE TABLE {native_name(definition.place, dialect)} (\n  {body}\n){database.table_options(definition.partitions)}"


def _column_line(definition: ColumnDefinition, database: MetadataStore) -> str:
    column = definition.column
    name = native_column(column.name, database.dialect)
    # Spark has no word for a column that may be NULL.
    may = "" if database.dialect == "spark" else " NULL"
    null = may if definition.nullable else " NOT NULL"
    check = database.check_clause(column)
    return f"{name} {database.ddl_type(column.type, in_key=column.in_key)}{null}" + (
        f" CHECK ({check})" if check else ""
    )


def _columns(names: tuple[str, ...], dialect: str) -> str:
    return ", ".join(native_column(name, dialect) for name in names)


def differences(definition: TableDefinition, existing: TableSchema, database: Catalog) -> tuple[Difference, ...]:
    """Return every difference, each with its cure if adding or widening removes it."""
    result: list[Difference] = []
    have = {column.name: column for column in existing.columns}
    for column in definition.columns:
        result.extend(_column_differences(column, have, definition, database))
    names = {column.column.name for column in definition.columns}
    result.extend(
        Difference(f"column {c.name!r} is not declared", harmless=True) for c in existing.columns if c.name not in names
    )
    if definition.primary_key != existing.primary_key:
        result.append(
            Difference(
                f"primary key is ({', '.join(existing.primary_key)}), declared ({', '.join(definition.primary_key)})"
            )
        )
    partitions = tuple(map(str, definition.partitions))
    # A declaration without partitions takes those that are there.
    if partitions and partitions != existing.partitions:
        text = f"partitions are ({', '.join(existing.partitions)}), declared ({', '.join(partitions)})"
        result.append(Difference(text))
    unique_groups = [set(other) for other in (*existing.unique, existing.primary_key)]
    lost = [group for group in definition.unique if set(group) not in unique_groups]
    result.extend(Difference(f"unique constraint on ({', '.join(group)}) is missing") for group in lost)
    return tuple(result)


def _column_differences(
    definition: ColumnDefinition, have: dict[str, ColumnSchema], table: TableDefinition, database: Catalog
) -> list[Difference]:
    name = definition.column.name
    type_name = database.ddl_type(definition.column.type, in_key=definition.column.in_key)
    native_table = native_name(table.place, database.dialect)
    native = native_column(name, database.dialect)
    existing = have.get(name)
    if existing is None:
        # An added column can only be nullable: the rows that are there have no value for it.
        add = f"ALTER TABLE {native_table} ADD COLUMN {native} {type_name}"
        return [Difference(f"column {name!r} is missing", add if name not in table.primary_key else "", absent=True)]
    result = []
    known = definition.column.native and definition.column.native in (existing.type, existing.base)
    if not known and not database.same_type(existing.type, type_name):
        cure = ""
        if database.widening(existing.type, type_name):
            cure = database.alter_type_sql(native_table, native, type_name, nullable=existing.nullable)
        result.append(Difference(f"column {name!r} is {existing.type}, declared {type_name}", cure))
    if existing.nullable != definition.nullable:
        is_now, declared = ("nullable", "NOT NULL") if existing.nullable else ("NOT NULL", "nullable")
        result.append(Difference(f"column {name!r} is {is_now}, declared {declared}", harmless=existing.nullable))
    return result


if TYPE_CHECKING:
    from ematix_flow.connect.base.columns import ColumnSchema
