"""Random histories of a table: any order, repetition and splitting of their changes gives the same table, on every system."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ematix_flow import CDC
from ematix_flow.declare.spark_settings import ENGINE_VARIABLE
from tests.contracts.systems import SYSTEMS, parameter
from tests.depth import CHANGE_HISTORIES, quick_or_deep
from tests.streams.feeds import Topic
from tests.streams.mirrors import BEGIN_MS, LAKES, SOFT, THINGS, Mirror, empty_target, event, row

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.connection.registry import Connection
    from tests.services.kafka import KafkaBroker

pytestmark = [pytest.mark.service, pytest.mark.timeout(900), pytest.mark.xdist_group(CHANGE_HISTORIES)]

DATABASES = [parameter(one, *(() if one.kind == "duckdb" else (pytest.mark.deep,))) for one in SYSTEMS]
NEVER = 1000
"""A number that no event has."""


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
        """Return the rows that the changes lead to, one after the other in the order of the log."""
        rows: dict[int, tuple[Any, ...]] = {}
        for one in self.events:
            if one["op"] == "t":
                rows.clear()
            if one["before"] is not None:
                rows.pop(one["before"]["id"], None)
            if one["after"] is not None:
                rows[one["after"]["id"]] = tuple(one["after"].values())
        return sorted(rows.values(), key=str)

    def marked_table(self) -> list[tuple[Any, ...]]:
        """Return the rows that the changes lead to where deleted ones are marked with the number of what deleted them."""
        rows: dict[int, dict[str, Any]] = {}
        for number, one in enumerate(self.events, 1):
            gone = [key for key, item in rows.items() if item["gone_at"] is None] if one["op"] == "t" else []
            if one["before"] is not None and one["before"] != {"id": (one["after"] or {}).get("id")}:
                gone = [one["before"]["id"]]
                rows.setdefault(gone[0], row(gone[0]) | one["before"])
            for key in gone:
                rows[key]["gone_at"] = number
            if one["after"] is not None:
                key = one["after"]["id"]
                rows[key] = rows.get(key, row(key)) | one["after"] | {"gone_at": None}
        return sorted((tuple(one.values()) for one in rows.values()), key=str)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Return a history of few keys: created, updated, deleted, moved to another key, truncated."""
    keys = st.integers(1, 3)
    operations = draw(st.lists(st.tuples(st.sampled_from("ccuuddmt"), keys, keys), min_size=1, max_size=10))
    anew = draw(st.integers(1, 12))
    events = [_event(op, number, key, other, anew) for number, (op, key, other) in enumerate(operations, 1)]
    repeated = draw(st.lists(st.sampled_from(events), max_size=4))
    return History(events, draw(st.permutations([*events, *repeated])), draw(st.integers(1, 6)))


@st.composite
def marked_histories(draw: st.DrawFn) -> History:
    """Return a history of rows that are marked when they are deleted; some changes carry only a part of their row."""
    keys = st.integers(1, 3)
    operations = draw(st.lists(st.tuples(st.sampled_from("ccuuppddfmt"), keys, keys), min_size=1, max_size=10))
    return marked_history(operations, draw(st.integers(0, 10)), draw(st.integers(1, 6)))


def marked_history(operations: list[tuple[str, int, int]], repeated: int, size: int) -> History:
    """Return a history whose messages come in their order; from one of them on they come again."""
    events = [_event(op, number, key, other) for number, (op, key, other) in enumerate(operations, 1)]
    return History(events, [*events, *events[repeated:]], size)


def _event(op: str, number: int, key: int, other: int, anew: int = NEVER) -> dict[str, Any]:
    """Return an event; places in the log say nothing about the order of commits, and from a number on it is another log."""
    if op == "t":
        change = event("t", number)
    elif op == "d":
        change = event("d", number, None, {"id": key})
    elif op == "f":  # as connectors fill in what a log that keeps the key alone does not have
        change = event("d", number, None, row(key, "", 0))
    elif op == "p":
        change = event("u", number, {"id": key, "name": f"n{number}"})
    else:
        before = {"id": other} if op == "m" else None
        change = event("u" if op == "m" else op, number, row(key, f"n{number}", number), before)
    position = 1000 - number
    log = {"epoch": 2, "sequence": f'["{number - anew}","{position}"]'} if number >= anew else {}
    return change | {"source": change["source"] | {"lsn": position, "sequence": f'["{number}","{position}"]'} | log}


@pytest.fixture(
    params=[*DATABASES, *(pytest.param(kind, marks=[pytest.mark.spark, pytest.mark.deep]) for kind in LAKES)]
)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Connection:
    """Return a target of each system."""
    return empty_target(request, request.param, tmp_path)


def how_many(target: Connection) -> int:
    """Return how many histories are tried: each is several batches, which take seconds where Spark has a part in them."""
    in_spark = target.kind in LAKES or os.environ[ENGINE_VARIABLE] == "spark"
    return quick_or_deep(4, 10 if in_spark else 60)


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
    try_histories(how_many(target), kafka_broker, target)


UPDATED_AND_DELETED = marked_history([("c", 1, 1), ("u", 1, 1), ("d", 1, 1)], 3, 2)
CREATED_AND_DELETED = marked_history([("c", 2, 2), ("f", 2, 2), ("d", 3, 3), ("p", 3, 3)], 4, 6)
TRUNCATED_AGAIN = marked_history([("c", 1, 1), ("t", 1, 1), ("u", 2, 2), ("t", 1, 1)], 4, 6)


def numbered(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows with the numbers of the changes that deleted them, whichever way a system writes their times."""
    numbers = []
    for *values, gone_at in rows:
        at = datetime.fromisoformat(gone_at) if isinstance(gone_at, str) else gone_at
        known = None if at is None else at if at.tzinfo else at.replace(tzinfo=UTC)
        numbers.append((*values, None if known is None else round(known.timestamp() * 1000) - BEGIN_MS))
    return sorted(numbers, key=str)


def try_marked(count: int, broker: KafkaBroker, target: Connection) -> None:
    """Let so many histories each make a table of its own whose deleted rows are marked."""

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(marked_histories())
    @example(UPDATED_AND_DELETED)
    @example(CREATED_AND_DELETED)
    @example(TRUNCATED_AGAIN)
    def attempt(history: History) -> None:
        table = replace(SOFT, name=f"things_{uuid.uuid4().hex[:12]}")
        topic = Topic(broker, broker.create_topic(1))
        soft = CDC(delete_mode="soft", soft_delete_column="gone_at")
        mirror = Mirror(topic, target, table, soft, options={"max_rows_per_batch": history.size})
        mirror.apply(history.messages)
        assert numbered(mirror.rows()) == history.marked_table()
        if target.kind == "mysql":
            mirror.drop()

    attempt()


@pytest.mark.deep
def test_however_changes_fall_into_batches_the_same_rows_are_marked(
    kafka_broker: KafkaBroker, target: Connection
) -> None:
    try_marked(how_many(target), kafka_broker, target)
