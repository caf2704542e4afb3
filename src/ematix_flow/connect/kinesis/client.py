"""Kinesis without a plan: a stream's shards are read from the position committed last in this process, and written."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.retry import AWS_REQUEST, KINESIS_BUSY, attempts
from ematix_flow.connect.broker.client import Backend, Limits, missing, payloads_of
from ematix_flow.errors import DeclareError, RunError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

AT_ONCE = 500
"""What the service takes in one request."""
REQUEST_BYTES = 4 << 20


class _BusyError(TransientError):
    """The stream throttles records."""


class KinesisBackend(Backend):
    """One stream; how far its shards were read is remembered here and nowhere else."""

    def __init__(self, stream: str, client: Any, limits: Limits, empty_polls: int, pause: float) -> None:
        super().__init__(limits)
        if not stream:
            raise DeclareError("a Kinesis backend needs the name of a stream")
        self._stream, self._client = stream, client
        self._empty_polls, self._pause = empty_polls, pause
        self._iterators: dict[str, str | None] = {}
        self._committed: dict[str, str] = {}
        self._pending: list[tuple[str, str]] = []
        self._received: list[tuple[str, str]] = []

    @classmethod
    def open(  # noqa: PLR0913 - the public contract
        cls,
        stream_name: str,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        batch_size: int | None = None,
        batch_bytes: int | None = None,
        max_empty_polls: int | None = None,
        idle_poll_ms: int | None = None,
    ) -> KinesisBackend:
        """Return the backend; the service is not contacted yet."""
        client = kinesis_client(region, endpoint, access_key_id, secret_access_key)
        limits = Limits.of(batch_size, batch_bytes, None)
        return cls(stream_name, client, limits, max_empty_polls or 3, (idle_poll_ms or 200) / 1000)

    def ping(self) -> None:
        """Check that the stream is there and may be read."""
        self._call("describe_stream_summary", StreamName=self._stream)

    def write_arrow_stream(self, dest: str, batches: Iterable[pa.RecordBatch]) -> int:
        """Send every row, with partition keys that begin with `dest`; come back when the service has them all."""
        count = 0
        waiting: list[dict[str, Any]] = []
        for batch in batches:
            for payload in payloads_of(batch, self._format):
                full = sum(len(one["Data"]) for one in waiting) + len(payload) > REQUEST_BYTES
                if len(waiting) == AT_ONCE or (full and waiting):
                    self.put(waiting)
                    waiting = []
                waiting.append({"Data": payload, "PartitionKey": f"{dest}{count}"})
                count += 1
        if waiting:
            self.put(waiting)
        return count

    def commit_offsets(self) -> None:
        """Let a later read of this backend begin after what was handed out."""
        self._committed |= dict(self._pending)
        self._pending.clear()

    def reset_to_committed_offsets(self) -> None:
        """Let the next read begin where the last commit was."""
        self._pending.clear()
        self._received.clear()
        self._iterators.clear()

    def pending_sequence_count(self) -> int:
        """Return the number of records that were handed out and not committed."""
        return len(self._pending)

    def _receive(self, query: str, count: int, seconds: float) -> Sequence[bytes]:  # noqa: ARG002 - one stream, counted polls
        for attempt in range(self._empty_polls):
            if attempt:
                time.sleep(self._pause)
            for shard in self._open_shards():
                # Removed and put at the end: a shard that is never empty must not keep the others waiting.
                response = self._call("get_records", ShardIterator=self._iterators.pop(shard), Limit=count)
                self._iterators[shard] = response.get("NextShardIterator")
                if records := response["Records"]:
                    self._received += [(shard, record["SequenceNumber"]) for record in records]
                    return [record["Data"] for record in records]
        return []

    def _hand_out(self) -> None:
        self._pending += self._received
        self._received.clear()

    def _requeue(self) -> None:
        """Read again from the first record on that was not handed out."""
        for shard in dict(self._received):
            handed = dict(self._pending).get(shard) or self._committed.get(shard)
            self._iterators[shard] = self._iterator(shard, handed)
        self._received.clear()

    def _open_shards(self) -> list[str]:
        """Return the shards that have more to read; those that came out of another one wait until that one is read."""
        shards = self._shards()
        known: set[str] = {shard["ShardId"] for shard in shards}
        for shard in shards:
            name = shard["ShardId"]
            parents = known & {shard.get("ParentShardId"), shard.get("AdjacentParentShardId")}
            if name not in self._iterators and all(self._iterators.get(parent, "") is None for parent in parents):
                self._iterators[name] = self._iterator(name, self._committed.get(name))
        return [name for name, iterator in self._iterators.items() if iterator is not None]

    def _shards(self) -> list[dict[str, Any]]:
        response = self._call("list_shards", StreamName=self._stream)
        shards = list(response["Shards"])
        while response.get("NextToken"):
            response = self._call("list_shards", NextToken=response["NextToken"])
            shards += response["Shards"]
        return shards

    def _iterator(self, shard: str, after: str | None) -> str:
        arguments = {"StreamName": self._stream, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
        if after is not None:
            arguments |= {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": after}
        return str(self._call("get_shard_iterator", **arguments)["ShardIterator"])

    def put(self, records: list[dict[str, Any]]) -> None:
        """Send records until none is throttled."""
        for attempt in attempts(KINESIS_BUSY, on=(_BusyError,)):
            with attempt:
                records = self._refused(records)
                if records:
                    message = f"Kinesis stream {self._stream!r} does not take {len(records)} records: it is too busy"
                    raise _BusyError(message)

    def _refused(self, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Send records and return those that are refused."""
        response = self._call("put_records", StreamName=self._stream, Records=records)
        if not response.get("FailedRecordCount"):
            return []
        return [record for record, sent in zip(records, response["Records"], strict=True) if sent.get("ErrorCode")]

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        method: Callable[..., dict[str, Any]] = getattr(self._client, operation)
        try:
            return method(**arguments)
        except ClientError as error:
            details = error.response.get("Error", {})
            raise RunError(
                f"Kinesis stream {self._stream!r}: {details.get('Message') or details.get('Code')}"
            ) from None
        except BotoCoreError as error:
            raise TransientError(f"Kinesis stream {self._stream!r}: {error}") from None


def kinesis_client(region: str | None, endpoint: str | None, key: str | None, secret: str | None) -> Any:
    """Return a client; the service is not contacted yet."""
    if bool(key) != bool(secret):
        raise DeclareError("Kinesis needs access_key_id and secret_access_key together")
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ModuleNotFoundError:
        raise missing("Kinesis", "boto3", "kinesis") from None
    config = Config(
        connect_timeout=5, read_timeout=60, retries={"total_max_attempts": AWS_REQUEST.attempts, "mode": "standard"}
    )
    try:
        return boto3.client("kinesis", region_name=region, endpoint_url=endpoint, aws_access_key_id=key,
                            aws_secret_access_key=secret, config=config)  # fmt: skip
    except (BotoCoreError, ValueError) as error:
        raise DeclareError(f"Kinesis cannot be reached with these settings: {error}") from None
