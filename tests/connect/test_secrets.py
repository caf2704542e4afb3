from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ematix_flow.connect.config.redact import redact, safe_text
from ematix_flow.connect.config.secrets import (
    AWSSecretsManagerResolver,
    GCPSecretManagerResolver,
    VaultResolver,
    expand,
    forget_secrets,
    known_secrets,
    prefixes_in,
    register_resolver,
    resolved,
    unregister_resolver,
)
from ematix_flow.declare.connection.registry import (
    KINDS,
    KafkaConnection,
    ObjectStoreLocalConnection,
    PostgresConnection,
    RedshiftConnection,
    SchemaRegistryConnection,
)
from ematix_flow.errors import DeclareError, DeclareTypeError, FlowError, MissingSecretError
from tests.declare.test_connection import COMPLETE


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    forget_secrets()


class Store:
    def __init__(self, **values: Any) -> None:
        self.values = values

    def resolve(self, reference: str) -> Any:
        return self.values[reference]


class Clients:
    """Stands in for the three cloud clients, with the answers that their documentation shows."""

    def __init__(self, stored: dict[str, Any]) -> None:
        self.stored = stored
        self.requests: list[Any] = []
        self.secrets = SimpleNamespace(kv=SimpleNamespace(v2=self))

    def read_secret_version(self, *, path: str, mount_point: str) -> dict[str, Any]:
        self.requests.append((mount_point, path))
        return {"data": {"data": self.stored[path]}}

    def get_secret_value(self, *, SecretId: str) -> dict[str, Any]:  # noqa: N803 - the name in boto3
        value = self.stored[SecretId]
        return {"SecretBinary": value} if isinstance(value, bytes) else {"SecretString": value}

    def access_secret_version(self, *, request: dict[str, str]) -> Any:
        self.requests.append(request["name"])
        return SimpleNamespace(payload=SimpleNamespace(data=b"gcp-value"))


def test_bare_names_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("U", "me")
    monkeypatch.setenv("DB_PASSWORD", "pa${U}ss")
    assert expand("postgres://${U}:${DB_PASSWORD}@h/${U}") == "postgres://me:pa${U}ss@h/me"
    assert expand("${env:U}") == "me"
    assert expand(None) is None
    assert expand("no reference, $U, {U}") == "no reference, $U, {U}"


@pytest.mark.parametrize("text", ["${UNSET_VARIABLE}", "${lower}", "${}", "${A-B}", "${A:-default}", "${vualt:x}"])
def test_what_cannot_be_resolved_is_a_key_error(text: str) -> None:
    with pytest.raises(KeyError) as caught:
        expand(text)
    assert isinstance(caught.value, MissingSecretError)


def test_an_unknown_prefix_names_the_known_ones() -> None:
    with pytest.raises(MissingSecretError, match="Known: env"):
        expand("${evn:X}")


def test_own_resolvers_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("U", "me")
    register_resolver("mine", Store(a="value-a", n=5))
    try:
        assert expand("${mine:a}/${U}") == "value-a/me"
        with pytest.raises(DeclareTypeError, match="must give text"):
            expand("${mine:n}")
    finally:
        unregister_resolver("mine")
    with pytest.raises(MissingSecretError, match="unknown prefix"):
        expand("${mine:a}")
    with pytest.raises(TypeError, match="resolve"):
        register_resolver("mine", object())  # type: ignore[arg-type]


def test_bare_names_work_without_the_env_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    from ematix_flow.connect.config.secrets import EnvResolver

    monkeypatch.setenv("U", "me")
    unregister_resolver("env")
    try:
        assert expand("${U}") == "me"
        with pytest.raises(MissingSecretError):
            expand("${env:U}")
    finally:
        register_resolver("env", EnvResolver())


def test_vault() -> None:
    clients = Clients({"app/db": {"password": "s3cret", "b": 1, "a": {"x": 2}}})
    vault = VaultResolver(clients)
    assert vault.resolve("app/db#password") == "s3cret"
    assert vault.resolve("app/db#a") == '{"x": 2}'
    assert vault.resolve("app/db") == json.dumps({"a": {"x": 2}, "b": 1, "password": "s3cret"})
    assert clients.requests[0] == ("secret", "app/db")
    with pytest.raises(MissingSecretError, match="no key 'user'"):
        vault.resolve("app/db#user")


def test_aws() -> None:
    aws = AWSSecretsManagerResolver(Clients({"plain": "text-value", "json": '{"a": "1", "b": [2]}', "bytes": b"raw"}))
    assert [aws.resolve(r) for r in ("plain", "json#a", "json#b", "bytes")] == ["text-value", "1", "[2]", "raw"]
    for reference in ("plain#a", "json#c"):
        with pytest.raises(MissingSecretError) as caught:
            aws.resolve(reference)
        assert "text-value" not in str(caught.value)


def test_gcp() -> None:
    clients = Clients({})
    short, full = "PW#3", "projects/p/secrets/PW/versions/9"
    for reference in ("PW", short, full):
        assert GCPSecretManagerResolver(clients, project="proj").resolve(reference) == "gcp-value"
    assert clients.requests == ["projects/proj/secrets/PW/versions/latest", "projects/proj/secrets/PW/versions/3", full]
    with pytest.raises(MissingSecretError, match="no project"):
        GCPSecretManagerResolver(clients).resolve("PW")


def test_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "DB_PASSWORD": "hunter22",
        "PIN": "123",
        "DB_HOST": "db.example.com",
        "SR_URL": "http://registry:8081",
        "HOOK": "https://hooks.example.com/services/T0/B0",
        "WAREHOUSE_DSN": "postgres://u:dsn-password@h/d",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
        expand(f"${{{name}}}")
    assert known_secrets() == {"hunter22", values["HOOK"], values["WAREHOUSE_DSN"], "dsn-password"}


def test_a_secret_store_is_remembered_whole_and_in_parts() -> None:
    register_resolver("mine", Store(all='{"user": "someone", "password": "hunter22"}', n="name"))
    try:
        expand("${mine:all}${mine:n}")
    finally:
        unregister_resolver("mine")
    assert {"someone", "hunter22", "name"} <= known_secrets()


def test_resolved_fills_in_every_field_and_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "c4n4ry-5ecret")
    registry = SchemaRegistryConnection("sr", "http://${CANARY}", "u", "${CANARY}")
    kafka = KafkaConnection("k", "${CANARY}:9092", group_id="${CANARY}", schema_registry=registry)
    filled = resolved(kafka)
    assert filled.bootstrap_servers == "c4n4ry-5ecret:9092"
    assert isinstance(filled.schema_registry, SchemaRegistryConnection)
    assert filled.schema_registry.basic_auth_password == "c4n4ry-5ecret"
    assert repr(filled) == str(filled) == f"{filled}" == repr(kafka)
    assert filled.origin == kafka.origin
    assert resolved(filled) is filled


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_no_field_of_any_kind_shows_what_was_filled_in(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "c4n4ry-5ecret")
    whole = KINDS[kind]("c", **COMPLETE[kind])
    for field in whole.settings():
        for text in ("${CANARY}", "http://u:${CANARY}@h", "a ${CANARY}, b"):
            try:
                filled = resolved(replace(whole, **{field: text}))
                shown = [
                    repr(filled),
                    f"{filled}",
                    format(filled, "<9"),
                    str(filled.described()),
                    redact(str(filled.settings())),
                ]
            except FlowError as error:
                shown = [str(error), repr(error), safe_text(error)]
            assert "c4n4ry" not in " ".join(shown)


def test_resolved_judges_what_had_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORMAT", "JSONL")
    monkeypatch.setenv("PORT", "5440")
    assert resolved(ObjectStoreLocalConnection("f", "/d", "${FORMAT}")).format == "json_lines"
    redshift = RedshiftConnection("r", "h", "${PORT}", "d", "u", "p")  # type: ignore[arg-type]
    assert resolved(redshift).port == 5440
    monkeypatch.setenv("FORMAT", "c4n4ry-5ecret")
    with pytest.raises(DeclareError, match="unknown format") as caught:
        resolved(ObjectStoreLocalConnection("f", "/d", "${FORMAT}"))
    assert "c4n4ry" not in str(caught.value)


def test_literal_passwords_are_remembered_too() -> None:
    resolved(PostgresConnection("p", "postgres://u:p%40ssword@h/d?sslpassword=other-one"))
    resolved(KafkaConnection("k", "h:1", sasl_plain_username="user-name", sasl_plain_password="third-one"))
    assert known_secrets() == {"p%40ssword", "p@ssword", "other-one", "third-one"}


def test_prefixes() -> None:
    assert prefixes_in("${A}${env:B}${vault:c#d}") == {"env", "vault"}
