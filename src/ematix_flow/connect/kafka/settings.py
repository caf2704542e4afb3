"""What a declared Kafka connection means to librdkafka; opens nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.errors import DeclareError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.connection.brokers import KafkaConnection

LARGEST_MESSAGE = 1_000_000_000
"""Bytes of a message that producers let pass: how many a topic takes is decided by its brokers."""


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


def _login(connection: KafkaConnection) -> tuple[str, str]:
    user = connection.sasl_plain_username or connection.sasl_scram_username
    return user or "", connection.sasl_plain_password or connection.sasl_scram_password or ""


def _msk_tokens(connection: KafkaConnection) -> Callable[[str], tuple[str, float]]:
    """Return the function that librdkafka calls for a token of AWS and the second in which it expires."""
    try:
        import boto3
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ModuleNotFoundError as error:
        message = f"a login by IAM needs the package {error.name!r}, which is not installed"
        raise MissingExtraError(message, hint='pip install "ematix-flow-spark[msk]"') from None
    region = connection.msk_iam_region or boto3.session.Session().region_name
    if not region:
        message = f"kafka connection {connection.name!r} logs in by IAM, and no region is configured"
        raise DeclareError(message, hint="set msk_iam_region.", origin=connection.origin)

    def token(_: str) -> tuple[str, float]:
        text, milliseconds = MSKAuthTokenProvider.generate_auth_token(region)
        return text, milliseconds / 1000

    return token
