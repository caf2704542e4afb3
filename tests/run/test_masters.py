from __future__ import annotations

import socket

import pytest

from ematix_flow.declare.spark_settings import SparkSettings
from ematix_flow.errors import DeclareError, TransientError
from ematix_flow.run.spark.masters import expect_master
from ematix_flow.run.spark.session import spark_session


def test_a_master_that_is_away_is_told_before_java_starts() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(TransientError, match=f"no Spark master answers at {master} .*refused"):
            spark_session(SparkSettings(master=master))


def test_one_master_of_several_is_enough() -> None:
    with socket.socket() as closed, socket.create_server(("127.0.0.1", 0)) as there:
        closed.bind(("127.0.0.1", 0))
        addresses = (f"127.0.0.1:{one.getsockname()[1]}" for one in (closed, there))
        expect_master(f"spark://{','.join(addresses)}")
    expect_master("yarn")


@pytest.mark.parametrize("master", ["spark://", "spark://host:port"])
def test_an_address_that_is_none_is_refused(master: str) -> None:
    with pytest.raises(DeclareError, match="spark://host:7077"):
        expect_master(master)
