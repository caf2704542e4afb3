"""Ranges of a stream are read in the types of the range before; where they show others, the table is what it would be anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.run.read import expected_messages as module
from tests.streams.feeds import drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from pathlib import Path

    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group("streams"),
    pytest.mark.usefixtures("spark"),
]

MOST = 2


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note for each range that was read in types of the one before whether they were its own."""
    fitted: list[bool] = []
    read = module.expected_messages

    def noting(*given: Any) -> Any:
        answer = read(*given)
        fitted.append(answer is not None)
        return answer

    monkeypatch.setattr(module, "expected_messages", noting)
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "spark")
    return fitted


def loaded(topic: Topic, warehouse: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a stream that loads two messages at a time."""
    options: dict[str, Any] = {"target_table": ("shop", "t"), "create_table": True, "max_rows_per_batch": MOST}
    drain(topic.stream(duckdb_at(warehouse), transform_sql=sql, transform_on_error="dlq", **options))
    return rows_in(warehouse, "SELECT * FROM shop.t ORDER BY id")


def test_types_that_stay_are_not_inferred_again(topic: Topic, warehouse: Path, noted: list[bool]) -> None:
    topic.write([{"id": number, "price": number / 2} for number in range(4 * MOST)], partition=0)
    rows = loaded(topic, warehouse, "SELECT id, price * 2 AS twice FROM source")
    assert rows == [(number, float(number)) for number in range(4 * MOST)]
    assert noted == [True] * 3


@pytest.mark.deep
def test_a_value_is_what_it_is_alone_whatever_came_before(topic: Topic, warehouse: Path, noted: list[bool]) -> None:
    values: list[Any] = [1, 2, 3, 4.5, 5, 6, "7", 8, 9, None, 11, [12], 13, 14, 15, 16]
    topic.write([{"id": number, "value": value} for number, value in enumerate(values)], partition=0)
    rows = loaded(topic, warehouse, "SELECT id, CAST(value AS STRING) AS text FROM source")
    alone = ["1", "2", "3.0", "4.5", "5", "6", "7", "8", "9", None, "11", "[12]", "13", "14", "15", "16"]
    assert rows == list(enumerate(alone))
    assert noted == [False, False, False, True]


def test_a_message_that_is_no_row_is_a_reject_and_the_others_load(
    topic: Topic, warehouse: Path, noted: list[bool]
) -> None:
    topic.write([{"id": number} for number in range(MOST)], partition=0)
    topic.write([b"{broken", {"id": MOST}, *({"id": number} for number in range(MOST + 1, 3 * MOST + 1))], partition=0)
    rows = loaded(topic, warehouse, "SELECT id FROM source")
    assert rows == [(number,) for number in range(3 * MOST + 1)]
    assert len(rows_in(warehouse, "SELECT reason FROM ematix_flow.rejects")) == 1
    assert noted[0] is False
