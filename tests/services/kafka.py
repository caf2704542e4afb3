"""A Kafka broker for tests, one process that is its own controller; its password must never be seen in an output."""

from __future__ import annotations

import os
import shutil
import signal
import uuid
from typing import TYPE_CHECKING, Any

from ematix_flow.run.spark.java import find_java
from tests.services.certificates import write_certificates
from tests.services.fetched import java_files, prepared_folder
from tests.services.programs import MissingServerError
from tests.services.server import Server, free_port

if TYPE_CHECKING:
    from pathlib import Path

USER = "flow"
PASSWORD = "canary-kafka-6V1p"
_CLUSTER = "ZmxvdyB0ZXN0IGNsdXN0ZXI"
_JAVA = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
         "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")  # fmt: skip
_SMALL = {
    "num.partitions": 1,
    "num.network.threads": 1,
    "num.io.threads": 2,
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.dedupe.buffer.size": 2 << 20,
    "log.index.size.max.bytes": 1 << 20,
    # Messages of tests are of past years; a broker would remove them when it first looks, after half a minute.
    "log.retention.ms": -1,
    # A broker that comes back waits until the one that died is forgotten.
    "broker.session.timeout.ms": 2_000,
    "broker.heartbeat.interval.ms": 500,
    "controller.quorum.election.timeout.ms": 100,
    "controller.quorum.election.backoff.max.ms": 100,
}


class KafkaBroker(Server):
    """Kafka without ZooKeeper; clients log in at `login_address`, show a certificate at `tls_address`, and need neither at `address`."""

    name = "kafka"
    account = "root"
    stop_signal = signal.SIGTERM

    def __init__(self, *, durable: bool = False) -> None:
        super().__init__(durable=durable)
        self._login_port = free_port()
        self._tls_port = free_port()
        self._controller_port = free_port()

    @property
    def address(self) -> str:
        """Return the address of the broker for clients that do not log in."""
        return f"127.0.0.1:{self.port}"

    @property
    def login_address(self) -> str:
        """Return the address at which clients log in by PLAIN or SCRAM."""
        return f"127.0.0.1:{self._login_port}"

    @property
    def tls_address(self) -> str:
        """Return the address at which clients show a certificate."""
        return f"127.0.0.1:{self._tls_port}"

    @property
    def certificates(self) -> Path:
        """Return the folder with the certificates of this broker, its clients and their authority."""
        return self.folder / "certificates"

    def admin(self) -> Any:
        """Return a client that may do everything; keep it until its answers are there."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def check(self) -> None:
        """Ask whether the broker answers and leads all of its topics."""
        from confluent_kafka import KafkaException

        try:
            topics = self.admin().list_topics(timeout=1).topics.values()
        except KafkaException as error:
            raise ConnectionError(str(error)) from error
        if any(partition.leader < 0 for topic in topics for partition in topic.partitions.values()):
            raise ConnectionError("a partition has no leader yet")

    def create_topic(self, partitions: int = 1, name: str = "", **settings: str) -> str:
        """Make an empty topic and return its name."""
        from confluent_kafka.cimpl import NewTopic

        topic = name or f"t-{uuid.uuid4().hex[:16]}"
        admin = self.admin()
        (creation,) = admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]).values()
        creation.result()
        return topic

    def drop_topic(self, topic: str) -> None:
        """Remove a topic and come back when it is gone."""
        admin = self.admin()
        (dropped,) = admin.delete_topics([topic]).values()
        dropped.result()

    def initialise(self) -> None:
        """Make certificates and an empty data folder: a copy of one that this environment keeps, since making one takes seconds."""
        jars = java_files("Kafka")
        if not jars:
            raise MissingServerError("Kafka")
        write_certificates(self.certificates)
        prepared = prepared_folder("Kafka", "empty")
        if not prepared.is_dir():
            self._format(jars)
            draft = prepared.with_suffix(f".{uuid.uuid4().hex}")
            shutil.copytree(self.data, draft)
            try:
                draft.rename(prepared)
            except OSError:  # another test process was first
                shutil.rmtree(draft)
        else:
            shutil.copytree(prepared, self.data)

    def command(self) -> list[str]:
        """Return the command line."""
        return [*self._java(java_files("Kafka")), "kafka.Kafka", self._configuration()]

    def _format(self, jars: list[str]) -> None:
        logins = (f"SCRAM-SHA-{bits}=[name={USER},password={PASSWORD}]" for bits in (256, 512))
        added = [argument for login in logins for argument in ("--add-scram", login)]
        configuration = self._configuration()
        self.run([
            *self._java(jars), "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", configuration, *added,
        ])  # fmt: skip

    def _java(self, jars: list[str]) -> list[str]:
        return [find_java(os.environ).command, *_JAVA, "-cp", os.pathsep.join(jars)]

    def _configuration(self) -> str:
        """Write the settings for the ports of now and return the file."""
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        tls = "listener.name.tls.ssl"
        listeners = {"OPEN": self.address, "LOGIN": self.login_address, "TLS": self.tls_address}
        advertised = ",".join(f"{name}://{address}" for name, address in listeners.items())
        settings: dict[str, Any] = _SMALL | {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": f"{advertised},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": advertised,
            "inter.broker.listener.name": "OPEN",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,OPEN:PLAINTEXT,LOGIN:SASL_PLAINTEXT,TLS:SSL",
            "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.login.plain.sasl.jaas.config": f'{plain} user_{USER}="{PASSWORD}";',
            "listener.name.login.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.login.scram-sha-512.sasl.jaas.config": scram,
            f"{tls}.client.auth": "required",
            f"{tls}.keystore.type": "PEM",
            f"{tls}.keystore.location": self.certificates / "server.both",
            f"{tls}.truststore.type": "PEM",
            f"{tls}.truststore.location": self.certificates / "ca.pem",
            "log.dirs": self.data,
        }
        file = self.folder / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
        return str(file)
