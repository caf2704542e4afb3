from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.kafka.cluster import Kafka
from ematix_flow.connect.kafka.settings import client_settings
from ematix_flow.declare.connection.brokers import KafkaConnection
from ematix_flow.errors import DeclareError, MissingExtraError

if TYPE_CHECKING:
    from pathlib import Path


def kafka(**fields: Any) -> KafkaConnection:
    return KafkaConnection("events", bootstrap_servers="a:9092,b:9092", **fields)


def test_without_a_login_nothing_is_encrypted() -> None:
    plain = {"bootstrap.servers": "a:9092,b:9092", "security.protocol": "PLAINTEXT"}
    assert client_settings(kafka()) == plain


def test_a_password_travels_encrypted_unless_the_declaration_says_otherwise() -> None:
    login = kafka(sasl_plain_username="me", sasl_plain_password="p")
    assert client_settings(login)["security.protocol"] == "SASL_SSL"
    open_login = kafka(sasl_plain_username="me", sasl_plain_password="p", security_protocol="SASL_PLAINTEXT")
    assert client_settings(open_login)["security.protocol"] == "SASL_PLAINTEXT"


def test_a_login_by_scram_is_spelled_out() -> None:
    login = kafka(sasl_scram_username="me", sasl_scram_password='a"b\\c', sasl_scram_mechanism="sha-512")
    settings = client_settings(login)
    assert (settings["sasl.mechanism"], settings["sasl.username"], settings["sasl.password"]) == (
        "SCRAM-SHA-512", "me", 'a"b\\c',
    )  # fmt: skip


def test_certificates_are_named_by_their_files(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("ca", "cert", "key")}
    for name, file in files.items():
        file.write_text(f"-----BEGIN {'PRIVATE KEY' if name == 'key' else 'CERTIFICATE'}-----\n{name}\n")
    tls = kafka(**{f"tls_{name}_path": str(file) for name, file in files.items()})
    settings = client_settings(tls)
    assert settings["security.protocol"] == "SSL"
    assert settings["ssl.key.location"] == str(files["key"])


def test_a_login_by_iam_has_tokens_that_end_in_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAX")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-iam")
    settings = client_settings(kafka(msk_iam_region="eu-central-1"))
    assert (settings["sasl.mechanism"], settings["security.protocol"]) == ("OAUTHBEARER", "SASL_SSL")
    token, end = settings["oauth_cb"]("")
    assert "canary-iam" not in token
    assert timedelta(0) < datetime.fromtimestamp(end, UTC) - datetime.now(UTC) <= timedelta(minutes=15)


def test_a_login_by_iam_needs_a_region_from_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(DeclareError, match="set msk_iam_region"):
        client_settings(kafka(sasl_mechanism="AWS_MSK_IAM"))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    assert client_settings(kafka(sasl_mechanism="AWS_MSK_IAM"))["sasl.mechanism"] == "OAUTHBEARER"


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(MissingExtraError, match=r"ematix-flow-spark\[msk\]"):
        client_settings(kafka(msk_iam_region="eu-central-1"))
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka", None)
    with pytest.raises(MissingExtraError, match=r"ematix-flow-spark\[kafka\]"):
        Kafka(kafka()).probe()
