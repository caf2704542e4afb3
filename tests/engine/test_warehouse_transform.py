"""The SQL between two warehouses means the same wherever it is run."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from ematix_flow.engine.warehouse.transform import transformed

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_day_of_an_instant_is_the_one_in_utc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    rows = pa.table({"placed_at": [datetime(2026, 1, 2, 1, tzinfo=UTC)]})
    sql = "SELECT placed_at::DATE AS day, placed_at::VARCHAR AS text, placed_at FROM source"
    with ExitStack() as resources:
        (row,) = transformed(rows.to_reader(), sql, resources).read_all().to_pylist()
    assert row == {
        "day": date(2026, 1, 2),
        "text": "2026-01-02 01:00:00+00",
        "placed_at": datetime(2026, 1, 2, 1, tzinfo=UTC),
    }
