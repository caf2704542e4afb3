"""Who joins a training set, by its size."""

from __future__ import annotations

import pytest

from ematix_flow.plan.training_join import DATABASE, SPARK, JoinSize, by_size

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("spine", "versions", "engine", "reason"),
    [
        (
            1000,
            [10 * MILLION],
            DATABASE,
            "1,000 rows of the spine x 1 view, about 10,000,000 versions: too few for Spark",
        ),
        (MILLION, [MILLION], DATABASE, "too few for Spark"),
        (MILLION, [MILLION] * 3, SPARK, "as many that sorting them is faster than looking them up"),
        (MILLION, [2 * MILLION] * 2, SPARK, "as many that sorting"),
        (MILLION, [2 * MILLION, 2 * MILLION + 1], DATABASE, "most versions would be read for nothing"),
        (0, [MILLION], DATABASE, "0 rows of the spine"),
    ],
)
def test_whoever_is_expected_to_be_done_first_joins(spine: int, versions: list[int], engine: str, reason: str) -> None:
    size = JoinSize(spine, {f"view{number}": rows for number, rows in enumerate(versions)})
    choice = by_size(size)
    assert choice.value == engine
    assert reason in choice.reason
