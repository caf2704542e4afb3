"""Streams of AWS Kinesis as targets of streams: what the service did not take of a request is sent again."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.confirmed_sink import ConfirmedSink
from ematix_flow.errors import RunError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ematix_flow.connect.sinks import Message
    from ematix_flow.declare.connection_streams import KinesisConnection

MOST = 500
"""Records of one request."""

MOST_BYTES = 4 << 20
"""Bytes of one request, with room for what the service counts besides."""

LONGEST_KEY = 256

PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
"""Seconds before a record that was not taken is sent again."""


BUSY = ("LimitExceededException", "ProvisionedThroughputExceededException", "ThrottlingException", "RequestTimeout")
"""Refusals that pass."""


class KinesisSink(ConfirmedSink):
    """One stream; a message's id, behind a prefix, says which shard it goes to."""

    kind: ClassVar[str] = "kinesis"

    def __init__(self, connection: KinesisConnection, place: str, guarantee: str) -> None:
        del guarantee
        self._connection, self._prefix = connection, place
        self._opened: Any = None

    @property
    def place(self) -> str:
        """Give the region, the stream and the prefix."""
        return f"{self._connection.region or ''}/{self._connection.stream_name}/{self._prefix}"

    def look(self) -> None:
        """Refuse a stream that is not there."""
        from botocore.exceptions import BotoCoreError, ClientError

        client, name = self._client(), self._connection.stream_name
        try:
            client.describe_stream_summary(StreamName=name)
        except client.exceptions.ResourceNotFoundException:
            message = f"there is no stream {name!r}"
            raise RunError(message, hint=f"create it; asked connection {self._connection.name!r}.") from None
        except (BotoCoreError, ClientError) as error:
            raise self._away(error) from None

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages in requests of many; one that is not taken may come behind its neighbours."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            for records in _requests(messages, self._prefix):
                self._put(records)
        except (BotoCoreError, ClientError) as error:
            raise self._away(error) from None

    def _put(self, records: list[dict[str, Any]]) -> None:
        for pause in (*PAUSES, None):
            answer = self._client().put_records(StreamName=self._connection.stream_name, Records=records)
            if not answer["FailedRecordCount"]:
                return
            said = answer["Records"]
            records = [record for record, one in zip(records, said, strict=True) if one.get("ErrorCode")]
            if pause is None:
                reasons = ", ".join(sorted({one["ErrorCode"] for one in said if one.get("ErrorCode")}))
                message = f"Kinesis did not take {len(records)} records of a request: {reasons}"
                raise TransientError(message, hint="give the stream more shards, or fewer rows per batch.")
            time.sleep(pause)

    def _client(self) -> Any:
        if self._opened is None:
            import boto3

            given = self._connection
            self._opened = boto3.client(
                "kinesis",
                region_name=given.region,
                endpoint_url=given.endpoint,
                aws_access_key_id=given.access_key_id,
                aws_secret_access_key=given.secret_access_key,
            )
        return self._opened

    def _away(self, error: Exception) -> RunError:
        message = f"Kinesis of connection {self._connection.name!r} refused a request: {error}"
        answer = getattr(error, "response", {})
        code = answer.get("Error", {}).get("Code", "")
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        refused = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
        return RunError(message) if refused and code not in BUSY else TransientError(message)


def _requests(messages: Sequence[Message], prefix: str) -> Iterator[list[dict[str, Any]]]:
    """Give the records of each request."""
    records: list[dict[str, Any]] = []
    size = 0
    for message in messages:
        value, key = message.value or b"", f"{prefix}{message.id}"[:LONGEST_KEY]
        if records and (len(records) == MOST or size + len(value) > MOST_BYTES):
            yield records
            records, size = [], 0
        records.append({"Data": value, "PartitionKey": key})
        size += len(value) + len(key)
    yield records
