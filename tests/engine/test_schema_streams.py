from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from ematix_flow.connect.formats.codecs import schema_encoder
from ematix_flow.connect.schema_registry.open import registry_of
from ematix_flow.declare.connection.brokers import KafkaConnection
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.stream.stream import Stream, StreamSourceDeclaration, StreamTarget, StreamTransform
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Bytes, Double, Integer, Numeric, Text
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.errors import RunError, TransientError
from tests.connect.registries import avro_messages, record
from tests.services.server import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.services.kafka import KafkaBroker
    from tests.services.registry import RegistryServer

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("registry")]

COLUMNS = (
    Column(BigInt(), primary_key=True, name="id"),
    Column(Text(), name="name", nullable=True),
    Column(Numeric(12, 2), name="amount", nullable=True),
    Column(Double(), name="score", nullable=True),
    Column(Bytes(), name="raw", nullable=True),
    Column(Integer(), name="_partition", nullable=True),
)


class SchemaStream:
    """A topic with schemas, and a table that a stream fills from it."""

    def __init__(self, broker: KafkaBroker, url: str, folder: Path, payload_format: str) -> None:
        self.broker = broker
        self.topic = broker.create_topic(2)
        self.file = str(folder / "store.db")
        self.connection = self.connection_to(url, payload_format)

    def connection_to(self, url: str, payload_format: str) -> KafkaConnection:
        return KafkaConnection(
            "events", bootstrap_servers=self.broker.address, payload_format=payload_format, schema_registry_url=url
        )

    def send(self, *messages: bytes) -> None:
        producer = Producer({"bootstrap.servers": self.broker.address, "linger.ms": 5})
        for number, message in enumerate(messages):
            producer.produce(self.topic, message, partition=number % 2)
        assert producer.flush(30) == 0

    def run(
        self,
        *,
        on_error: str = "dlq",
        connection: KafkaConnection | None = None,
        table: Any = None,
        sql: str | None = None,
    ) -> None:
        database = connection_from_fields("shop", {"kind": "duckdb", "path": self.file})
        declared = table or Table("shop", "orders", COLUMNS)
        target = StreamTarget(database, write(mode="append"), table=declared, create_table=table is not None)
        source = StreamSourceDeclaration(connection or self.connection, self.topic, "orders")
        transform = StreamTransform(sql=sql, on_error=on_error)
        run_stream(Stream("orders", (source,), (target,), transform=transform), StreamOptions(available_now=True))

    def query(self, sql: str) -> Sequence[tuple[Any, ...]]:
        with duckdb.connect(self.file) as session:
            return session.sql(sql).fetchall()


@pytest.fixture(params=["avro", "protobuf"])
def schema_stream(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, registry_server: RegistryServer, tmp_path: Path
) -> SchemaStream:
    return SchemaStream(kafka_broker, registry_server.url, tmp_path, request.param)


def rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "id": list(ids),
            "name": [f"name {number}" for number in ids],
            "amount": [Decimal(number) / 100 for number in ids],
            "score": [float("nan") if number % 10 == 0 else number / 7 for number in ids],
            "raw": [bytes([number % 256, 0xFF]) for number in ids],
        }
    )


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_sql_has_the_values_that_schemas_declare(
    schema_stream: SchemaStream, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", engine)
    messages = schema_encoder(schema_stream.connection, schema_stream.topic).encode(rows(1, 40))
    schema_stream.send(*messages, poison(messages[0], 1))
    schema_stream.run(sql="SELECT id, upper(name) AS name, amount, score, raw, _partition FROM source")
    loaded = schema_stream.query("SELECT id, name, amount, raw, _partition FROM shop.orders ORDER BY id")
    assert loaded[0] == (1, "NAME 1", Decimal("0.01"), b"\x01\xff", 0)
    assert [row[0] for row in loaded] == list(range(1, 41))
    assert schema_stream.query("SELECT COUNT(*) FROM ematix_flow.rejects") == [(1,)]


def poison(good: bytes, number: int) -> bytes:
    return [good[:-1], b"\1" + good[1:], b"", good[:1] + b"\x7f\xff\xff\xff" + good[5:]][number % 4]


def test_one_message_in_twenty_is_poison_and_the_others_load(schema_stream: SchemaStream) -> None:
    messages = schema_encoder(schema_stream.connection, schema_stream.topic).encode(rows(0, 400))
    schema_stream.send(*(poison(one, n // 20) if n % 20 == 7 else one for n, one in enumerate(messages)))
    schema_stream.run()
    schema_stream.run()
    loaded = schema_stream.query("SELECT id, name, amount, score, raw FROM shop.orders ORDER BY id")
    expected = [n for n in range(400) if n % 20 != 7]
    assert [row[0] for row in loaded] == expected
    assert all(row[1] == f"name {row[0]}" and row[2] == Decimal(row[0]) / 100 for row in loaded)
    assert all(row[4] == bytes([row[0] % 256, 0xFF]) for row in loaded)
    assert all(math.isnan(row[3]) if row[0] % 10 == 0 else row[3] == row[0] / 7 for row in loaded)
    reasons = schema_stream.query("SELECT reason FROM ematix_flow.rejects")
    assert len(reasons) == 20
    text = " ".join(reason for (reason,) in reasons)
    assert all(part in text for part in ("magic byte 1", "too few", "unknown schema 2147483647", "not a "))


def test_a_stream_that_may_not_set_messages_aside_stops_and_loads_nothing(schema_stream: SchemaStream) -> None:
    (good,) = schema_encoder(schema_stream.connection, schema_stream.topic).encode(rows(1, 1))
    schema_stream.send(good, b"\1" + good[1:])
    with pytest.raises(RunError, match="magic byte 1"):
        schema_stream.run(on_error="fail")
    schema_stream.run()
    assert schema_stream.query("SELECT id FROM shop.orders") == [(1,)]


@pytest.mark.parametrize("schema_stream", ["avro"], indirect=True)
def test_a_registry_that_is_away_sets_nothing_aside(schema_stream: SchemaStream, no_waits: None) -> None:
    schema_stream.send(*schema_encoder(schema_stream.connection, schema_stream.topic).encode(rows(0, 10)))
    away = schema_stream.connection_to(f"http://127.0.0.1:{free_port()}", str(schema_stream.connection.payload_format))
    with pytest.raises(TransientError, match="cannot be reached"):
        schema_stream.run(connection=away)
    schema_stream.run()
    assert schema_stream.query("SELECT count(*), count(DISTINCT id) FROM shop.orders") == [(10, 10)]
    assert schema_stream.query("SELECT count(*) FROM ematix_flow.rejects") == [(0,)]


def test_a_schema_may_change_between_two_messages_of_a_batch(
    kafka_broker: KafkaBroker, registry_server: RegistryServer, tmp_path: Path
) -> None:
    schema_stream = SchemaStream(kafka_broker, registry_server.url, tmp_path, "avro")
    registry, subject = registry_of(schema_stream.connection), f"{schema_stream.topic}-value"
    old = avro_messages(registry, subject, record(("id", "int"), ("name", "string")), [{"id": 1, "name": "a"}])
    grown = record(("id", "long"), ("name", "string"), ("score", "double", {"default": 0.5}))
    new = avro_messages(registry, subject, grown, [{"id": 2, "name": "b", "score": 2.5}])
    shrunk = avro_messages(registry, subject, record(("id", "long")), [{"id": 3}])
    wrong = avro_messages(registry, subject, record(("id", "string")), [{"id": "four"}])
    schema_stream.send(*new, *old, *shrunk, *wrong)
    schema_stream.run()
    assert schema_stream.query("SELECT id, name, score FROM shop.orders ORDER BY id") == [
        (1, "a", None),
        (2, "b", 2.5),
        (3, None, None),
    ]
    ((column, row_json),) = schema_stream.query("SELECT column_name, row_json FROM ematix_flow.rejects")
    assert (column, "four" in row_json) == ("id", True)


def test_a_table_that_nobody_declared_gets_the_types_of_the_schema(schema_stream: SchemaStream) -> None:
    schema_stream.send(*schema_encoder(schema_stream.connection, schema_stream.topic).encode(rows(1, 5)))
    schema_stream.run(table=("shop", "found"))
    types = dict(
        schema_stream.query("SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'found'")
    )
    assert (types["id"], types["score"], types["raw"]) == ("BIGINT", "DOUBLE", "BLOB")
    assert schema_stream.query("SELECT sum(id), min(raw) FROM shop.found") == [(15, b"\1\xff")]


def test_rows_go_on_to_a_topic_of_another_format(
    kafka_broker: KafkaBroker, registry_server: RegistryServer, tmp_path: Path
) -> None:
    schema_stream = SchemaStream(kafka_broker, registry_server.url, tmp_path, "avro")
    schema_stream.send(*schema_encoder(schema_stream.connection, schema_stream.topic).encode(rows(1, 20)))
    onwards = SchemaStream(kafka_broker, registry_server.url, tmp_path, "protobuf")
    target = StreamTarget(onwards.connection, write(mode="append"), topic=onwards.topic)
    stream = Stream(
        "onwards", (StreamSourceDeclaration(schema_stream.connection, schema_stream.topic, "orders"),), (target,)
    )
    run_stream(stream, StreamOptions(available_now=True))
    run_stream(stream, StreamOptions(available_now=True))
    onwards.run()
    expected = [(n, f"name {n}", Decimal(n) / 100, bytes([n, 0xFF])) for n in range(1, 21)]
    assert onwards.query("SELECT id, name, amount, raw FROM shop.orders ORDER BY id") == expected
