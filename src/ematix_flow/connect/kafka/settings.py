"""What a declared Kafka connection means to the two clients that use it, librdkafka and the one in Java; opens nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.errors import DeclareError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.connection.brokers import KafkaConnection

LARGEST_MESSAGE = 1_000_000_000
"""Bytes of a message that producers let pass: how many a topic takes is for its brokers to say."""

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_MSK = "software.amazon.msk.auth.iam"


def mechanism_of(connection: KafkaConnection) -> str:
    """Return how the client logs in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, AWS_MSK_IAM, or nothing."""
    if connection.sasl_plain_username:
        return "PLAIN"
    if connection.sasl_scram_username:
        return f"SCRAM-{(connection.sasl_scram_mechanism or '').upper()}"
    return "AWS_MSK_IAM" if connection.msk_iam_region or connection.sasl_mechanism == "AWS_MSK_IAM" else ""


def protocol_of(connection: KafkaConnection) -> str:
    """Return the security protocol: the declared one, else one under which no password travels in the clear."""
    if connection.security_protocol:
        return connection.security_protocol
    if mechanism_of(connection):
        return "SASL_SSL"
    return "SSL" if connection.tls_ca_path or connection.tls_cert_path else "PLAINTEXT"


def client_settings(connection: KafkaConnection) -> dict[str, Any]:
    """Return the settings for librdkafka; secrets among them, so they are for clients only."""
    mechanism = mechanism_of(connection)
    settings: dict[str, Any] = {
        "bootstrap.servers": connection.bootstrap_servers,
        "security.protocol": protocol_of(connection),
        "ssl.ca.location": connection.tls_ca_path,
        "ssl.certificate.location": connection.tls_cert_path,
        "ssl.key.location": connection.tls_key_path,
        "session.timeout.ms": connection.session_timeout_ms,
        "client.dns.lookup": connection.client_dns_lookup,
    }
    if mechanism == "AWS_MSK_IAM":
        settings |= {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": _msk_tokens(connection)}
    elif mechanism:
        user, password = _login(connection)
        settings |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    return {key: value for key, value in settings.items() if value is not None}


def spark_options(connection: KafkaConnection) -> dict[str, str]:
    """Return the options for Spark's reader and writer; certificates go as text, for tasks do not see the driver's files."""
    mechanism = mechanism_of(connection)
    settings: dict[str, str | None] = {
        "bootstrap.servers": connection.bootstrap_servers,
        "security.protocol": protocol_of(connection),
        "client.dns.lookup": connection.client_dns_lookup,
        "sasl.mechanism": mechanism or None,
    }
    if mechanism == "AWS_MSK_IAM":
        settings["sasl.jaas.config"] = f"{_MSK}.IAMLoginModule required;"
        settings["sasl.client.callback.handler.class"] = f"{_MSK}.IAMClientCallbackHandler"
    elif mechanism:
        user, password = map(_quoted, _login(connection))
        module = _PLAIN if mechanism == "PLAIN" else _SCRAM
        settings["sasl.jaas.config"] = f"{module} required username={user} password={password};"
    settings |= _java_certificates(connection)
    return {f"kafka.{key}": value for key, value in settings.items() if value is not None}


def _login(connection: KafkaConnection) -> tuple[str, str]:
    user = connection.sasl_plain_username or connection.sasl_scram_username
    return user or "", connection.sasl_plain_password or connection.sasl_scram_password or ""


def _quoted(text: str) -> str:
    """Return the text as a value of a JAAS line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _java_certificates(connection: KafkaConnection) -> dict[str, str]:
    settings: dict[str, str] = {}
    if connection.tls_ca_path:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _text(connection, "tls_ca_path")}
    if connection.tls_cert_path and connection.tls_key_path:
        key = _text(connection, "tls_key_path")
        if "BEGIN PRIVATE KEY" not in key:
            message = f"kafka connection {connection.name!r}: Java cannot read the key in {connection.tls_key_path}"
            raise DeclareError(
                message, hint="write it as plain PKCS #8: openssl pkcs8 -topk8 -nocrypt -in KEY -out NEW"
            )
        chain = _text(connection, "tls_cert_path")
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
    return settings


def _text(connection: KafkaConnection, field: str) -> str:
    path = str(getattr(connection, field))
    try:
        return Path(path).expanduser().read_text("ascii")
    except (OSError, UnicodeDecodeError):
        message = f"kafka connection {connection.name!r}: {field} {path} is no PEM file that can be read"
        raise DeclareError(message, origin=connection.origin) from None


def _msk_tokens(connection: KafkaConnection) -> Callable[[str], tuple[str, float]]:
    """Return the function that librdkafka asks for a token of AWS and the second in which it ends."""
    try:
        import boto3
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ModuleNotFoundError as error:
        message = f"a login by IAM needs the package {error.name!r}, which is not installed"
        raise MissingExtraError(message, hint='pip install "ematix-flow-spark[msk]"') from None
    region = connection.msk_iam_region or boto3.session.Session().region_name
    if not region:
        message = f"kafka connection {connection.name!r} logs in by IAM, and nobody says in which region"
        raise DeclareError(message, hint="set msk_iam_region.", origin=connection.origin)

    def token(_: str) -> tuple[str, float]:
        text, milliseconds = MSKAuthTokenProvider.generate_auth_token(region)
        return text, milliseconds / 1000

    return token
