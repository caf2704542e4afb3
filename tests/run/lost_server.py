"""A program with a session on a Connect server: it says when it reads, waits for a line, and then is rid of the session."""

from __future__ import annotations

import gc
import sys

from ematix_flow.declare.spark_settings import SparkSettings
from ematix_flow.run.spark import session


def main(remote: str, ending: str) -> None:
    """Begin to read, wait until the server is lost, and stop the session, drop it, or leave it to the end of the process."""
    spark = session.spark_session(SparkSettings(remote=remote))
    rows = iter(spark.range(0, 2_000_000, 1, 40).toLocalIterator())
    next(rows)
    print("reads", flush=True)  # noqa: T201 - what the test waits for
    sys.stdin.readline()
    if ending == "stopped":
        session.stop_session()
    elif ending == "dropped":
        session._current = None
        del spark, rows
        gc.collect()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
