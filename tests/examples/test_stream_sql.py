"""The documented streams with SQL, lookups and functions in Python, unchanged, on the services they speak of."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tests.depth import STREAMS_SQL

if TYPE_CHECKING:
    from tests.examples.streaming import World

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group(STREAMS_SQL),
    pytest.mark.usefixtures("quick_lakes"),
]

CHAIN = """ts,underlying,days_to_expiry,strike,bid,ask,spot,vol,rate,expiry
2026-05-01T14:30:05Z,SPXW,0,4500,1.25,1.30,4510.5,0.2,0.05,0.01
2026-05-01T14:30:59Z,SPXW,0,4505,1.05,1.10,4510.5,0.2,0.05,0.01
2026-05-01T14:31:00Z,SPXW,0,4500,1.20,1.25,4511,0.2,0.05,0.01
2026-05-01T14:31:00Z,SPX,0,9999,0,0,4511,0.2,0.05,0.01
2026-05-01T14:31:00Z,SPXW,7,9999,0,0,4511,0.2,0.05,0.01
"""
MINUTES = [datetime(2026, 5, 1, 14, minute, tzinfo=UTC) for minute in (30, 31)]


def _options(world: World, name: str, text: str) -> None:
    assert world.s3 is not None
    world.s3.client().put_object(Bucket="market", Key=f"raw/options/{name}", Body=text.encode())


@pytest.fixture
def market(stored: World) -> World:
    """Return the world with a file of options and the table that mirrors it."""
    stored.warehouse.schemas("marketdata")
    stored.warehouse.run(
        "CREATE TABLE marketdata.option_chain_snapshots (minute TIMESTAMPTZ NOT NULL, strikes_json JSONB NOT NULL)",
        "CREATE TABLE marketdata.vwap_per_minute (minute TIMESTAMPTZ, vwap DOUBLE PRECISION)",
    )
    _options(stored, "a.csv", CHAIN)
    return stored


def test_messages_are_joined_with_a_lookup(world: World) -> None:
    world.warehouse.run(
        "CREATE TABLE dim_users (user_id BIGINT, tier TEXT, secret TEXT)",
        "INSERT INTO dim_users VALUES (1, 'gold', 'x'), (3, 'iron', 'y')",
        "CREATE TABLE events_clean (user_id BIGINT, _event_ts TIMESTAMPTZ, tier TEXT)",
    )
    world.send("events", {"user_id": 1}, {"user_id": 2}, {"user_id": 3})
    world.run("events-clean", lambda: world.warehouse.count("events_clean") == 3)
    rows = world.warehouse.rows(
        "SELECT user_id, tier, _event_ts > now() - interval '1 hour' FROM events_clean ORDER BY 1"
    )
    assert rows == [(1, "gold", True), (2, None, True), (3, "iron", True)]


def test_many_rows_of_a_file_become_one_document(market: World) -> None:
    table = "marketdata.option_chain_snapshots"
    market.run("option-chain-snapshots", lambda: market.warehouse.count(table) == 2)
    rows = market.warehouse.rows(f"SELECT minute, strikes_json FROM {table} ORDER BY minute")
    assert [row[0] for row in rows] == MINUTES
    assert sorted(rows[0][1], key=lambda one: one["strike"]) == [
        {"strike": 4500, "bid": 1.25, "ask": 1.30},
        {"strike": 4505, "bid": 1.05, "ask": 1.10},
    ]
    assert rows[1][1] == [{"strike": 4500, "bid": 1.2, "ask": 1.25}]
    # A file that comes later is loaded, and those before it are not loaded again.
    _options(market, "0-late.csv", CHAIN.replace("14:3", "15:3"))
    market.run("option-chain-snapshots", lambda: market.warehouse.count(table) > 2)
    assert market.warehouse.count(table) == 4


def test_a_function_in_python_is_called_from_the_sql(market: World) -> None:
    table = "marketdata.option_chain_snapshots"
    market.run("option-chain-with-greeks", lambda: market.warehouse.count(table) == 2)
    rows = market.warehouse.rows(f"SELECT strikes_json FROM {table} ORDER BY minute")
    deltas = {one["strike"]: one["delta"] for one in rows[0][0]}
    assert deltas == pytest.approx({strike: _delta(strike, 4510.5) for strike in (4500, 4505)})


def _delta(strike: float, spot: float, vol: float = 0.2, rate: float = 0.05, expiry: float = 0.01) -> float:
    d1 = (math.log(spot / strike) + (rate + vol * vol / 2) * expiry) / (vol * math.sqrt(expiry))
    return (1 + math.erf(d1 / math.sqrt(2))) / 2


def test_an_aggregate_in_python_is_called_from_the_sql(market: World) -> None:
    quotes = [("14:30:01", 10.0, 1.0), ("14:30:30", 20.0, 3.0), ("14:31:59", 5.0, 2.0), ("14:31:59", 7.0, None)]
    market.send("quotes", *({"ts": f"2026-05-01T{at}Z", "price": price, "qty": qty} for at, price, qty in quotes))
    market.run("vwap-per-minute", lambda: market.warehouse.count("marketdata.vwap_per_minute") == 2)
    rows = market.warehouse.rows("SELECT minute, vwap FROM marketdata.vwap_per_minute ORDER BY minute")
    assert rows == [(MINUTES[0], 17.5), (MINUTES[1], 5.0)]


def test_messages_that_are_no_rows_go_to_the_dead_letter_topic(world: World) -> None:
    world.warehouse.run("CREATE TABLE events (user_id BIGINT, payload TEXT, _event_ts TIMESTAMPTZ)")
    world.send("events", {"user_id": 1, "payload": "a"}, "{torn", {"user_id": 2, "payload": "b"})
    world.run("events-clean-late", lambda: bool(world.received("events-failed")))
    assert world.warehouse.rows("SELECT user_id, payload FROM events ORDER BY 1") == [(1, "a"), (2, "b")]
    assert world.received("events-failed") == ["{torn"]
