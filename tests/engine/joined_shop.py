# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""A shop whose orders are in a database and whose customers are files, and the load that joins them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import duckdb

from ematix_flow import BigInt, Double, Source, Text, ematix, pk
from ematix_flow.declare.connection.registry import connection_from_fields, register_connection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.declare.pipeline.pipeline import Pipeline


@ematix.table(schema="main", name="sold")
class Sold:
    id: Annotated[BigInt, pk()]
    name: Text
    amount: Double


QUERY = (
    "SELECT o.id, c.name, o.amount FROM shop.orders o JOIN people.customers c ON o.customer = c.id WHERE o.id > {low}"
)


def shop(query: str, more: Mapping[str, str] | None = None, **options: Any) -> Pipeline:
    """Declare a load of two systems into a third one; `more` are addresses of PostgreSQL, by the words for them."""
    for name, fields in {
        "shop_db": {"kind": "duckdb", "path": "shop.duckdb"},
        "folder": {"kind": "files", "path": "people", "format": "csv"},
        "target": {"kind": "duckdb", "path": "target.duckdb"},
    }.items():
        register_connection(connection_from_fields(name, fields))
    with duckdb.connect("shop.duckdb") as database:
        database.execute("CREATE OR REPLACE TABLE orders (id INT, customer INT, amount DOUBLE, broken VARCHAR)")
        database.execute("INSERT INTO orders VALUES (1, 7, 1.5, ''), (2, 8, 2.5, ''), (3, 7, 3.5, ''), (4, 9, 1, '')")
    Path("people/customers").mkdir(parents=True, exist_ok=True)
    Path("people/customers/one.csv").write_text("id,name\n7,ada\n8,bob\n", "utf-8")
    connections = {"shop": "shop_db", "people": "folder", **{text: text for text in more or {}}}
    connections |= {"own": "target"} if "own." in query else {}
    for text, url in (more or {}).items():
        register_connection(connection_from_fields(text, {"kind": "postgres", "url": url}))
    given = {"target": Sold, "target_connection": "target", "mode": "merge", "name": "sold", **options}
    return ematix.pipeline(**given)(lambda _: Source.sql(query, connections=connections)).pipeline


def loaded() -> list[tuple[Any, ...]]:
    """Return the rows of the target."""
    with duckdb.connect("target.duckdb") as database:
        return database.execute("SELECT id, name, amount FROM sold ORDER BY id").fetchall()
