"""Random histories of a table: any order, repetition and splitting of their changes gives the same table, on every system."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contracts.systems import SYSTEMS, parameter
from tests.depth import DEEP, quick_or_deep
from tests.streams.feeds import Topic
from tests.streams.mirrors import LAKES, THINGS, Mirror, empty_target, event, row

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.connection.registry import Connection
    from tests.services.kafka import KafkaBroker

pytestmark = [pytest.mark.service, pytest.mark.timeout(900), pytest.mark.xdist_group("streams")]

DATABASES = [parameter(one, *(() if one.kind == "duckdb" else (pytest.mark.deep,))) for one in SYSTEMS]


@dataclass(frozen=True)
class History:
    """What happened to a table, and how its messages come."""

    events: list[dict[str, Any]]
    """In the order of the log."""
    messages: list[dict[str, Any]]
    """In any order, some of them again."""
    size: int
    """Messages of a batch."""

    def table(self) -> list[tuple[Any, ...]]:
        """Give the rows that the changes lead to, one after the other in the order of the log."""
        rows: dict[int, tuple[Any, ...]] = {}
        for one in self.events:
            if one["op"] == "t":
                rows.clear()
            if one["before"] is not None:
                rows.pop(one["before"]["id"], None)
            if one["after"] is not None:
                rows[one["after"]["id"]] = tuple(one["after"].values())
        return sorted(rows.values(), key=str)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Give a history of few keys: created, updated, deleted, moved to another key, truncated."""
    keys = st.integers(1, 3)
    operations = draw(st.lists(st.tuples(st.sampled_from("ccuuddmt"), keys, keys), min_size=1, max_size=10))
    events = [_event(op, number, key, other) for number, (op, key, other) in enumerate(operations, 1)]
    repeated = draw(st.lists(st.sampled_from(events), max_size=4))
    return History(events, draw(st.permutations([*events, *repeated])), draw(st.integers(1, 6)))


def _event(op: str, number: int, key: int, other: int) -> dict[str, Any]:
    """Give an event; places in the log say nothing about the order of commits."""
    if op == "t":
        made = event("t", number)
    elif op == "d":
        made = event("d", number, None, {"id": key})
    else:
        before = {"id": other} if op == "m" else None
        made = event("u" if op == "m" else op, number, row(key, f"n{number}", number), before)
    place = 1000 - number
    return made | {"source": made["source"] | {"lsn": place, "sequence": f'["{number}","{place}"]'}}


@pytest.fixture(
    params=[*DATABASES, *(pytest.param(kind, marks=[pytest.mark.spark, pytest.mark.deep]) for kind in LAKES)]
)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Connection:
    """Give a target of each system."""
    return empty_target(request, request.param, tmp_path)


def try_histories(count: int, broker: KafkaBroker, target: Connection) -> None:
    """Let so many histories each make a table of its own."""

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(histories())
    def attempt(history: History) -> None:
        table = replace(THINGS, name=f"things_{uuid.uuid4().hex[:12]}")
        topic = Topic(broker, broker.create_topic(1))
        mirror = Mirror(topic, target, table, options={"max_rows_per_batch": history.size})
        mirror.apply(history.messages)
        assert mirror.rows() == history.table()
        if target.kind == "mysql":  # whose schemas outlive the database of a test
            mirror.drop()

    attempt()


def test_any_order_repetition_and_splitting_gives_the_same_table(kafka_broker: KafkaBroker, target: Connection) -> None:
    try_histories(10 if DEEP and target.kind in LAKES else quick_or_deep(4, 60), kafka_broker, target)
