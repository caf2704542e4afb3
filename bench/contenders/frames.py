"""A query as a frame and a frame as a table, by this product and by others: `frames.py LIBRARY read|write ROWS [FOLDER]`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import polars as pl

QUERY = "SELECT id, customer, name, code, amount, score, happened_at, active FROM raw.events_a"
SOURCE, TARGET = os.environ["BENCH_SRC_URL"], os.environ["BENCH_DST_URL"]


def read(library):
    """Return the frame of the query."""
    if library == "ours":
        from ematix_flow import PostgresConnection

        return PostgresConnection(name="src", url=SOURCE).read_df(QUERY, prefer="polars")
    return pl.read_database_uri(QUERY, SOURCE, engine=library)


def write(library, frame):
    """Write the frame into a new table and return the number of its rows."""
    if library == "ours":
        from ematix_flow import PostgresConnection

        return PostgresConnection(name="dst", url=TARGET).write_df(frame, "bench.events")["rows_inserted"]
    return frame.write_database("bench.events", TARGET, engine="adbc", if_table_exists="replace")


if __name__ == "__main__":
    library, action, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if action == "read":
        got = read(library).height
    else:
        got = write(library, pl.read_parquet(sorted(Path(sys.argv[4]).glob("*.parquet"))))
    if got != rows:
        sys.exit(f"{got} rows instead of {rows}")
