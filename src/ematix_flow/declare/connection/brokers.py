"""The connections to brokers, queues and schema registries, with the settings each takes; none of them is opened here."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from ematix_flow.declare.aliases import SCRAM_MECHANISMS
from ematix_flow.declare.connection.base import Connection, is_open
from ematix_flow.errors import DeclareTypeError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, repr=False)
class SchemaRegistryConnection(Connection):
    """A Confluent-style schema registry."""

    kind: ClassVar[str] = "schema_registry"
    required: ClassVar[tuple[str, ...]] = ("url",)

    url: str = ""
    basic_auth_user: str | None = None
    basic_auth_password: str | None = None
    auto_register: bool = True
    """Whether a schema is added for rows whose subject has none."""

    def _check(self) -> None:
        if bool(self.basic_auth_user) != bool(self.basic_auth_password):
            raise self._wrong("needs basic_auth_user and basic_auth_password together")


@dataclass(frozen=True, slots=True, repr=False)
class GlueSchemaRegistryConnection(Connection):
    """An AWS Glue schema registry."""

    kind: ClassVar[str] = "glue_schema_registry"
    required: ClassVar[tuple[str, ...]] = ("registry_name", "region")

    registry_name: str = ""
    region: str = ""
    aws_profile: str | None = None
    aws_access_key_id: str | None = None
    aws_secret_access_key: str | None = None
    auto_register: bool = True

    def _check(self) -> None:
        if bool(self.aws_access_key_id) != bool(self.aws_secret_access_key):
            raise self._wrong("needs aws_access_key_id and aws_secret_access_key together")
        if self.aws_profile and self.aws_access_key_id:
            raise self._wrong("takes aws_profile or static keys, not both")


@dataclass(frozen=True, slots=True, repr=False)
class RabbitMQConnection(Connection):
    """A RabbitMQ broker."""

    kind: ClassVar[str] = "rabbitmq"
    required: ClassVar[tuple[str, ...]] = ("amqp_url",)

    amqp_url: str = ""
    consumer_tag: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class PubSubConnection(Connection):
    """A Google Pub/Sub project."""

    kind: ClassVar[str] = "pubsub"
    required: ClassVar[tuple[str, ...]] = ("project_id",)

    project_id: str = ""
    endpoint: str | None = None
    anonymous_auth: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class KinesisConnection(Connection):
    """An AWS Kinesis stream."""

    kind: ClassVar[str] = "kinesis"
    required: ClassVar[tuple[str, ...]] = ("stream_name",)

    stream_name: str = ""
    region: str | None = None
    endpoint: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class KafkaConnection(Connection):
    """A Kafka cluster."""

    kind: ClassVar[str] = "kafka"
    required: ClassVar[tuple[str, ...]] = ("bootstrap_servers",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType(
        {
            "payload_format": ("json", "raw_bytes", "avro", "protobuf"),
            "auto_offset_reset": ("earliest", "latest"),
            "sasl_scram_mechanism": ("sha-256", "sha-512"),
            "sasl_mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "AWS_MSK_IAM"),
            "security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        }
    )
    spellings: ClassVar[Mapping[str, Mapping[str, str]]] = MappingProxyType({"sasl_scram_mechanism": SCRAM_MECHANISMS})

    bootstrap_servers: str = ""
    group_id: str | None = None
    payload_format: str | None = None
    auto_offset_reset: str | None = None
    schema_registry_url: str | None = None
    schema_registry: Connection | str | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = None
    sasl_scram_username: str | None = None
    sasl_scram_password: str | None = None
    sasl_scram_mechanism: str | None = None
    msk_iam_region: str | None = None
    security_protocol: str | None = None
    tls_ca_path: str | None = None
    tls_cert_path: str | None = None
    tls_key_path: str | None = None
    sasl_mechanism: str | None = None
    session_timeout_ms: int | None = None
    client_dns_lookup: str | None = None
    enable_auto_commit: bool | None = None
    oauthbearer_token_refresh_cb: str | None = None

    def _check(self) -> None:
        self._check_registry()
        self._check_auth()
        if self.enable_auto_commit is True:
            raise self._wrong("cannot commit offsets by itself", "leave enable_auto_commit out, or say false.")
        if bool(self.tls_cert_path) != bool(self.tls_key_path):
            raise self._wrong("needs tls_cert_path and tls_key_path together")

    def _check_registry(self) -> None:
        registry = self.schema_registry
        if registry is None:
            return
        if not isinstance(registry, (str, SchemaRegistryConnection, GlueSchemaRegistryConnection)):
            message = f"kafka connection {self.name!r}: schema_registry must be a schema registry connection or a name"
            raise DeclareTypeError(message, origin=self.origin)
        if self.schema_registry_url:
            raise self._wrong("takes schema_registry or schema_registry_url, not both")
        if isinstance(registry, GlueSchemaRegistryConnection) and not (
            self.payload_format in {"avro", "protobuf"} or is_open(self.payload_format)
        ):
            raise self._wrong("uses a Glue schema registry", "set payload_format to 'avro' or 'protobuf'.")

    def _check_auth(self) -> None:
        named = (self.sasl_mechanism or "").removeprefix("SCRAM-").lower()
        if self.sasl_scram_username and not self.sasl_scram_mechanism and named.startswith("sha-"):
            self._set("sasl_scram_mechanism", named)
        logins = {
            "PLAIN": (self.sasl_plain_username, self.sasl_plain_password),
            "SCRAM": (self.sasl_scram_username, self.sasl_scram_password, self.sasl_scram_mechanism),
            "MSK-IAM": (self.msk_iam_region,),
        }
        chosen = [login for login, values in logins.items() if any(values)]
        if len(chosen) > 1:
            raise self._wrong(f"has more than one way to log in: {', '.join(chosen)}")
        for login in chosen:
            if not all(logins[login]):
                hint = "PLAIN: username and password; SCRAM: username, password and mechanism."
                raise self._wrong(f"has an incomplete {login} login", hint)
        self._check_mechanism(chosen)

    def _check_mechanism(self, chosen: list[str]) -> None:
        """Refuse a sasl_mechanism that the given credentials do not belong to; MSK-IAM may find its own."""
        if not self.sasl_mechanism or is_open(self.sasl_mechanism):
            return
        login = {"PLAIN": "PLAIN", "AWS_MSK_IAM": "MSK-IAM"}.get(self.sasl_mechanism, "SCRAM")
        if chosen != [login] and (chosen or login != "MSK-IAM"):
            raise self._wrong(f"says sasl_mechanism {self.sasl_mechanism}, but has no {login} login")
        if login == "SCRAM" and self.sasl_mechanism.lower() != f"scram-{self.sasl_scram_mechanism}":
            raise self._wrong("names two different SCRAM mechanisms")
