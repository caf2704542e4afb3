"""Streams of every broker in the documented form of a file, and the documented schema registry, on the services they speak of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import PostgresConnection, ematix
from ematix_flow.declare.stream.decorator import load_stream
from ematix_flow.declare.stream.handle import run
from tests.connect.registries import avro_messages, record, registry_at
from tests.examples.conftest import README
from tests.services.kafka import PASSWORD, USER
from tests.services.kinesis import create_stream
from tests.services.pubsub import PROJECT
from tests.services.s3 import KEY, REGION, SECRET
from tests.services.topics import fill

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import pyarrow as pa

    from tests.examples.databases import UserDatabase
    from tests.examples.streaming import World
    from tests.services.pubsub import PubSubServer
    from tests.services.rabbitmq import RabbitMQServer
    from tests.services.registry import RegistryServer
    from tests.services.s3 import S3Server

pytestmark = [pytest.mark.slow, pytest.mark.service]

TABLE = """
[target]
kind = "postgres"
url = "${WAREHOUSE_DSN}"

[target.table]
schema = "public"
name = "events"
"""
MESSAGES = [{"event_id": 1, "name": "opened"}, {"event_id": 2, "name": None}]
LOADED = [(1, "opened"), (2, None)]


@pytest.fixture
def warehouse(postgres: UserDatabase, monkeypatch: pytest.MonkeyPatch) -> UserDatabase:
    """Return a warehouse with an empty table of events."""
    monkeypatch.setenv("WAREHOUSE_DSN", postgres.url)
    postgres.run("CREATE TABLE public.events (event_id BIGINT, name TEXT)")
    return postgres


def _consume(text: str, query: str) -> int:
    """Run a file for what is there and return how many rows it brought."""
    stream = load_stream(config_str=f'pipeline_name = "events"\nsource_query = "{query}"\n{text}')
    return int(run(stream, available_now=True)["total_rows"])


def _rows(database: UserDatabase) -> list[tuple[Any, ...]]:
    return database.rows("SELECT event_id, name FROM public.events ORDER BY event_id")


@pytest.mark.xdist_group("rabbitmq")
def test_a_queue_goes_into_a_table(
    warehouse: UserDatabase, rabbitmq_server: RabbitMQServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMQP_URL", rabbitmq_server.url)
    queue = rabbitmq_server.create_queue()
    channel = rabbitmq_server.channel()
    for message in MESSAGES:
        channel.basic_publish("", queue, json.dumps(message).encode())
    channel.connection.close()
    source = '[source]\nkind = "rabbitmq"\namqp_url = "${AMQP_URL}"\n'
    assert [_consume(source + TABLE, queue) for _ in range(2)] == [2, 0]
    assert _rows(warehouse) == LOADED


@pytest.mark.xdist_group("s3")
def test_a_kinesis_stream_goes_into_a_table(
    warehouse: UserDatabase, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    name = create_stream(s3_server)
    client = s3_server.client("kinesis")
    for message in MESSAGES:
        client.put_record(StreamName=name, Data=json.dumps(message).encode(), PartitionKey="k")
    source = f"""
[source]
kind = "kinesis"
stream_name = "{name}"
region = "{REGION}"
endpoint = "{s3_server.endpoint}"
access_key_id = "${{AWS_ACCESS_KEY_ID}}"
secret_access_key = "${{AWS_SECRET_ACCESS_KEY}}"
"""
    assert [_consume(source + TABLE, name) for _ in range(2)] == [2, 0]
    assert _rows(warehouse) == LOADED


@pytest.mark.xdist_group("brokers")
def test_a_subscription_goes_into_a_table_and_a_topic_takes_what_it_had(
    warehouse: UserDatabase, pubsub_server: PubSubServer, world: World
) -> None:
    topic, subscription = pubsub_server.create_topic()
    settings = (
        f'kind = "pubsub"\nproject_id = "{PROJECT}"\nendpoint = "{pubsub_server.endpoint}"\nanonymous_auth = true\n'
    )
    world.send("events", *MESSAGES)
    kafka = '[source]\nkind = "kafka"\nbootstrap_servers = "${KAFKA_BOOTSTRAP}"\ngroup_id = "ematix-flow"\n'
    assert _consume(f'{kafka}\n[target]\n{settings}topic = "{topic}"\n', "events") == 2
    assert _consume(f"[source]\n{settings}{TABLE}", subscription) == 2
    assert _rows(warehouse) == LOADED


@pytest.mark.xdist_group("brokers")
def test_a_topic_goes_into_another_topic_once(world: World) -> None:
    world.send("events", *MESSAGES)
    kafka = 'kind = "kafka"\nbootstrap_servers = "${KAFKA_BOOTSTRAP}"\n'
    target = f'[target]\n{kafka}topic = "quotes"\nmessage_key_column = "event_id"\n'
    text = f'delivery = "exactly_once"\n[source]\n{kafka}group_id = "ematix-flow"\n\n{target}'
    assert [_consume(text, "events") for _ in range(2)] == [2, 0]
    assert [json.loads(one) for one in world.received("quotes")] == [MESSAGES[0], {"event_id": 2}]


@pytest.mark.xdist_group("registry")
def test_the_documented_registry_gives_the_columns_of_avro_messages(
    example: Callable[..., ModuleType],
    warehouse: UserDatabase,
    world: World,
    registry_server: RegistryServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SR_URL", registry_server.url)
    example("schema_registry")
    schema = record(("event_id", "long"), ("name", ["null", "string"]))
    messages = avro_messages(registry_at(registry_server.url), "events-value", schema, MESSAGES)
    fill(world.broker.address, "events", messages)
    handle = ematix.streaming_pipeline(
        name="avro_events",
        source="kafka_avro",
        source_query="events",
        target=PostgresConnection("warehouse", warehouse.url),
        target_table=("public", "events"),
    )(lambda: None)
    assert [handle(available_now=True)["total_rows"] for _ in range(2)] == [2, 0]
    assert _rows(warehouse) == LOADED


@pytest.mark.xdist_group("registry")
def test_a_notebook_reads_a_topic_itself(world: World, registry_server: RegistryServer) -> None:
    schema = record(("event_id", "long"), ("name", ["null", "string"]))
    fill(
        world.broker.address,
        "events",
        avro_messages(registry_at(registry_server.url), "events-value", schema, MESSAGES),
    )
    text = (README / "notebook.py").read_text("utf-8")
    mine = {
        "localhost:9092": world.broker.login_address,
        "http://localhost:8081": registry_server.url,
        "alice": USER,
        "secret": PASSWORD,
    }
    for name, value in mine.items():
        text = text.replace(f'"{name}"', f'"{value}"')
    # The broker of the tests lets clients log in without TLS, which nobody should get unasked.
    text = text.replace("    sasl_plain_username", '    security_protocol="SASL_PLAINTEXT",\n    sasl_plain_username')
    for expected in (MESSAGES, []):
        batches: list[pa.RecordBatch] = []
        names: dict[str, Any] = {"process": batches.append}
        exec(compile(text, "notebook.py", "exec"), names)  # noqa: S102 - the documented example itself
        names["backend"].close()
        assert [row for batch in batches for row in batch.to_pylist()] == expected
