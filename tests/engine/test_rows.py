"""Rows of dicts become a table that has every name and every value of them, or an error that names the column."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import JSONB, BigInt
from ematix_flow.engine.api.rows import arrow_rows, inferred_rows
from ematix_flow.errors import RunError

ID = UUID(int=7)
TABLE = Table("shop", "orders", (Column(BigInt(), name="id", primary_key=True), Column(JSONB(), name="doc")))


def test_a_name_that_the_first_row_lacks_is_a_column() -> None:
    rows = inferred_rows([{"id": 1}, {"id": 2, "note": "late"}, {"note": None, "at": ID}])
    assert rows.to_pylist() == [
        {"id": 1, "note": None, "at": None},
        {"id": 2, "note": "late", "at": None},
        {"id": None, "note": None, "at": str(ID)},
    ]


def test_rows_whose_values_show_no_type_are_refused_by_the_name_of_their_column() -> None:
    with pytest.raises(RunError, match="several types as 'n'"):
        inferred_rows([{"id": 1, "n": 1}, {"id": 2, "n": "x"}])


@pytest.mark.parametrize(
    ("value", "document"),
    [
        ({"a": 1, "n": None}, '{"a": 1, "n": null}'),
        ({"d": Decimal("1.50"), "t": (Decimal("0.10"),)}, '{"d":1.50,"t":[0.10]}'),
        ([float("nan"), 0.5], '["NaN",0.5]'),
        ({"at": datetime(2026, 1, 2, tzinfo=UTC), "id": ID}, f'{{"at":"2026-01-02T00:00:00.000000Z","id":"{ID}"}}'),
        ({"raw": b"x"}, '{"raw":"eA=="}'),
    ],
)
def test_documents_are_json_whatever_is_in_them(value: Any, document: str) -> None:
    assert arrow_rows([{"id": 1, "doc": value}], TABLE).to_pylist() == [{"id": 1, "doc": document}]
