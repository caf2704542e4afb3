"""A server of Sail, which answers Spark's Connect protocol without Java, in this process."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@contextmanager
def sail_server() -> Iterator[str]:
    """Return the address of a server that ends afterwards."""
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer()
    server.start(background=True)
    _, port = server.listening_address
    yield f"sc://localhost:{port}"
    server.stop()


@contextmanager
def sail_session() -> Iterator[SparkSession]:
    """Return a session on a server that ends with it."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    with sail_server() as address:
        session = ConnectSession(connection=address)
        yield cast("SparkSession", session)
        with warnings.catch_warnings():
            # Of a session that the server does not know any more pyspark tells by a call that Python has deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            session.stop()
