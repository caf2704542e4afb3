from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

import pytest

from ematix_flow.connect.schema_registry.base import AVRO
from ematix_flow.connect.schema_registry.open import registry_of
from ematix_flow.declare.connection.brokers import KafkaConnection, SchemaRegistryConnection
from ematix_flow.declare.connection.registry import register_connection
from ematix_flow.engine.doctor import check_health
from ematix_flow.errors import DeclareError, RunError, TransientError, UnsupportedError
from tests.connect.registries import Gate, record, registry_at
from tests.services.http_faults import FaultyProxy
from tests.services.server import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services.registry import RegistryServer

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("registry")]
SCHEMA = record(("id", "long"))


@pytest.fixture
def proxy(registry_server: RegistryServer) -> Iterator[FaultyProxy]:
    proxy_server = FaultyProxy(registry_server.port)
    yield proxy_server
    proxy_server.close()


def test_a_schema_is_found_by_its_number_and_by_its_subject(registry_server: RegistryServer) -> None:
    registry, subject = registry_at(registry_server.url), registry_server.subject()
    assert registry.latest(subject) is None
    registered = registry.register(subject, AVRO, SCHEMA)
    assert registry.register(subject, AVRO, SCHEMA) == registered
    assert registry.latest(subject) == registry.schema(registered.id) == registered


def test_a_number_that_the_registry_does_not_know_is_no_error(
    proxy: FaultyProxy, registry_server: RegistryServer
) -> None:
    registry = registry_at(f"{proxy.endpoint}/apis/ccompat/v7")
    assert registry.schema(2**31 - 1) is None
    assert registry.schema(2**31 - 1) is None
    assert proxy.methods == ["GET"], "a message after the other would ask again"


def test_a_schema_is_asked_for_once(proxy: FaultyProxy, registry_server: RegistryServer) -> None:
    registry = registry_at(f"{proxy.endpoint}/apis/ccompat/v7")
    registered = registry.register(registry_server.subject(), AVRO, SCHEMA)
    assert [registry.schema(registered.id) for _ in range(3)] == [registered] * 3
    assert proxy.methods == ["POST", "GET"]


@pytest.mark.parametrize("fault", ["busy", "broken", "lost", "unanswered"])
def test_a_registry_that_stumbles_is_asked_again(
    proxy: FaultyProxy, registry_server: RegistryServer, no_waits: None, fault: str
) -> None:
    registry = registry_at(f"{proxy.endpoint}/apis/ccompat/v7")
    proxy.faults.extend([("POST", fault), ("POST", fault)])
    registered = registry.register(registry_server.subject(), AVRO, SCHEMA)
    assert proxy.methods == ["POST"] * 3
    assert registry.schema(registered.id) == registered


def test_a_registry_that_is_away_may_be_tried_again_later(no_waits: None) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(TransientError, match=f"{url} cannot be reached"):
        registry_at(url).schema(1)


def test_an_address_that_is_no_registry_is_told_apart_from_a_missing_schema(registry_server: RegistryServer) -> None:
    for wrong in ("/elsewhere", "/apis/registry/v3"):
        with pytest.raises(RunError, match="no schema registry") as caught:
            registry_at(registry_server.url.replace("/apis/ccompat/v7", wrong)).schema(1)
        assert "/apis/ccompat/v7" in str(caught.value)
        assert not caught.value.transient


def test_an_incompatible_schema_is_refused_by_the_registry_with_its_reason() -> None:
    with (
        Gate(409, {"error_code": 409, "message": "incompatible: id was long"}) as gate,
        pytest.raises(RunError) as caught,
    ):
        registry_at(gate.url).latest("orders-value")
    assert "incompatible: id was long" in str(caught.value)


def test_a_login_goes_with_every_request() -> None:
    expected = "Basic " + b64encode(b"me:canary-registry-2J9k").decode()
    with Gate(404, {"error_code": 40401}) as gate:
        assert (
            registry_at(gate.url, basic_auth_user="me", basic_auth_password="canary-registry-2J9k").latest("a") is None
        )
        url = gate.url.replace("//", "//me:canary-registry-2J9k@")
        assert registry_of(KafkaConnection("k", bootstrap_servers="b", schema_registry_url=url)).latest("a") is None
        assert registry_at(gate.url).latest("a") is None
        assert gate.logins == [expected, expected, None]


def test_a_refused_login_is_an_error_that_shows_no_password() -> None:
    with Gate(401, {}) as gate, pytest.raises(RunError, match="refuses the login") as caught:
        registry_at(gate.url, basic_auth_user="me", basic_auth_password="canary-registry-2J9k").latest("a")
    assert "canary" not in str(caught.value)


def test_a_login_never_follows_an_answer_elsewhere() -> None:
    with Gate(200, {"id": 1, "schema": SCHEMA}) as other, Gate(302, {}, {"Location": other.url}) as gate:
        with pytest.raises(RunError, match="no schema registry"):
            registry_at(gate.url, basic_auth_user="me", basic_auth_password="p").latest("a")
        assert other.logins == []


def test_payloads_with_schemas_need_a_registry() -> None:
    with pytest.raises(UnsupportedError, match="no schema registry"):
        registry_of(KafkaConnection("events", bootstrap_servers="b", payload_format="avro"))
    with pytest.raises(RunError, match="http"):
        registry_of(
            KafkaConnection(
                "events", bootstrap_servers="b", payload_format="avro", schema_registry_url="file:///etc/passwd"
            )
        )
    with pytest.raises(DeclareError, match="together"):
        registry_at("http://localhost", basic_auth_user="me")


def test_a_check_says_whether_a_registry_answers(registry_server: RegistryServer) -> None:
    register_connection(SchemaRegistryConnection("here", registry_server.url))
    register_connection(SchemaRegistryConnection("nowhere", f"http://127.0.0.1:{free_port()}"))
    registry, nowhere = check_health("here"), check_health("nowhere")
    assert (registry.status, nowhere.status) == ("ok", "fail")
    assert "subjects" in registry.detail
    assert "cannot be reached" in nowhere.detail
