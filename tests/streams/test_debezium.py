"""What Debezium itself writes of a database that several clients change: the tables have the rows of their source, on every system."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.contracts.systems import SYSTEMS
from tests.depth import quick_or_deep
from tests.services.debezium import Connector
from tests.streams.feeds import Topic
from tests.streams.ledgers import TABLES, Clients, create_tables, differences, source_rows
from tests.streams.mirrors import LAKES, Mirror, empty_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ematix_flow.declare.connection.registry import Connection
    from tests.services.debezium import DebeziumServer
    from tests.services.kafka import KafkaBroker
    from tests.services.postgres import PostgresServer

pytestmark = [
    pytest.mark.service,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("streams"),
]

QUICK = {"postgres": True}
"""The systems that every run of the tests tries, and whether messages tell their schema there."""


def _cases() -> list[Any]:
    """Return every system with messages of both kinds."""
    cases = []
    for schemas in (True, False):
        form = "schema" if schemas else "plain"
        for one in SYSTEMS:
            marks = [] if QUICK.get(one.kind) is schemas else [pytest.mark.deep]
            cases.append(pytest.param(one, schemas, id=f"{one.label}-{form}", marks=marks))
        lake = [pytest.mark.spark, pytest.mark.deep]
        cases += [pytest.param(kind, schemas, id=f"{kind}-{form}", marks=lake) for kind in LAKES]
    return cases


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Connection:
    """Return an empty target of each system."""
    created = empty_target(request, request.param, tmp_path)
    if created.kind == "mysql":  # whose schemas outlive the database of a test
        for table in TABLES:
            Mirror(None, created, table).drop()
    return created


@pytest.fixture
def origin(postgres_server: PostgresServer) -> Iterator[str]:
    """Return the URL of a database with tables and rows."""
    url = postgres_server.create_database()
    create_tables(url)
    yield url
    postgres_server.drop_database(url)


@contextmanager
def reading(server: DebeziumServer, broker: KafkaBroker, url: str, **options: Any) -> Iterator[Connector]:
    """Return a connector of both tables that does not run yet; its topics have several partitions."""
    names = [f"public.{table.name}" for table in TABLES]
    connector = Connector(url, ",".join([*names, "public.marks"]), **options)
    for name in (*names, "public.marks"):
        broker.create_topic(3, f"{connector.name}.{name}")
    try:
        yield connector
    finally:
        server.disconnect(connector)


def begin_reading(server: DebeziumServer, connector: Connector) -> None:
    """Let Debezium begin, and come back when it is settled which rows it reads and which changes: docs/cdc.md says why nobody works then."""
    server.connect(connector)
    sql = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND confirmed_flush_lsn IS NOT NULL"
    with psycopg.connect(connector.url, autocommit=True) as connection:
        _wait_for(server, connector, lambda: connection.execute(sql, (connector.name,)).fetchone())


def wait_until_read(server: DebeziumServer, connector: Connector) -> None:
    """Wait until Debezium has told the database that it has everything up to now, its first look at the tables included."""
    sql = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND confirmed_flush_lsn > %s"
    with psycopg.connect(connector.url, autocommit=True) as connection:
        (position,) = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone() or (None,)

        def is_read() -> object:
            # A transaction is told to be read when the next one is.
            connection.execute("INSERT INTO marks DEFAULT VALUES")
            return connection.execute(sql, (connector.name, position)).fetchone()

        _wait_for(server, connector, is_read)


def _wait_for(server: DebeziumServer, connector: Connector, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, f"Debezium does not come to an end:\n{server.log_tail()}"
        assert not (problem := server.problem(connector)), problem
        time.sleep(0.1)


def mirrors_of(connector: Connector, broker: KafkaBroker, target: Connection) -> list[Mirror]:
    """Return a mirror of each table; batches are small, so that they divide what belongs together."""
    options = {"max_rows_per_batch": 5000 if target.kind in LAKES else 400}
    topics = [Topic(broker, f"{connector.name}.public.{table.name}") for table in TABLES]
    return [Mirror(topic, target, table, options=options) for topic, table in zip(topics, TABLES, strict=True)]


@pytest.mark.parametrize(("target", "schemas"), _cases(), indirect=["target"])
def test_tables_have_the_rows_of_their_source(
    debezium_server: DebeziumServer, kafka_broker: KafkaBroker, origin: str, target: Connection, *, schemas: bool
) -> None:
    transactions = quick_or_deep(60, 300)
    with reading(debezium_server, kafka_broker, origin, schemas=schemas) as connector:
        mirrors = mirrors_of(connector, kafka_broker, target)
        with Clients(origin) as clients:
            clients.work(transactions)
        begin_reading(debezium_server, connector)
        with Clients(origin, seed=10) as clients:
            clients.work(transactions)
        wait_until_read(debezium_server, connector)
        for mirror in mirrors:
            mirror.apply([])
        with Clients(origin, seed=20) as clients:
            clients.work(transactions)
            debezium_server.crash()
            debezium_server.start()
            debezium_server.connect(connector)
        wait_until_read(debezium_server, connector)
    for mirror in mirrors:
        mirror.apply([])
        assert not differences(mirror.table, mirror.rows(), source_rows(origin, mirror.table))
