"""Frames on PostgreSQL through handles: reads and writes, spelled with `ematix_flow.df` and with the methods of connections."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pandas as pd
import polars as pl
import pytest

import ematix_flow.df
from ematix_flow import _core, connect

pytestmark = pytest.mark.service

TYPES = """
SELECT column_name, data_type FROM information_schema.columns
WHERE table_schema = 'shop' AND table_name = 'typed' ORDER BY ordinal_position
"""


def test_a_frame_becomes_a_table_of_its_types(postgres_url: str) -> None:
    conn = _core.connect(postgres_url)
    frame = pl.DataFrame(
        {
            "tiny": pl.Series([1], dtype=pl.Int8),
            "medium": pl.Series([1], dtype=pl.Int32),
            "big": pl.Series([1], dtype=pl.Int64),
            "huge": pl.Series([2**64 - 1], dtype=pl.UInt64),
            "real": pl.Series([0.5], dtype=pl.Float32),
            "wide": [0.5],
            "flag": [True],
            "text": ["a"],
            "day": [date(2024, 1, 2)],
            "at": [datetime(2024, 1, 2, 3)],  # noqa: DTZ001 - without a zone
        }
    )
    try:
        result = conn.write_df(frame, "shop.typed", mode="append")
        assert (result["rows_inserted"], result["path"]) == (1, "inferred_append")
        types = [row[1] for row in conn.query(TYPES)["rows"]]
        assert types == ["smallint", "integer", "bigint", "numeric", "real", "double precision", "boolean", "text", "date",
                         "timestamp with time zone"]  # fmt: skip
        read = conn.read_df("SELECT huge, at FROM shop.typed")
        assert read.rows() == [(2**64 - 1, datetime(2024, 1, 2, 3, tzinfo=UTC))]
        assert isinstance(conn.read_df("SELECT 1 AS one", prefer="pandas"), pd.DataFrame)
    finally:
        conn.close()


def test_a_merge_without_a_declared_table_leaves_no_table_behind(postgres_url: str) -> None:
    connect("warehouse", url=postgres_url)
    conn = connect("warehouse")
    try:
        for name in ("ada", "eve"):
            conn.write_df(pd.DataFrame({"id": [1], "name": [name]}), "shop.people", mode="merge", keys=["id"])
        assert ematix_flow.df.to_polars(conn.to_polars("SELECT * FROM shop.people")).rows() == [(1, "eve")]
        tables = conn.query("SELECT table_name FROM information_schema.tables WHERE table_schema = 'shop'")["rows"]
        assert tables == [["people"]]
    finally:
        conn.close()
