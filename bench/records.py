"""The records of the streams that are measured: objects of JSON with 200 bytes each, sent to topics and queues."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = 200
_FIRST = 1_767_225_600
"""The second of the first record: the beginning of 2026."""
_SPREAD = 0x9E3779B97F4A7C15F39CC0605CEDC835
"""Makes codes of numbers that look like no order."""


def record(number: int, at: float | None = None, customers: int = 100_000) -> bytes:
    """Return a record of exactly 200 bytes; it happened a second after the one before it, or when that is said."""
    seconds, micros = divmod(int((_FIRST + number if at is None else at) * 1_000_000), 1_000_000)
    timestamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{micros:06}Z"
    values = {
        "id": number, "customer": number % customers, "name": f"customer {number}",
        "code": f"{number * _SPREAD % (1 << 128):032x}", "amount": number % 1_000_000 / 100,
        "score": number * 1.5, "happened_at": timestamp, "active": number % 2 == 0,
    }  # fmt: skip
    short = SIZE - len(json.dumps(values, separators=(",", ":")))
    values["name"] = f"{values['name']}{'.' * short}"
    return json.dumps(values, separators=(",", ":")).encode()


def producer(address: str) -> Any:
    """Return a client that sends to topics."""
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": address, "linger.ms": 5, "queue.buffering.max.messages": 500_000})


def fill_topic(address: str, topic: str, rows: int) -> None:
    """Send records to all partitions of a topic."""
    sender = producer(address)
    for number in range(1, rows + 1):
        sender.produce(topic, record(number), str(number).encode())
        if number % 50_000 == 0:
            sender.flush()
    sender.flush()


def change(op: str, number: int, position: int) -> bytes:
    """Return a change of a row as Debezium writes it without a schema; `position` is where the log has it."""
    row = json.loads(record(number))
    row["amount"] = (number + position) % 1_000_000 / 100
    source = {
        "version": "3.4.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": _FIRST * 1000 + position, "snapshot": "false",
        "db": "shop", "sequence": f'["{position * 100}","{position * 100 + 50}"]', "schema": "public", "table": "events",
        "txId": position, "lsn": position * 100 + 50, "xmin": None,
    }  # fmt: skip
    before, after = ({"id": number}, None) if op == "d" else (None, row)
    event = {
        "before": before,
        "after": after,
        "source": source,
        "transaction": None,
        "op": op,
        "ts_ms": source["ts_ms"],
    }
    return json.dumps(event, separators=(",", ":")).encode()


def first_rows(rows: int) -> Iterator[bytes]:
    """Return the changes that create so many rows."""
    return (change("c", number, number) for number in range(1, rows + 1))


def changes(rows: int) -> Iterator[bytes]:
    """Return as many changes of so many rows: of ten, one deletes a row, one creates it again later, and eight update others.

    The last one creates one row more, so that it can be seen that everything is there.
    """
    chance, gone = random.Random(7), list[int]()  # noqa: S311 - repeatable, not secret
    for position in range(rows + 1, 2 * rows):
        turn, left = position % 10, 2 * rows - position
        number = chance.randrange(1, rows + 1)
        if gone and (turn == 1 or left <= len(gone)):
            yield change("c", gone.pop(0), position)
        elif turn == 0 and number not in gone and left > len(gone) + 2:
            gone.append(number)
            yield change("d", number, position)
        else:
            yield change("u", number % rows + 1 if number in gone else number, position)
    yield change("c", rows + 1, 2 * rows)


def fill_changes(address: str, topic: str, payloads: Iterator[bytes]) -> None:
    """Send changes to a topic of one partition."""
    sender = producer(address)
    for number, payload in enumerate(payloads, 1):
        sender.produce(topic, payload)
        if number % 50_000 == 0:
            sender.flush()
    sender.flush()


def fill_partitions(address: str, topic: str, rows: int, partitions: int) -> None:
    """Send records of ten thousand customers, 0.6 ms from each to the next, and to every partition one an hour later."""
    sender = producer(address)
    for number in range(1, rows + 1):
        sender.produce(topic, record(number, _FIRST + number * 0.0006, 10_000), partition=number % partitions)
        if number % 50_000 == 0:
            sender.flush()
    sender.flush()
    for partition in range(partitions):
        sender.produce(topic, record(rows + 1 + partition, _FIRST + rows * 0.0006 + 3600), partition=partition)
    sender.flush()


def fill_queue(channel: Any, queue: str, rows: int) -> None:
    """Send records to a queue, and come back when the broker has all of them."""
    for number in range(1, rows + 1):
        channel.basic_publish("", queue, record(number))
    channel.connection.process_data_events()
    while channel.queue_declare(queue, passive=True).method.message_count < rows:
        channel.connection.sleep(0.1)


def at_rate(rate: int, each: float = 0.01) -> Iterator[list[int]]:
    """Return the numbers of the records that are due, so many a second; it waits in between."""
    begun, sent = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - begun) * rate)
        yield list(range(sent + 1, due + 1))
        sent = due
        time.sleep(each)
