"""A plan shows how its table is divided, and refuses what the target's system cannot divide by."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.base.columns import ColumnSchema, TableSchema
from ematix_flow.connect.iceberg.partitions import described_partitions
from ematix_flow.connect.registry import target_of
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.pipeline import TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text, TimestampTZ
from ematix_flow.errors import DriftError, UnsupportedError
from ematix_flow.plan.batch import Inspection
from ematix_flow.plan.existing_tables import ensure_step
from ematix_flow.plan.partitions import partition_notes
from ematix_flow.plan.sql.ddl import create_table_sql, table_definition

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.connect.base.database import Database

HOSTILE = "a`b, 'c' (d)"
TABLE = Table(
    "shop",
    "things",
    (
        Column(BigInt(), primary_key=True, name="id"),
        Column(Text(), name="city"),
        Column(TimestampTZ(), name="at"),
        Column(Text(), name=HOSTILE),
    ),
)


def system(kind: str, folder: Path) -> Database:
    fields: dict[str, Any] = {"kind": kind, "path": str(folder)}
    if kind == "object_store_local":
        fields["format"] = "parquet"
    if kind == "iceberg":
        fields = {"kind": kind, "catalog_type": "hadoop", "warehouse": str(folder)}
    return target_of(connection_from_fields("lake", fields), ("shop", "things"))


def definition(database: Database, *texts: str, mode: str = "append") -> Any:
    return table_definition(TABLE, mode, database, texts)


def test_names_are_quoted_in_the_statement(tmp_path: Path) -> None:
    iceberg = system("iceberg", tmp_path)
    sql = create_table_sql(
        definition(iceberg, "days(at)", f"bucket(16, {HOSTILE})", "truncate(4, city)", "id"), iceberg
    )
    assert sql.endswith(" PARTITIONED BY (days(`at`), bucket(16, `a``b, 'c' (d)`), truncate(4, `city`), `id`)")
    delta = system("delta_local", tmp_path)
    assert " PARTITIONED BY (`city`, `a``b, 'c' (d)`) " in create_table_sql(definition(delta, "city", HOSTILE), delta)


def test_scd2_tables_can_be_divided_by_what_scd2_adds(tmp_path: Path) -> None:
    delta = system("delta_local", tmp_path)
    assert [str(part) for part in definition(delta, "is_current", mode="scd2").partitions] == ["is_current"]
    with pytest.raises(KeyError, match="is_current"):
        definition(delta, "is_current")


def test_delta_takes_columns_only(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"by columns only, not by days\(at\)") as refused:
        definition(system("delta_local", tmp_path), "days(at)")
    refused.match("add a column")
    with pytest.raises(UnsupportedError, match="by columns only"):
        table_definition(replace(TABLE, partition_columns=("days(at)",)), "append", system("delta_local", tmp_path))


@pytest.mark.parametrize("kind", ["duckdb", "sqlite", "object_store_local"])
def test_systems_without_partitions_name_those_that_have_them(kind: str, tmp_path: Path) -> None:
    database = system(kind, tmp_path / "x")
    with pytest.raises(UnsupportedError, match=f"the target is {kind}") as refused:
        definition(database, "city")
    refused.match("delta_local, delta_s3, iceberg")
    divided = TargetDeclaration(replace(TABLE, partition_columns=("city",)), write("append"))
    assert table_definition(divided.table, "append", database).partitions == ()
    assert partition_notes(divided, database) == (
        f"__partition_columns__ of shop.things divide lake tables; {kind} has none",
    )


@pytest.mark.parametrize("policy", ["error", "evolve", "warn"])
def test_a_table_that_is_divided_otherwise_is_never_divided_anew(policy: str, tmp_path: Path) -> None:
    iceberg = system("iceberg", tmp_path)
    declared = definition(iceberg, "days(at)", "city")
    columns = (ColumnSchema(c.column.name, iceberg.ddl_type(c.column.type), c.nullable) for c in declared.columns)
    table = TableSchema(tuple(columns), (), (), partitions=("hours(at)",))

    def step(existing: TableSchema) -> Any:
        inspection = Inspection("", "", "", target_known=True, existing=existing)
        return ensure_step(TABLE, write("append", on_drift=policy), declared, iceberg, inspection)

    assert step(replace(table, partitions=("days(at)", "city"))).differences == ()
    if policy != "warn":
        with pytest.raises(DriftError, match=r"partitions are \(hours\(at\)\), declared \(days\(at\), city\)"):
            step(table)
        return
    assert step(table).statements == ()
    assert len(step(table).differences) == 1


def test_a_declaration_without_partitions_takes_those_that_are_there(tmp_path: Path) -> None:
    iceberg = system("iceberg", tmp_path)
    declared = definition(iceberg)
    columns = (ColumnSchema(c.column.name, iceberg.ddl_type(c.column.type), c.nullable) for c in declared.columns)
    inspection = Inspection(
        "", "", "", target_known=True, existing=TableSchema(tuple(columns), (), (), partitions=("city",))
    )
    assert ensure_step(TABLE, write("append"), declared, iceberg, inspection).differences == ()


@pytest.mark.parametrize(
    ("described", "meant"),
    [
        ([], ()),
        ([("# Partition Information", "", ""), ("# col_name", "data_type", ""), ("`x y`", "string", "")], ("x y",)),
        (
            [
                ("# Partitioning", "string", None),
                ("", "", ""),
                ("# Partitioning", "", ""),
                ("Part 0", "days(at)", ""),
                ("Part 1", "truncate(4, `we``ird (col)`)", ""),
                ("Part 2", "d", ""),
                ("Part 3", "zorder(a, b)", ""),
            ],
            ("days(at)", "truncate(4, we`ird (col))", "d", "zorder(a, b)"),
        ),
    ],
)
def test_what_spark_says_of_a_table_is_read(described: list[tuple[Any, ...]], meant: tuple[str, ...]) -> None:
    assert described_partitions([("id", "bigint", None), *described]) == meant
