"""Passwords planted in everything that a stream connects to, and every way to fail there: nothing that is said or kept has one."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.services.kafka import PASSWORD as KAFKA_PASSWORD
from tests.services.kafka import USER
from tests.services.messages import send
from tests.services.postgres import PASSWORD as POSTGRES_PASSWORD
from tests.services.server import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.services.kafka import KafkaBroker

    Flow = Callable[..., Any]

pytestmark = [pytest.mark.service, pytest.mark.slow]

CANARY = "c4n4ry/@:stream#7"
SECRETS = (CANARY, KAFKA_PASSWORD, POSTGRES_PASSWORD)

MODULE = """
from typing import Annotated

from ematix_flow import BigInt, ematix, pk

CONNECTIONS = {connections}
for name, fields in CONNECTIONS.items():
    ematix.connection(type(name, (), fields))


@ematix.table(schema="public", name="orders")
class Orders:
    id: Annotated[BigInt, pk()]


def declare(name, source, target, **more):
    settings = dict(source=source, source_query="{topic}", target=target, target_table=Orders, idle_pause_ms=50)
    ematix.streaming_pipeline(name=name, **(settings | more))(lambda: None)


declare("wrong_login", "wrong_login", "right")
declare("queue", "queue", "right")
declare("wrong_password", "broker", "wrong_password")
declare("closed_database", "broker", "closed_database")
declare("registry", "registry", "right")
declare("poison", "broker", "right", transform_on_error="fail", source_query="{poison}")
declare("no_topic", "broker", "right", source_query="nowhere")
declare("into_queue", "broker", "queue", target_table=None, target_topic=None, target_queue="orders")
"""


def forms(secret: str) -> set[str]:
    """Return the ways to write a secret."""
    raw = secret.encode()
    coded = {base64.b64encode(raw).decode().rstrip("="), base64.urlsafe_b64encode(raw).decode().rstrip("=")}
    return {secret, quote(secret, safe=""), quote(secret, safe="").lower()} | coded


def shown_in(text: str) -> list[str]:
    """Return the secrets that can be read in a text."""
    return [form for secret in SECRETS for form in forms(secret) if form in text]


@pytest.fixture
def streams(kafka_broker: KafkaBroker, postgres_url: str, project: Path) -> None:
    """Write a module of streams that fail."""
    topic, poison = kafka_broker.create_topic(), kafka_broker.create_topic()
    send(kafka_broker, topic, '{"id": 1}')
    send(kafka_broker, poison, "{oops")
    coded, closed = quote(CANARY, safe=""), free_port()
    login = {"kind": "kafka", "security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": USER}
    right = {"bootstrap_servers": kafka_broker.login_address, "sasl_plain_password": KAFKA_PASSWORD}
    connections = {
        "broker": login | right,
        "wrong_login": login | right | {"sasl_plain_password": CANARY},
        "queue": {"kind": "rabbitmq", "amqp_url": f"amqp://flow:{coded}@127.0.0.1:{closed}/%2F"},
        "right": {"kind": "postgres", "url": postgres_url},
        "wrong_password": {"kind": "postgres", "url": postgres_url.replace(POSTGRES_PASSWORD, coded)},
        "closed_database": {"kind": "postgres", "url": f"postgresql://flow:{coded}@127.0.0.1:{closed}/shop"},
        "registry": login | right | {
            "payload_format": "avro", "schema_registry_url": f"http://user:{coded}@127.0.0.1:{closed}",
        },
    }  # fmt: skip
    Path("streams.py").write_text(MODULE.format(connections=connections, topic=topic, poison=poison), "utf-8")


FAILING = ("wrong_login", "queue", "wrong_password", "closed_database", "registry", "poison", "no_topic", "into_queue")


@pytest.mark.parametrize("name", FAILING)
def test_no_failure_of_a_stream_shows_a_password(flow: Flow, streams: None, name: str) -> None:
    log = ("--run-log-path", "runs.db")
    result = flow("consume", name, "-m", "streams", "--once", "--format", "lines", *log)
    assert (result.code, shown_in(result.out + result.err)) == (1, [])
    assert "error: " in result.err
    assert shown_in(flow("runs", "list", *log, "--format", "json").out) == []
    files = [path for root in (Path.home(), Path.cwd()) for path in root.rglob("*") if path.is_file()]
    secrets_in = {path.name: shown_in(path.read_bytes().decode(errors="replace")) for path in files}
    planted = {name: secrets for name, secrets in secrets_in.items() if secrets and not name.startswith("streams.")}
    assert planted == {}


def test_nobody_who_only_looks_is_shown_a_password(flow: Flow, streams: None) -> None:
    for command in (("stream", "status"), ("dry-run",)):
        result = flow(*command, "wrong_password", "-m", "streams")
        assert (result.code, shown_in(result.out + result.err)) == (1, []), command
