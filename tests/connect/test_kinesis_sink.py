from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.base.sink import AT_LEAST_ONCE, OutgoingMessage, SinkCheckpointKey
from ematix_flow.connect.kinesis import sink as kinesis_sink
from ematix_flow.connect.kinesis.sink import KinesisSink
from ematix_flow.declare.connection.brokers import KinesisConnection
from ematix_flow.errors import RunError
from tests.services.kinesis import create_stream
from tests.services.s3 import KEY, REGION, SECRET

if TYPE_CHECKING:
    from tests.services.s3 import S3Server

pytestmark = pytest.mark.service

CHECKPOINT_KEY = SinkCheckpointKey("jobs", "kafka:orders")
START, END = {"at": 0}, {"at": 1}


def sink_of(server: S3Server, name: str, key: str = KEY) -> KinesisSink:
    connection = KinesisConnection(
        name="events", stream_name=name, region=REGION, endpoint=server.endpoint,
        access_key_id=key, secret_access_key=SECRET,
    )  # fmt: skip
    return KinesisSink(connection, "orders-", AT_LEAST_ONCE)


def records(server: S3Server, name: str) -> list[tuple[str, bytes]]:
    client, results = server.client("kinesis"), []
    for shard in client.list_shards(StreamName=name)["Shards"]:
        start = client.get_shard_iterator(StreamName=name, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON")[
            "ShardIterator"
        ]
        answer: dict[str, Any] = client.get_records(ShardIterator=start, Limit=10_000)
        results += [(record["PartitionKey"], record["Data"]) for record in answer["Records"]]
    return results


def test_messages_arrive_under_their_ids_and_the_position_is_remembered(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinesis_sink, "AT_ONCE", 4)
    name = create_stream(s3_server, 2)
    sink = sink_of(s3_server, name)
    assert sink.take_over(CHECKPOINT_KEY) is None
    sink.write(CHECKPOINT_KEY, START, END, [OutgoingMessage(b"%d" % n, f"id-{n}") for n in range(10)])
    assert sorted(records(s3_server, name)) == [(f"orders-id-{n}", b"%d" % n) for n in range(10)]
    assert sink_of(s3_server, name).take_over(CHECKPOINT_KEY) == END


def test_a_stream_that_is_not_there_is_named(s3_server: S3Server) -> None:
    with pytest.raises(RunError, match=r"'nowhere': Stream nowhere .* not found"):
        sink_of(s3_server, "nowhere").take_over(CHECKPOINT_KEY)


def test_a_wrong_login_is_final(s3_server: S3Server) -> None:
    with pytest.raises(RunError, match=r"InvalidAccessKeyId|403") as error:
        sink_of(s3_server, "nowhere", "AKIAWRONG").take_over(CHECKPOINT_KEY)
    assert not error.value.transient
    assert SECRET not in str(error.value)
