"""The demo's pipelines: a small shop's files into DuckDB, one mode each."""

from typing import Annotated

from ematix_flow import BigInt, Numeric, String, Text, TimestampTZ, ematix, pk
from ematix_flow.normalize import email_normalize, empty_to_null, trim


@ematix.connection
class landing:
    kind = "files"
    path = "${SHOP_FOLDER}/landing"
    format = "csv"


@ematix.connection
class warehouse:
    kind = "duckdb"
    path = "${SHOP_FOLDER}/warehouse.duckdb"


@ematix.table(schema="shop")
class Events:
    event_id: Annotated[BigInt, pk()]
    customer_id: BigInt
    action: Annotated[String[20], trim()]
    happened_at: TimestampTZ


@ematix.table(schema="shop")
class Customers:
    customer_id: Annotated[BigInt, pk()]
    email: Annotated[String[120], email_normalize()]
    city: Annotated[Text | None, trim(), empty_to_null()]


@ematix.table(schema="shop")
class Prices:
    sku: Annotated[String[12], pk()]
    price: Numeric[10, 2]
    changed_at: TimestampTZ


@ematix.pipeline(
    target=Events,
    source_connection="landing",
    target_connection="warehouse",
    schedule="*/15 * * * *",
    mode="append",
    incremental=True,
    watermark_column="happened_at",
)
def load_events(files):
    return "events"


@ematix.pipeline(
    target=Customers,
    source_connection="landing",
    target_connection="warehouse",
    schedule="0 * * * *",
    mode="merge",
    on_bad_row="reject",
)
def load_customers(files):
    return "customers"


@ematix.pipeline(
    target=Prices,
    source_connection="landing",
    target_connection="warehouse",
    schedule="0 * * * *",
    mode="scd2",
    compare_columns=["price"],
    event_timestamp_column="changed_at",
)
def load_prices(files):
    return "prices"
