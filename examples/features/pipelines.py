"""From files of visits and purchases to a training set: two feature views, each loaded by a pipeline."""

from __future__ import annotations

from typing import Annotated, Any

from ematix_flow import BigInt, Double, Text, TimestampTZ, ematix, pk


@ematix.connection
class landing:
    kind = "files"
    path = "data"
    format = "csv"


@ematix.connection
class shop:
    kind = "duckdb"
    path = "shop.duckdb"


@ematix.feature_view(schema="features", feature_version="v1", event_timestamp_column="at", online=True)
class CustomerFeatures:
    """What is known of a customer."""

    customer_id: Annotated[BigInt, pk()]
    visits: BigInt
    basket: Double
    at: TimestampTZ


@ematix.feature_view(schema="features", feature_version="v1", event_timestamp_column="at")
class RegionFeatures:
    """What is known of a region."""

    region: Annotated[Text, pk()]
    price_level: Double
    at: TimestampTZ


@ematix.pipeline(target=CustomerFeatures, source_connection="landing", target_connection="shop")
def customers(files: Any) -> str:
    """Load what became known of customers."""
    del files
    return "customers.csv"


@ematix.pipeline(target=RegionFeatures, source_connection="landing", target_connection="shop")
def regions(files: Any) -> str:
    """Load what became known of regions."""
    del files
    return "regions.csv"
