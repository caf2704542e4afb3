"""Loads batch after batch in one process and tells of each; between them it waits for a word on its standard input."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

from ematix_flow import BigInt, Text, ematix, pk
from ematix_flow.declare.connection.registry import connection_from_fields, register_connection

for _name, _fields in json.loads(os.environ["SHOP_CONNECTIONS"]).items():
    register_connection(connection_from_fields(_name, _fields))

batch = 0


@ematix.table(schema="public", name="sold")
class Sold:
    id: Annotated[BigInt, pk()]
    note: Text


@ematix.pipeline(
    target=Sold,
    source_connection="source",
    target_connection=os.environ.get("SHOP_TARGET", "target"),
    mode="append",
    timeout=os.environ.get("SHOP_TIMEOUT", "10m"),
)
def sell(conn):
    return f"SELECT id, note FROM orders WHERE id / 100 = {batch}"


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        batch = int(line)
        try:
            print(json.dumps(sell()), flush=True)
        except Exception as error:  # noqa: BLE001 - what a person would read
            print(json.dumps({"error": type(error).__name__, "text": str(error)}), flush=True)
