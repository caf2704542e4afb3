from typing import Annotated
from ematix_flow import ematix, pk
from ematix_flow.types import BigInt, Text, TimestampTZ

from ematix_flow import Target, ObjectStoreS3Connection

@ematix.connection
class lake:
    kind = "object_store_s3"
    endpoint = "https://s3.amazonaws.com"
    bucket = "ematix-archive"
    region = "us-east-1"
    access_key_id = "${AWS_ACCESS_KEY_ID}"
    secret_access_key = "${AWS_SECRET_ACCESS_KEY}"
    format = "parquet"

@ematix.table(schema="public")
class Events:
    event_id: Annotated[BigInt, pk()]
    name: Text | None
    received_at: TimestampTZ

@ematix.pipeline(
    name="events_fanout",
    source_connection="warehouse",
    targets=[
        Target(connection="warehouse", table=Events),
        Target(connection=lake, table=Events, prefix="events/raw", parquet_compression="zstd"),
    ],
    mode="append",
)
def events_fanout(conn):
    return "SELECT event_id, name, received_at FROM raw.events"
