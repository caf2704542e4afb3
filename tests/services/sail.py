"""A server of Sail, which answers Spark's Connect protocol without Java, in this process."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@contextmanager
def sail_session() -> Iterator[SparkSession]:
    """Give a session on a server that ends with it."""
    from pysail.spark import SparkConnectServer
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    server = SparkConnectServer()
    server.start(background=True)
    _, port = server.listening_address
    session = ConnectSession(connection=f"sc://localhost:{port}")
    yield cast("SparkSession", session)
    session.stop()
    server.stop()
