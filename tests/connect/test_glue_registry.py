from __future__ import annotations

import zlib
from typing import TYPE_CHECKING
from uuid import uuid4

import boto3
import pyarrow as pa
import pytest

from ematix_flow.connect.formats.avro import AvroDecoder
from ematix_flow.connect.formats.codecs import schema_encoder
from ematix_flow.connect.formats.protobuf import ProtobufDecoder
from ematix_flow.connect.schema_registry.base import PROTOBUF
from ematix_flow.connect.schema_registry.glue import GlueRegistry
from ematix_flow.connect.schema_registry.open import registry_of
from ematix_flow.declare.connection.brokers import GlueSchemaRegistryConnection, KafkaConnection
from ematix_flow.errors import TransientError
from tests.services.s3 import KEY, REGION, SECRET
from tests.services.server import free_port

if TYPE_CHECKING:
    from tests.services.s3 import S3Server

pytestmark = pytest.mark.service


@pytest.fixture
def glue(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> GlueSchemaRegistryConnection:
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", s3_server.endpoint)
    name = f"r-{uuid4().hex[:12]}"
    client = boto3.client("glue", region_name=REGION, aws_access_key_id=KEY, aws_secret_access_key=SECRET)
    client.create_registry(RegistryName=name)
    return GlueSchemaRegistryConnection("schemas", name, REGION, None, KEY, SECRET)


def kafka(glue: GlueSchemaRegistryConnection, payload_format: str) -> KafkaConnection:
    return KafkaConnection("k", bootstrap_servers="b", payload_format=payload_format, schema_registry=glue)


def test_rows_come_back_through_a_registry_of_aws(glue: GlueSchemaRegistryConnection) -> None:
    connection = kafka(glue, "avro")
    registry = registry_of(connection)
    messages = schema_encoder(connection, "orders").encode(pa.table({"id": [1, 2], "name": ["a", None]}))
    latest = registry.latest("orders")
    assert latest is not None
    assert messages[0][:2] == b"\3\0"
    assert registry.schema(latest.id) == latest
    packed = b"\3\5" + messages[0][2:18] + zlib.compress(messages[0][18:])
    cut = packed[:-4]
    unknown = b"\3\0" + uuid4().bytes + messages[0][18:]
    decoded = AvroDecoder(registry, (("id", "big_int"),)).decode([*messages, packed, b"\0" * 20, b"\3", cut, unknown])
    assert decoded.columns[0].to_pylist() == ["1", "2", "1", None, None, None, None]
    assert [error is None for error in decoded.wrong] == [True, True, True, False, False, False, False]
    assert "unknown schema" in str(decoded.wrong[6])


def test_a_message_of_protobuf_says_its_name_by_the_order_of_all(glue: GlueSchemaRegistryConnection) -> None:
    connection = kafka(glue, "protobuf")
    registry = registry_of(connection)
    text = 'syntax = "proto3"; message Order { int64 id = 1; message Line { int64 n = 1; } } message Alone { string a = 1; }'
    registry.register("orders", PROTOBUF, text)
    (encoded,) = schema_encoder(connection, "orders").encode(pa.table({"id": [5]}))
    assert encoded[18:] == b"\1\x08\5", "Alone, Order, Order.Line"
    read = ProtobufDecoder(registry).read
    assert read(encoded) == {"id": 5}
    assert read(encoded[:18] + b"\2\x08\7") == {"n": 7}
    assert read(encoded[:18] + b"\0\x0a\1x") == {"a": "x"}
    assert isinstance(read(encoded[:18] + b"\3"), str)


def test_a_registry_of_aws_that_is_away_may_be_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", f"http://127.0.0.1:{free_port()}")
    registry = GlueRegistry("away", REGION, None, KEY, "canary-glue-4P7s")
    with pytest.raises(TransientError, match="cannot be reached"):
        registry.schema(str(uuid4()))
    assert "canary" not in repr(registry)
