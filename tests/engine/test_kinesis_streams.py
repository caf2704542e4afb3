"""Kinesis streams: shards are read to their ends before their children, positions are kept by the target."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.base.stream_source import EARLIEST, LATEST
from ematix_flow.connect.kinesis.source import _readable, _Shard
from ematix_flow.connect.registry import open_stream
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.stream.stream import Stream, StreamSourceDeclaration, StreamTarget
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.errors import RunError, StreamLostError
from tests.services.kinesis import create_stream
from tests.services.s3 import KEY, REGION, SECRET

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.s3 import S3Server

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("s3")]


FAMILY = {"a": (), "b": (), "left": ("a",), "right": ("a",), "merged": ("left", "b"), "orphan": ("gone",)}
"""Shards with their parents; one of them is so old that it is not listed any more."""


class Flow:
    """A stream of two shards, and a table that takes it."""

    def __init__(self, server: S3Server, folder: Path, shards: int = 2) -> None:
        self.client = server.client("kinesis")
        self.name = create_stream(server, shards)
        fields = {"endpoint": server.endpoint, "region": REGION, "access_key_id": KEY, "secret_access_key": SECRET}
        self.connection = connection_from_fields("k", {"kind": "kinesis", "stream_name": self.name, **fields})
        self.there = connection_from_fields("there", {"kind": "sqlite", "path": str(folder / "there.db")})

    def put(self, *numbers: int) -> None:
        records = [{"Data": json.dumps({"id": n}).encode(), "PartitionKey": f"key {n}"} for n in numbers]
        response = self.client.put_records(StreamName=self.name, Records=records)
        assert response["FailedRecordCount"] == 0

    def run(self, **options: Any) -> dict[str, Any]:
        columns = (
            Column(BigInt(), primary_key=True, name="id"),
            Column(Text(), name="_key"),
            Column(Text(), name="_shard"),
        )
        stream = Stream(
            "events",
            (StreamSourceDeclaration(self.connection, self.name, "k"),),
            (StreamTarget(self.there, write(mode="append"), table=Table("main", "events", columns)),),
            idle_pause_ms=50,
        )
        return run_stream(stream, StreamOptions(**{"available_now": True, **options}))

    def rows(self) -> list[tuple[Any, ...]]:
        import sqlite3

        connection = sqlite3.connect(self.there.path)
        try:
            return connection.execute("SELECT id, _key, _shard FROM events ORDER BY id").fetchall()
        finally:
            connection.close()

    def ids(self) -> list[int]:
        return [row[0] for row in self.rows()]

    def merged(self, records: list[tuple[str, str]]) -> list[tuple[Any, ...]]:
        """Return what a table has after states of one key came, each with the key of its shard."""
        import sqlite3

        for key, state in records:
            data = json.dumps({"id": 1, "state": state}).encode()
            self.client.put_record(StreamName=self.name, Data=data, PartitionKey=key)
        columns = (Column(BigInt(), primary_key=True, name="id"), Column(Text(), name="state"))
        into = StreamTarget(self.there, write(mode="merge"), table=Table("main", "states", columns))
        stream = Stream(
            "states", (StreamSourceDeclaration(self.connection, self.name, "k"),), (into,), idle_pause_ms=50
        )
        run_stream(stream, StreamOptions(available_now=True))
        connection = sqlite3.connect(self.there.path)
        try:
            return connection.execute("SELECT id, state FROM states").fetchall()
        finally:
            connection.close()


@pytest.fixture
def flow(s3_server: S3Server, tmp_path: Path) -> Flow:
    return Flow(s3_server, tmp_path)


def test_records_of_all_shards_are_loaded_once(flow: Flow) -> None:
    flow.put(*range(40))
    assert flow.run()["total_rows"] == 40
    assert flow.run()["total_rows"] == 0
    flow.put(40, 41)
    assert flow.run(most=1)["total_rows"] == 2
    assert flow.ids() == list(range(42))
    assert {row[2] for row in flow.rows()} == {"shardId-000000000000", "shardId-000000000001"}
    assert flow.rows()[7][1] == "key 7"


def test_children_of_a_shard_that_was_split_come_after_it(flow: Flow) -> None:
    # The server of the tests goes on to put records into a shard that was split, never into its children.
    shard = flow.client.list_shards(StreamName=flow.name)["Shards"][0]
    middle = (int(shard["HashKeyRange"]["StartingHashKey"]) + int(shard["HashKeyRange"]["EndingHashKey"])) // 2
    flow.client.split_shard(StreamName=flow.name, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle))
    flow.put(*range(60))
    shards = flow.client.list_shards(StreamName=flow.name)["Shards"]
    children = {one["ShardId"] for one in shards if one.get("ParentShardId")}
    source = open_stream(flow.connection, flow.name)
    position = source.start(EARLIEST)
    while position["shards"].get(shard["ShardId"]) != "END":
        position = source.ahead(position, 1_000)
        assert children.isdisjoint(source.waiting(position)), "a child was asked before its parent was through"
    source.ahead(position, 1_000)
    assert children <= set(source.waiting(position))
    assert flow.run()["total_rows"] == 60
    assert flow.run()["total_rows"] == 0
    assert flow.ids() == list(range(60))


def test_shards_wait_for_all_of_their_parents() -> None:
    shards = {name: _Shard(parents, closed=True) for name, parents in FAMILY.items()}
    assert list(_readable(shards, {})) == ["a", "b", "orphan"]
    assert list(_readable(shards, {"a": "END", "b": "7"})) == ["b", "left", "orphan", "right"]
    assert list(_readable(shards, {"a": "END", "b": "END", "left": "END"})) == ["merged", "orphan", "right"]


def test_a_stretch_is_read_again_without_what_is_in_memory(flow: Flow) -> None:
    flow.put(*range(30))
    source = open_stream(flow.connection, flow.name)
    begin = source.start(EARLIEST)
    end = source.ahead(begin, 20)
    flow.put(*range(30, 40))
    columns = ["_sequence", "_shard"]

    def read(from_: Any) -> list[Any]:
        return sorted(
            (row["_shard"], row["_sequence"], row["value"])
            for partition in from_.plan_partitions(begin, end, columns)
            for table in partition.read()
            for row in table.to_pylist()
        )

    assert read(source) == read(open_stream(flow.connection, flow.name))
    assert len(read(source)) == source.distance(begin, end) == 20


def test_a_stream_can_begin_with_what_comes_next(flow: Flow) -> None:
    flow.put(1, 2)
    source = open_stream(flow.connection, flow.name)
    begin = source.start(LATEST)
    assert source.distance(begin, source.ahead(begin, 10)) == 0
    flow.put(3)
    assert source.distance(begin, source.ahead(begin, 10)) == 1


def test_a_stream_that_was_made_again_is_not_gone_on_with(flow: Flow) -> None:
    flow.put(1)
    flow.run()
    flow.client.delete_stream(StreamName=flow.name)
    with pytest.raises(RunError, match="no Kinesis stream"):
        flow.run()
    flow.client.create_stream(StreamName=flow.name, ShardCount=1)
    flow.client.get_waiter("stream_exists").wait(StreamName=flow.name)
    with pytest.raises(StreamLostError, match="made again"):
        flow.run()


def test_the_last_record_of_a_key_counts_within_a_shard(s3_server: S3Server, tmp_path: Path) -> None:
    assert Flow(s3_server, tmp_path, shards=1).merged([("k", state) for state in "zbay"]) == [(1, "y")]


def test_records_of_one_key_in_several_shards_end_as_one_row(flow: Flow) -> None:
    assert len(flow.merged([(f"key {number}", str(number)) for number in range(6)])) == 1
