"""Reads shards of Kinesis streams: forward from a position, and again between two; the caller orders shards."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from ematix_flow.connect.base.stream_source import MESSAGE_OFFSET, REWIND, VALUE
from ematix_flow.connect.kinesis.client import kinesis_client
from ematix_flow.errors import RunError, StreamLostError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

ClientSettings: TypeAlias = tuple[tuple[str, str | None], ...]
"""What a client is created from; it travels to the tasks that read."""

BEGIN, END, SINCE = "TRIM_HORIZON", "END", "@"
"""Positions in a shard besides sequence numbers: its oldest record, its end, and an instant in milliseconds."""

PER_CALL = 10_000
SILENCE = 60.0
"""Seconds after which a range that does not end cannot be read now."""

PAUSE = 0.2
"""Seconds between calls that gave nothing; the service takes five a second."""


@dataclass(frozen=True, slots=True)
class RecordPage:
    """What one call gave."""

    records: list[dict[str, Any]]
    iterator: str | None
    """Where to go on; None behind the last record of a shard that is closed."""
    behind: int
    """Milliseconds to the newest record."""


@lru_cache(maxsize=8)
def client_of(settings: ClientSettings) -> Any:
    """Return a client, one for all callers with the same settings."""
    known = dict(settings)
    return kinesis_client(known["region"], known["endpoint"], known["access_key_id"], known["secret_access_key"])


def iterator_at(settings: ClientSettings, stream: str, shard: str, position: str) -> str:
    """Return an iterator for what comes after a position of a shard."""
    how: dict[str, Any] = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": position}
    if position == BEGIN:
        how = {"ShardIteratorType": BEGIN}
    elif position.startswith(SINCE):
        start = datetime.fromtimestamp(int(position[1:]) / 1000, UTC)
        how = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": start}
    response = call_kinesis(settings, "get_shard_iterator", StreamName=stream, ShardId=shard, **how)
    return str(response["ShardIterator"])


def get(settings: ClientSettings, iterator: str, most: int) -> RecordPage | None:
    """Return the next records, None where the iterator is too old."""
    try:
        response = call_kinesis(settings, "get_records", ShardIterator=iterator, Limit=max(1, min(PER_CALL, most)))
    except _ExpiredError:
        return None
    return RecordPage(
        response["Records"], response.get("NextShardIterator"), int(response.get("MillisBehindLatest", 0))
    )


class _ExpiredError(TransientError):
    """An iterator was used too late."""


def call_kinesis(settings: ClientSettings, call: str, **arguments: Any) -> Any:
    """Return the response to a call; errors are translated for people."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return getattr(client_of(settings), call)(**arguments)
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
    except BotoCoreError as error:
        raise TransientError(f"Kinesis cannot be queried: {type(error).__name__}") from None
    match code:
        case "ExpiredIteratorException":
            raise _ExpiredError("an iterator of Kinesis was used too late")
        case "ResourceNotFoundException":
            name = arguments.get("StreamName", "the stream")
            raise RunError(f"there is no Kinesis stream {name!r}, or a shard of it is gone") from None
        case "InvalidArgumentException":
            raise StreamLostError("Kinesis does not know the place that was read before", hint=REWIND)
        case "AccessDeniedException" | "UnrecognizedClientException" | "InvalidSignatureException":
            raise RunError(f"Kinesis refuses to be read: {code}", hint="check the keys of the connection.")
        case _:
            raise TransientError(f"Kinesis cannot be queried now: {code}")


def read_range(
    settings: ClientSettings, stream: str, shard: str, sequence_range: tuple[str, str], column_names: tuple[str, ...]
) -> Iterator[pa.Table]:
    """Return the records of a shard after one position up to and including another."""
    last, heard = int(sequence_range[1]), time.monotonic()
    iterator: str | None = iterator_at(settings, stream, shard, sequence_range[0])
    while iterator is not None:
        page = get(settings, iterator, PER_CALL)
        if page is None:
            break
        records = [record for record in page.records if int(record["SequenceNumber"]) <= last]
        if records:
            heard = time.monotonic()
            yield table_of(records, stream, shard, column_names)
        if page.records and int(page.records[-1]["SequenceNumber"]) >= last:
            return
        if time.monotonic() - heard > SILENCE:
            break
        if not page.records:
            time.sleep(PAUSE)
        iterator = page.iterator
    message = f"record {sequence_range[1]} of shard {shard} of {stream!r} did not come, though it was read before"
    raise TransientError(message)


def table_of(records: Sequence[dict[str, Any]], stream: str, shard: str, column_names: Sequence[str]) -> pa.Table:
    """Return records with the columns that are requested."""
    import pyarrow as pa

    numbers = [record["SequenceNumber"] for record in records]
    metadata_columns = {
        "_key": lambda: pa.array([record["PartitionKey"] for record in records], pa.string()),
        "_event_ts": lambda: pa.array(
            [record["ApproximateArrivalTimestamp"] for record in records], pa.timestamp("us", tz="UTC")
        ),
        "_stream": lambda: pa.array([stream] * len(records), pa.string()),
        "_shard": lambda: pa.array([shard] * len(records), pa.string()),
        "_sequence": lambda: pa.array(numbers, pa.string()),
    }
    message_offsets = [json.dumps({"stream": stream, "shard": shard, "sequence": number}) for number in numbers]
    columns = {VALUE: pa.array([record["Data"] for record in records], pa.binary())}
    return pa.table(
        columns
        | {name: metadata_columns[name]() for name in column_names}
        | {MESSAGE_OFFSET: pa.array(message_offsets, pa.string())}
    )
