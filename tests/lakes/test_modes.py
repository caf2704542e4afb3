"""Lake tables give, load by load and row by row, what DuckDB gives, whatever the mode."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.lakes.lanes import START, Lane, lake_fields

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.lakes.lanes import Row

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("lakes")]

LAKES = ("delta_local", "iceberg")

MODES: dict[str, dict[str, Any]] = {
    "append": {"mode": "append", "incremental_column": "id"},
    "truncate": {"mode": "truncate"},
    "merge": {"mode": "merge", "compare_columns": ["word", "share"]},
    "merge_hard": {"mode": "merge", "handle_deletes": "hard"},
    "scd2_load": {"mode": "scd2", "handle_deletes": "soft"},
    "scd2_event": {
        "mode": "scd2",
        "event_timestamp_column": "at",
        "compare_columns": ["word", "share"],
        "ttl": timedelta(days=3),
    },
}


def rows_of(mode: str, number: int) -> list[Row]:
    """Give the rows of a load: keys come and go, values repeat, events come out of order."""
    random = Random(f"{mode}{number}")  # noqa: S311 - the same in every run
    keys = random.sample(range(8), 5) if mode != "append" else range(number * 5 + 1, number * 5 + 6)
    rows: list[Row] = []
    for key in keys:
        word = random.choice(["a", "b", "Zoë 🦉", "", None])
        share = random.choice([0.5, -0.0, 1e300, float("nan"), None])
        at = START + timedelta(days=-random.randrange(6), hours=random.randrange(20))
        rows.append((key, word, share, random.choice(["12.5", "-" + "9" * 20 + ".0001", None]), at))
    return rows


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", LAKES)
def test_every_mode_gives_what_duckdb_gives(kind: str, mode: str, tmp_path: Path) -> None:
    lake, twin = lanes(kind, mode, tmp_path)
    # Loads of Delta take thrice as long; its simple modes show themselves in two.
    for number in range(2 if kind == "delta_local" and not mode.startswith("scd2") else 3):
        rows = rows_of(mode, number)
        assert told(lake.load(rows)) == told(twin.load(rows)), number
        assert lake.rows() == twin.rows(), number


def lanes(kind: str, mode: str, folder: Path) -> tuple[Lane, Lane]:
    """Give a lake and its twin."""
    for name in ("one", "two"):
        (folder / name).mkdir()
    lake = Lane(lake_fields(kind, folder / "one"), folder / "one", MODES[mode])
    twin = Lane({"kind": "duckdb", "path": str(folder / "two" / "t.duckdb")}, folder / "two", MODES[mode])
    return lake, twin


def told(result: dict[str, Any]) -> dict[str, Any]:
    """Give what a run says of its rows, and its id, which is the same for the same load."""
    return {name: value for name, value in result.items() if name.startswith("rows_") or name == "run_id"}


def numbers(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """Give the first column."""
    return [row[0] for row in rows]
