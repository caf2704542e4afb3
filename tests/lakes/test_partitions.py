"""Lake tables that are divided: every mode gives what DuckDB gives, and a table divided otherwise is left as it is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine.review.preview import preview_pipeline
from ematix_flow.errors import BadRowsError, DriftError
from tests.depth import deep
from tests.lakes.targets import COLUMNS, START, TargetTable, lake_fields

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lakes.targets import Row

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("lakes")]

PARTS = {
    "delta_local": ("word",),
    "iceberg": ("days(at)", "bucket(4, id)", "truncate(1, word)"),
}
MODES: dict[str, dict[str, Any]] = {
    "merge": {"mode": "merge", "handle_deletes": "hard"},
    "scd2": {"mode": "scd2", "event_timestamp_column": "at", "compare_columns": ["word", "share"]},
}
DAY = timedelta(days=1)
LOADS: tuple[list[Row], ...] = (
    [(1, "a", 0.5, "1", START), (2, "Zoë 🦉", None, None, START), (3, "x/y=z %", 1.0, "3", START - DAY)],
    # A row moves from one partition to another, one goes, one stays, one comes without a value.
    [(1, "b", 0.5, "1", START + DAY), (3, "x/y=z %", 1.0, "3", START), (4, None, 2.0, "4", START + DAY)],
)


@pytest.mark.parametrize("mode", ["merge", deep("scd2")])
@pytest.mark.parametrize("kind", ["delta_local", deep("iceberg")])
def test_every_mode_gives_what_duckdb_gives(kind: str, mode: str, tmp_path: Path) -> None:
    lake, reference = lake_and_reference(kind, MODES[mode], tmp_path)
    for rows in LOADS:
        assert row_counts(lake.load(rows)) == row_counts(reference.load(rows))
        assert lake.rows() == reference.rows()
    assert f"divided   by {', '.join(PARTS[kind])}" in preview_pipeline(lake.pipeline()).text()
    shown = [path.name for path in lake.folder.rglob("*=*") if path.is_dir()]
    assert any(name.startswith(("word=", "at_day=")) for name in shown)


@pytest.mark.deep
@pytest.mark.parametrize("kind", PARTS)
def test_a_table_that_is_divided_otherwise_is_left_as_it_is(kind: str, tmp_path: Path) -> None:
    target = TargetTable(lake_fields(kind, tmp_path), tmp_path, {"mode": "append"})
    target.table = replace(target.table, partition_columns=PARTS[kind])
    target.load(LOADS[0])
    target.table = replace(target.table, partition_columns=("id",))
    for policy in ("error", "evolve"):
        target.options = {"mode": "append", "on_drift": policy}
        with pytest.raises(DriftError) as refused:
            target.load(LOADS[1])
        refused.match(r"partitions are \((word|days\(at\), bucket\(4, id\), truncate\(1, word\))\), declared \(id\)")
    target.options = {"mode": "append", "on_drift": "warn"}
    with pytest.warns(UserWarning, match="partitions are"):
        target.load(LOADS[1])
    assert len(target.rows("id")) == 6
    assert target.database().partitions() == PARTS[kind]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "message"), [("", "empty"), deep("__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__")]
)
def test_delta_refuses_a_text_where_it_would_become_null(tmp_path: Path, text: str, message: str) -> None:
    target = TargetTable(lake_fields("delta_local", tmp_path), tmp_path, {"mode": "append"})
    target.table = replace(target.table, partition_columns=("word",))
    with pytest.raises(BadRowsError, match=f"word: is {message}"):
        target.load([(1, text, None, None, START)])
    target.options = {"mode": "append", "on_bad_row": "reject"}
    result = target.load([(1, text, None, None, START), (2, "b", None, None, START)])
    assert (result["rows_inserted"], result["rows_rejected"]) == (1, 1)


@pytest.mark.deep
def test_hostile_names_divide_an_iceberg_table(tmp_path: Path) -> None:
    target = TargetTable(lake_fields("iceberg", tmp_path), tmp_path, {"mode": "merge"})
    name = "a`b, 'c' (d)"
    columns = (Column(BigInt(), primary_key=True, name="id"), Column(Text(), nullable=True, name=name))
    target.table = Table("shop", "odd", columns, partition_columns=(f"truncate(2, {name})",))
    for text in ("one", "two"):
        target.load([(1, text, None, None, START)], columns=f'id, word AS "{name}"')
    assert target.rows("id") == [("1",)]
    assert target.database().partitions() == (f"truncate(2, {name})",)  # type: ignore[attr-defined]


def lake_and_reference(kind: str, options: dict[str, Any], folder: Path) -> tuple[TargetTable, TargetTable]:
    """Return a divided lake table and the DuckDB table that it must equal."""
    for name in ("one", "two"):
        (folder / name).mkdir()
    table = Table("shop", "things", COLUMNS, partition_columns=PARTS[kind])
    lake = TargetTable(lake_fields(kind, folder / "one"), folder / "one", options, table)
    reference = TargetTable({"kind": "duckdb", "path": str(folder / "two" / "t.duckdb")}, folder / "two", options)
    return lake, reference


def row_counts(result: dict[str, Any]) -> dict[str, Any]:
    """Return what a run says of its rows."""
    return {name: value for name, value in result.items() if name.startswith("rows_")}
