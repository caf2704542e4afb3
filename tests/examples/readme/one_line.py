from typing import Annotated
from ematix_flow import DeltaLocalConnection, ematix, pk, register_connection
from ematix_flow.types import BigInt, Text, TimestampTZ

@ematix.connection
class warehouse:
    kind = "postgres"
    url = "${WAREHOUSE_DSN}"

register_connection(DeltaLocalConnection(name="lake", path="lake"))

@ematix.table(schema="analytics")
class Events:
    event_id: Annotated[BigInt, pk()]
    name: Text | None
    received_at: TimestampTZ

@ematix.pipeline(
    target=Events,
    source_connection="warehouse",
    target_connection="warehouse",
    mode="merge",
)
def ingest_events(conn):
    return "SELECT event_id, name, received_at FROM raw.events"
