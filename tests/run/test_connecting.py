"""Sessions on Connect servers: collected at any moment, they are closed elsewhere."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ematix_flow.run.spark.connect_client import near_session

pytestmark = pytest.mark.slow


@pytest.mark.timeout(60)
def test_a_session_is_collected_inside_the_locks_that_closing_takes() -> None:
    from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator as Results

    session: Any = near_session(1, "unused")
    client = session.client
    pool = Results._get_or_create_release_thread_pool()
    pool.submit(threading.Event).result()
    with pool._shutdown_lock:
        del session
    while not client.is_closed:
        assert not threading.Event().wait(0.01)
