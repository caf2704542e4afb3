"""Streams into lake tables that nobody declared: text stays text in every batch, whatever it looks like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, SmallInt
from ematix_flow.engine.api.sync import sync
from ematix_flow.errors import CommitError, PlanError
from tests.engine.existing_tables import Existing
from tests.lakes.growing import Growing
from tests.lakes.targets import TargetTable, lake_fields

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("lakes")]

UUID = "2b0e3c1a-7c55-4f0e-9c5e-00000000abcd"
TEXTS = (
    ({"id": 1, "word": UUID}, {"id": 2, "word": "plain"}),
    ({"id": 3, "word": "tea"}, {"id": 4, "word": None}),
    ({"id": 5, "word": UUID.upper()}, {"id": 6, "word": ""}, {"id": 7, "word": '{"a": 1}'}),
)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["delta_local", "iceberg"])
@pytest.mark.parametrize("on_error", ["fail", "dlq"])
def test_every_batch_of_text_is_loaded(kind: str, on_error: str, tmp_path: Path) -> None:
    lake = Existing(tmp_path, lake_fields(kind, tmp_path), "shop")
    for rows in TEXTS:
        lake.put(*rows)
        assert lake.drain(transform_on_error=on_error) == len(rows)
    expected = [(str(row["id"]), row["word"]) for rows in TEXTS for row in rows]
    assert TargetTable(lake.fields, tmp_path, {}).rows("id, word") == expected


def test_a_table_of_small_integers_and_lists_takes_what_it_can(tmp_path: Path) -> None:
    lake = Existing(tmp_path, lake_fields("delta_local", tmp_path), "shop")
    target = TargetTable(lake.fields, tmp_path, {})
    Growing(lake.fields, tmp_path).create("id BIGINT, small TINYINT, tags ARRAY<STRING>")
    lake.put({"id": 1, "small": 127})
    assert lake.drain() == 1
    assert target.rows("id, small, tags") == [("1", "127", None)]
    lake.put({"id": 2, "small": 5, "tags": ["a"]})
    with pytest.raises(PlanError, match=r"column 'tags' of shop.things is ARRAY, which loads cannot write"):
        lake.drain()


@pytest.mark.deep
def test_a_declared_table_of_whole_numbers_stands_over_bytes(tmp_path: Path) -> None:
    lake = Existing(tmp_path, lake_fields("delta_local", tmp_path), "shop")
    Growing(lake.fields, tmp_path).create(
        "id BIGINT, small TINYINT, _loaded_at TIMESTAMP NOT NULL, _batch_id STRING NOT NULL"
    )
    columns = (Column(BigInt(), name="id"), Column(SmallInt(), name="small"))
    table = Table("shop", "things", columns)

    def load(*rows: dict[str, int | None]) -> dict[str, Any]:
        return sync(target=table, source=list(rows), target_connection=lake.connection, mode="append")

    assert load({"id": 1, "small": 127}, {"id": 2, "small": None})["rows_inserted"] == 2
    with pytest.raises(CommitError, match="`small` due to an overflow"):
        load({"id": 3, "small": 300})
    assert TargetTable(lake.fields, tmp_path, {}).rows("id, small") == [("1", "127"), ("2", None)]
