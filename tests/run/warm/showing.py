"""A program that loads on the warm engine and prints what Spark's pages and plans show of it."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.request import urlopen

from ematix_flow import BigInt, Text, ematix, pk  # noqa: TC001 - declarations read them


@ematix.connection
class inbox:  # noqa: N801 - a name of a connection
    """Files beside this program."""

    kind = "files"
    path = "in"
    format = "csv"


@ematix.table(schema="mart", name="items")
class Items:
    """What is loaded."""

    id: Annotated[BigInt, pk()]
    name: Text


@ematix.pipeline(target=Items, source_connection="inbox", target_connection="right", mode="merge")
def load_items(files: Any) -> str:
    """Load files."""
    return "items"


def main() -> None:
    """Load, look, and print."""
    with ematix.engine() as engine:
        first = load_items()
        pages = engine.ui_url
        (application,) = json.loads(_page(f"{pages}/api/v1/applications"))
        api = f"{pages}/api/v1/applications/{application['id']}"
        shown = [_page(f"{api}/{what}") for what in ("jobs", "stages", "environment", "sql?details=true")]
        shown += [_page(f"{pages}/{what}/") for what in ("jobs", "environment", "SQL", "connect")]
        printed = {"id": engine.id, "ui": pages, "engine": first["engine"], "version": engine.spark.version}
        jobs = [job["description"] for job in json.loads(shown[0])]
    again = engine.id
    print(json.dumps({**printed, "jobs": jobs, "shown": shown, "after": again}))  # noqa: T201 - for the test


def _page(url: str) -> str:
    with urlopen(url, timeout=30) as answer:  # noqa: S310 - Spark's own pages
        return str(answer.read().decode())


if __name__ == "__main__":
    main()
