"""Writes the demo's source files, one day at a time, and says what a correct load must hold."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FIRST_DAY = datetime(2026, 3, 1, tzinfo=UTC)
ACTIONS = ("view", "basket", "order")
CITIES = ("Aachen", "Bern", " Graz ", "")
EVENTS_A_DAY = 400
CUSTOMERS_A_DAY = 20
BAD_DAY = 2


@dataclass
class Shop:
    """The files written so far and the truth about them."""

    folder: Path
    events: set[int] = field(default_factory=set)
    customers: dict[int, str] = field(default_factory=dict)
    price_changes: dict[str, list[float]] = field(default_factory=dict)
    bad_rows: int = 0

    def write_day(self, number: int) -> None:
        """Add the files of one day."""
        day = FIRST_DAY + timedelta(days=number - 1)
        self._events(number, day)
        self._customers(number)
        self._prices(number, day)

    def _place(self, *parts: str) -> Path:
        path = self.folder.joinpath("landing", *parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _events(self, number: int, day: datetime) -> None:
        with self._place("events", f"day-{number}.csv").open("w", newline="") as handle:
            writer = csv.writer(handle)
            writer.writerow(("event_id", "customer_id", "action", "happened_at"))
            for index in range(EVENTS_A_DAY):
                event = number * 10_000 + index
                at = day + timedelta(minutes=3 * index, microseconds=index + 1)
                writer.writerow((event, 1 + index % 30, f" {ACTIONS[index % 3]}", at.isoformat()))
                self.events.add(event)

    def _customers(self, number: int) -> None:
        rows = []
        for index in range(CUSTOMERS_A_DAY):
            customer = 1 + (number - 1) * 10 + index
            city = CITIES[(customer + number) % len(CITIES)]
            rows.append({"customer_id": customer, "email": f" User{customer}@Shop.example ", "city": city})
            self.customers[customer] = city.strip()
        if number == BAD_DAY:
            rows.append({"customer_id": "not a number", "email": "lost@shop.example", "city": "Bern"})
            self.bad_rows = 1
        # Each day's file is the whole current list, so that the merge has unchanged, changed and new rows.
        path = self._place("customers", "customers.jsonl")
        known = {} if not path.exists() else {r["customer_id"]: r for r in map(json.loads, path.open())}
        known = {key: row for key, row in known.items() if isinstance(key, int)}
        known |= {row["customer_id"]: row for row in rows}
        path.write_text("".join(json.dumps(row) + "\n" for row in known.values()))

    def _prices(self, number: int, day: datetime) -> None:
        skus = [f"SKU-{index}" for index in range(1, 6)]
        moving = {"SKU-1": 10.0 + number, "SKU-2": 20.0 + number // 2}
        prices = [moving.get(sku, 30.0) for sku in skus]
        for sku, price in zip(skus, prices, strict=True):
            history = self.price_changes.setdefault(sku, [])
            if not history or history[-1] != price:
                history.append(price)
        table = pa.table(
            {
                "sku": skus,
                "price": pa.array([f"{price:.2f}" for price in prices]),
                "changed_at": pa.array([day] * len(skus), pa.timestamp("us", tz="UTC")),
            }
        )
        pq.write_table(table, self._place("prices", f"day-{number}.parquet"))
