"""A bare consumer of a queue, which acknowledges and keeps nothing: what the broker and its client can give at most."""

import json
import os
import sys
import time
from pathlib import Path

import pika


def main() -> None:
    """Take so many messages."""
    rows = int(sys.argv[1])
    channel = pika.BlockingConnection(pika.URLParameters(os.environ["BENCH_BROKER"])).channel()
    channel.basic_qos(prefetch_count=5_000)
    begun, count = time.monotonic(), 0

    def take(_channel, delivery, _properties, _body) -> None:
        nonlocal count
        count += 1
        if count % 1_000 == 0 or count == rows:
            channel.basic_ack(delivery.delivery_tag, multiple=True)
        if count == rows:
            channel.stop_consuming()

    channel.basic_consume(os.environ["BENCH_QUERY"], take)
    channel.start_consuming()
    channel.connection.close()
    rate = rows / (time.monotonic() - begun)
    Path(os.environ["BENCH_FIGURES"]).write_text(json.dumps({"rows_per_second": rate}))


main()
