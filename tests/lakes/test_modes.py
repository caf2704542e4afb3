"""Lake tables give, load by load and row by row, what PostgreSQL gives, whatever the options of merge and scd2."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.depth import deep, quick_or_deep
from tests.lakes.targets import START, TargetTable, lake_fields, row_counts

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lakes.targets import Row

pytestmark = [
    pytest.mark.spark,
    pytest.mark.service,
    pytest.mark.xdist_group("lakes"),
    pytest.mark.usefixtures("quick_lakes"),
]

LOADS, ROWS = 4, 40
NUMBERS = count(1)
"""Of tables: a history may be tried twice."""
EXAMPLES = quick_or_deep(1, 20)
"""How many histories are tried; each is several loads of many rows, so one shows a lot."""

histories = settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES == 1,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

OPTIONS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "merge": (
        {"mode": "merge"},
        [
            {"compare_columns": ("word", "share")},
            {"update_columns": ("word", "amount")},
            {"handle_deletes": "hard"},
            {},
        ],
    ),
    "scd2": (
        {"mode": "scd2"},
        [
            {"handle_deletes": "soft"},
            {"ttl": timedelta(hours=1, minutes=30)},
            {"compare_columns": ("word", "at")},
            {},
        ],
    ),
    "events": (
        {"mode": "scd2", "event_timestamp_column": "at", "compare_columns": ("word", "share")},
        [
            {"handle_deletes": "soft"},
            {"ttl": timedelta(days=3)},
            {"late_horizon": timedelta(hours=1)},
            {},
        ],
    ),
}
"""What a mode has in every load, and what it may have besides; a load may have two of these."""


def rows_of(random: Random, mode: str) -> list[Row]:
    """Return the rows of a load: keys come and go, values repeat, events tie and come out of order."""
    keys = random.choices(range(12), k=ROWS) if mode == "events" else random.sample(range(50), ROWS)
    rows: list[Row] = []
    for key in keys:
        text = random.choice(["a", "B", "Zoë 🦉", "", None])
        share = random.choice([0.5, -0.0, 1e300, float("nan"), None])
        at = START + timedelta(days=-random.randrange(6), hours=random.randrange(3))
        rows.append((key, text, share, random.choice(["12.5", "-" + "9" * 20 + ".0001", None]), at))
    # The same row twice is folded, or is an event that is known already.
    return [*rows, *random.sample(rows, 5)]


def options_of(random: Random, mode: str) -> dict[str, Any]:
    """Return the options of a load."""
    always, more = OPTIONS[mode]
    one, other = random.sample(more, 2)
    return always | one | other


@pytest.mark.parametrize("mode", [deep("merge"), deep("scd2"), deep("events")])
@histories
@given(seed=st.integers(0, 2**32))
def test_lakes_give_what_postgres_gives(mode: str, tmp_path: Path, postgres_url: str, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - the same for the same seed
    reference, *lakes = new_targets(tmp_path, postgres_url, f"{mode}{next(NUMBERS)}")
    for number in range(LOADS):
        options, rows = options_of(random, mode), rows_of(random, mode)
        for target in (reference, *lakes):
            target.options = options
        expected, stored = row_counts(reference.load(rows)), reference.rows()
        for lake in lakes:
            assert row_counts(lake.load(rows)) == expected, (lake.fields, number, options)
            assert lake.rows() == stored, (lake.fields, number, options)


def new_targets(folder: Path, url: str, name: str) -> list[TargetTable]:
    """Return a new table in PostgreSQL and one in every lake; a lake of its own for each would be a catalog that stays."""
    fields: list[dict[str, Any]] = [{"kind": "postgres", "url": url}]
    fields += [lake_fields(kind, folder / kind) for kind in ("delta_local", "iceberg")]
    targets = []
    for number, one in enumerate(fields):
        own = folder / name / str(number)
        own.mkdir(parents=True)
        target = TargetTable(one, own, {})
        target.table = replace(target.table, name=name)
        targets.append(target)
    return targets
