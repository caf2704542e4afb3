"""Kinesis streams for tests, in the process that serves S3; they are gone with it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.services.s3 import S3Server


def create_stream(server: S3Server, shards: int = 1) -> str:
    """Make an empty stream, come back when it can be used, and return its name."""
    name = f"t-{uuid.uuid4().hex[:16]}"
    client = server.client("kinesis")
    client.create_stream(StreamName=name, ShardCount=shards)
    client.get_waiter("stream_exists").wait(StreamName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    return name
