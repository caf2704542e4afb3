"""What `flow doctor` says about brokers: one that lets us in, one that does not, and one whose package is missing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from ematix_flow import KafkaConnection, KinesisConnection, PubSubConnection, RabbitMQConnection, register_connection
from ematix_flow.engine.doctor import check_health
from tests.services.kinesis import create_stream
from tests.services.pubsub import PROJECT
from tests.services.rabbitmq import PASSWORD
from tests.services.s3 import KEY, REGION, SECRET

if TYPE_CHECKING:
    from ematix_flow.engine.doctor import HealthReport
    from tests.services.kafka import KafkaBroker
    from tests.services.pubsub import PubSubServer
    from tests.services.rabbitmq import RabbitMQServer
    from tests.services.s3 import S3Server

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("brokers")]


def report(connection: KafkaConnection | RabbitMQConnection | PubSubConnection | KinesisConnection) -> HealthReport:
    register_connection(connection)
    return check_health(connection.name)


def test_a_broker_without_its_package_can_only_be_knocked_at(
    kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = KafkaConnection("events", bootstrap_servers=kafka_broker.address)
    assert "brokers: 1," in report(cluster).detail
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    health = report(cluster)
    assert health.status == "ok"
    assert "accepts connections; the login was not checked" in health.detail


def test_a_login_at_rabbitmq_is_tried(rabbitmq_server: RabbitMQServer) -> None:
    assert report(RabbitMQConnection("jobs", amqp_url=rabbitmq_server.url)).status == "ok"
    wrong = rabbitmq_server.url.replace(PASSWORD, "canary-wrong")
    refused = report(RabbitMQConnection("jobs", amqp_url=wrong))
    assert (refused.status, "refuses the login" in refused.detail) == ("fail", True)
    assert "canary-wrong" not in refused.detail


def test_a_stream_of_kinesis_is_asked_for(s3_server: S3Server) -> None:
    login = {"region": REGION, "endpoint": s3_server.endpoint, "access_key_id": KEY, "secret_access_key": SECRET}
    assert report(KinesisConnection("clicks", stream_name=create_stream(s3_server), **login)).status == "ok"
    gone = report(KinesisConnection("clicks", stream_name="none-such", **login))
    assert (gone.status, "none-such" in gone.detail) == ("fail", True)


def test_a_project_of_pubsub_is_asked_for(pubsub_server: PubSubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    project = PubSubConnection("news", project_id=PROJECT, endpoint=pubsub_server.endpoint, anonymous_auth=True)
    assert report(project).status == "ok"
    monkeypatch.setitem(sys.modules, "google.pubsub_v1", None)
    skipped = report(project)
    assert (skipped.status, "ematix-flow-spark[pubsub]" in skipped.detail) == ("skip", True)
