"""Changes of a topic into PostgreSQL as JDBC sinks apply them, written by hand: row by row, in statements that are sent together.

Like Debezium's JDBC sink it takes 500 records at a time, upserts each by its key or deletes it, sends statements of one
kind together (psycopg's pipeline is what a batch of JDBC is), begins another batch where the kind changes, and commits
once for all records that it took. Unlike one it keeps its offsets only after its commits, and it runs no Java.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import psycopg
from confluent_kafka import Consumer

COLUMNS = ("id", "customer", "name", "code", "amount", "score", "happened_at", "active")
UPSERT = (
    f"INSERT INTO bench.events ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))}) "
    f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in COLUMNS[1:])}"
)
DELETE = "DELETE FROM bench.events WHERE id = %s"


def main(last: int) -> None:
    """Apply changes until the row with this id is there."""
    consumer = Consumer({
        "bootstrap.servers": os.environ["BENCH_BROKER"], "group.id": os.environ["BENCH_GROUP"],
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    })  # fmt: skip
    consumer.subscribe([os.environ["BENCH_QUERY"]])
    over = False
    with psycopg.connect(os.environ["BENCH_DST_URL"]) as connection:
        while not over:
            messages = consumer.consume(int(os.environ["BENCH_SINK_BATCH"]), timeout=1)
            events = [json.loads(message.value()) for message in messages if message.error() is None]
            if events:
                write(connection, events)
                connection.commit()
                consumer.commit(asynchronous=False)
            over = any(event["after"] is not None and event["after"]["id"] == last for event in events)
    consumer.close()


def write(connection: psycopg.Connection[Any], events: list[dict[str, Any]]) -> None:
    """Write changes in their order; those of one kind that follow each other go together."""
    kind, rows = "", []
    with connection.cursor() as cursor:
        for event in events:
            sql = DELETE if event["op"] == "d" else UPSERT
            if sql != kind and rows:
                cursor.executemany(kind, rows)
                rows = []
            kind = sql
            rows.append((event["before"]["id"],) if sql == DELETE else tuple(event["after"][name] for name in COLUMNS))
        cursor.executemany(kind, rows)


main(int(sys.argv[1]))
