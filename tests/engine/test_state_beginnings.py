"""Where the messages of a time begin, by what a state has read and by what its source says."""

from __future__ import annotations

from typing import Any

import pytest

from ematix_flow.connect.base.combined_source import CombinedSource
from ematix_flow.connect.base.stream_source import EARLIEST
from ematix_flow.connect.kafka.source import KafkaSource
from ematix_flow.connect.kinesis.source import KinesisSource
from ematix_flow.declare.connection.brokers import KafkaConnection, KinesisConnection
from ematix_flow.engine.stream.state.manifest import TimeIndex
from ematix_flow.engine.stream.state.replay import beginning_of
from ematix_flow.plan.stream.state import instant_of


class Line:
    """A source whose messages have been sent at their numbers, in microseconds; the oldest one is given."""

    def __init__(self, oldest: int) -> None:
        self.oldest = oldest

    def start(self, where: str) -> dict[str, int]:
        times = {instant_of(number).isoformat(): number for number in range(100)}
        return {"at": self.oldest if where == EARLIEST else max(self.oldest, times[where])}

    def distance(self, begin: dict[str, int], end: dict[str, int]) -> int:
        return max(0, end["at"] - begin["at"])

    def earlier(self, one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
        return min(one, other, key=lambda position: position["at"])

    def ahead(self, *_: Any) -> None:
        """Find every message that is requested."""

    def gone_before(self, position: dict[str, int]) -> str | None:
        return "gone" if position["at"] == self.oldest > 0 else None


READ = TimeIndex(None, [(40, {"at": 30}), (60, {"at": 50})])
"""A state that began with message 30."""


@pytest.mark.parametrize(
    ("oldest", "time", "unread", "expected"),
    [
        (0, 20, True, (20, None)),
        (0, 20, False, (30, None)),
        (0, 35, True, (30, None)),
        (0, 55, True, (50, None)),
        (25, 20, True, (25, "gone")),
        (30, 20, True, (30, None)),
    ],
)
def test_messages_before_those_of_a_state_are_found_where_they_count(
    oldest: int, time: int, expected: tuple[int, str | None], *, unread: bool
) -> None:
    source: Any = Line(oldest)
    result = beginning_of(source, time, {"at": 70}, READ, unread=unread)
    assert (result.position["at"], result.gone) == expected


def offsets(first: int, second: int) -> dict[str, Any]:
    """Return a position in a topic of two partitions."""
    return {"topic": "events", "id": "x", "offsets": {"0": first, "1": second}}


class Sent(KafkaSource):
    """A topic of two partitions, whose messages of the second one were sent before their time."""

    def start(self, where: str) -> dict[str, Any]:
        return offsets(0, 0) if where == EARLIEST else offsets(10, 50)

    def ahead(self, position: dict[str, Any], *_: Any) -> dict[str, Any]:
        return position

    def gone_before(self, position: dict[str, Any]) -> str | None:
        """Find every message."""


def test_no_message_is_left_out_that_the_state_has_read() -> None:
    source = Sent(KafkaConnection("feed", bootstrap_servers="nowhere"), "events")
    index = TimeIndex(None, [(40, offsets(30, 40))])
    result = beginning_of(source, 20, offsets(70, 70), index, unread=True)
    assert (result.position, result.gone) == (offsets(10, 40), None)


def test_of_two_positions_the_earlier_one_counts_in_every_line() -> None:
    kafka = KafkaSource(KafkaConnection("feed", bootstrap_servers="nowhere"), "events")
    one, other = offsets(3, 4), offsets(2, 5)
    assert kafka.earlier(one, other) == kafka.earlier(other, one) == offsets(2, 4)
    # A partition of which one position does not know is read from its beginning.
    assert kafka.earlier(one, one | {"offsets": {"0": 9}}) == one | {"offsets": {"0": 3}}
    kinesis = KinesisSource(KinesisConnection("k", stream_name="clicks", region="x"), "")
    since = {"made": "m", "shards": {"a": "@900", "b": "@1000", "c": "@1000", "d": "@7"}}
    begun = {"made": "m", "shards": {"a": "@1000", "b": "@900", "c": "4958"}}
    expected = {"made": "m", "shards": {"a": "@900", "b": "@900", "c": "@1000"}}
    assert kinesis.earlier(since, begun) == kinesis.earlier(begun, since) == expected
    both = CombinedSource([kafka, kinesis])
    pair = [
        {"sources": {"kafka:events": at, "kinesis:clicks": shards}} for at, shards in ((one, since), (other, begun))
    ]
    assert both.earlier(*pair) == {"sources": {"kafka:events": offsets(2, 4), "kinesis:clicks": expected}}
