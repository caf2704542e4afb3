from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from ematix_flow.declare.connection.registry import (
    KINDS,
    BigQueryConnection,
    DeltaLocalConnection,
    DeltaS3Connection,
    DuckDBConnection,
    GlueSchemaRegistryConnection,
    IcebergConnection,
    KafkaConnection,
    MySQLConnection,
    ObjectStoreLocalConnection,
    ObjectStoreS3Connection,
    PostgresConnection,
    PubSubConnection,
    RedshiftConnection,
    SchemaRegistryConnection,
    SnowflakeConnection,
    SQLiteConnection,
    connection_from_class,
    connection_from_fields,
    connection_from_url,
    dsn_of,
    get_connection,
    register_connection,
    registered_connections,
)
from ematix_flow.errors import DeclareError, DeclareTypeError, UnknownNameError

if TYPE_CHECKING:
    from ematix_flow.declare.connection.registry import Connection

S3 = {"endpoint": "http://s3", "bucket": "b", "region": "r", "access_key_id": "a", "secret_access_key": "s"}
COMPLETE: dict[str, dict[str, object]] = {
    "postgres": {"url": "postgres://h/db"},
    "mysql": {"url": "mysql://h/db"},
    "sqlite": {"path": "x.db"},
    "duckdb": {"path": "x.duckdb"},
    "delta_local": {"path": "/lake"},
    "delta_s3": S3,
    "iceberg": {"warehouse": "/lake"},
    "object_store_local": {"path": "/files", "format": "csv"},
    "object_store_s3": {**S3, "format": "parquet"},
    "object_store_gcs": {"bucket": "b", "format": "parquet", "anonymous": True},
    "object_store_azure": {"account": "a", "container": "c", "format": "csv", "account_key": "k"},
    "kafka": {"bootstrap_servers": "h:9092"},
    "rabbitmq": {"amqp_url": "amqp://h"},
    "pubsub": {"project_id": "p"},
    "kinesis": {"stream_name": "s"},
    "postgres_cdc": {"url": "postgresql://u:p@h/d"},
    "mysql_cdc": {"url": "mysql://u:p@h/d"},
    "schema_registry": {"url": "http://sr"},
    "glue_schema_registry": {"registry_name": "g", "region": "r"},
    "snowflake": {"account": "a", "user": "u", "password": "p"},
    "bigquery": {"project": "p", "dataset": "d"},
    "redshift": {"host": "h", "database": "d", "user": "u", "password": "p"},
}


def test_every_kind_is_covered_here() -> None:
    assert set(COMPLETE) == set(KINDS)


@pytest.mark.parametrize("kind", sorted(COMPLETE))
def test_complete_fields_build_and_each_required_one_is_missed(kind: str) -> None:
    connection = connection_from_fields("c", {"kind": kind, **COMPLETE[kind]})
    assert type(connection) is KINDS[kind]
    assert connection.kind == kind
    assert pickle.loads(pickle.dumps(connection)) == connection  # noqa: S301
    hash(connection)
    for field in COMPLETE[kind]:
        rest = {name: value for name, value in COMPLETE[kind].items() if name != field}
        with pytest.raises(ValueError, match=field):
            connection_from_fields("c", {"kind": kind, **rest})


def test_prefix_is_optional_and_positional_order_is_kept() -> None:
    assert DeltaS3Connection("c", "e", "b", "r", "a", "s", "p").prefix == "p"
    assert KafkaConnection("c", "h:1", "g", "json").payload_format == "json"


def test_defaults() -> None:
    redshift = RedshiftConnection("c", host="h", database="d", user="u@x", password="p/w")
    assert redshift.to_postgres_url() == "postgresql://u%40x:p%2Fw@h:5439/d"
    assert PubSubConnection("c", "p").anonymous_auth is False
    assert SnowflakeConnection("c", "a", "u", private_key="k").password is None
    assert BigQueryConnection("c", "p", "d").location is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"schema_registry": "sr", "schema_registry_url": "http://sr"}, "schema_registry"),
        ({"schema_registry": GlueSchemaRegistryConnection("g", "g", "r")}, "Glue"),
        ({"schema_registry": GlueSchemaRegistryConnection("g", "g", "r"), "payload_format": "json"}, "Glue"),
        ({"sasl_plain_username": "u"}, "incomplete PLAIN"),
        ({"sasl_scram_username": "u", "sasl_scram_password": "p"}, "incomplete SCRAM"),
        ({"sasl_plain_username": "u", "sasl_plain_password": "p", "msk_iam_region": "r"}, "more than one way"),
        ({"sasl_mechanism": "PLAIN"}, "no PLAIN login"),
        ({"sasl_mechanism": "AWS_MSK_IAM", "sasl_plain_username": "u", "sasl_plain_password": "p"}, "no MSK-IAM login"),
        ({"payload_format": "jsn"}, "did you mean 'json'"),
        ({"auto_offset_reset": "earlest"}, "did you mean 'earliest'"),
        ({"tls_cert_path": "/c"}, "together"),
        ({"enable_auto_commit": True}, "commit offsets"),
    ],
)
def test_kafka_refuses(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        connection_from_fields("k", {"kind": "kafka", "bootstrap_servers": "h:1", **fields})


def test_kafka_accepts_each_way_to_log_in() -> None:
    glue = GlueSchemaRegistryConnection("g", "g", "r")
    assert KafkaConnection("k", "h:1", payload_format="avro", schema_registry=glue).schema_registry is glue
    assert KafkaConnection("k", "h:1", schema_registry="sr").schema_registry == "sr"
    scram = {"sasl_scram_username": "u", "sasl_scram_password": "p"}
    assert KafkaConnection("k", "h:1", **scram, sasl_scram_mechanism="SCRAM-SHA-512").sasl_scram_mechanism == "sha-512"
    assert KafkaConnection("k", "h:1", **scram, sasl_mechanism="SCRAM-SHA-256").sasl_scram_mechanism == "sha-256"
    with pytest.raises(TypeError, match="schema_registry"):
        KafkaConnection("k", "h:1", schema_registry=PostgresConnection("p", "postgres://h/d"))


@pytest.mark.parametrize(
    "fields",
    [
        {"aws_access_key_id": "a"},
        {"aws_secret_access_key": "s"},
        {"aws_profile": "p", "aws_access_key_id": "a", "aws_secret_access_key": "s"},
    ],
)
def test_glue_refuses_half_and_double_credentials(fields: dict[str, str]) -> None:
    with pytest.raises(DeclareError):
        GlueSchemaRegistryConnection("g", "g", "r", **fields)


def test_other_rules() -> None:
    with pytest.raises(DeclareError, match="together"):
        SchemaRegistryConnection("s", "http://sr", basic_auth_user="u")
    with pytest.raises(DeclareError, match="needs uri, warehouse"):
        IcebergConnection("i", catalog_type="jdbc")
    assert IcebergConnection("i", catalog_type="rest", uri="http://c").kind == "iceberg"
    with pytest.raises(DeclareError, match="timezone"):
        PostgresConnection("p", "postgres://h/d", timezone="Mars/Base")
    with pytest.raises(DeclareError, match="URL of mysql"):
        PostgresConnection("p", "mysql://h/d")
    with pytest.raises(DeclareTypeError, match="url must be text"):
        PostgresConnection("p", 5)  # type: ignore[arg-type]


def test_read_options_belong_to_their_format() -> None:
    assert ObjectStoreLocalConnection("f", "/d", "jsonl").format == "json_lines"
    files = ObjectStoreLocalConnection("f", "/d", "csv", csv_read_options={"delimiter": ";"})
    assert files.csv_read_options == {"delimiter": ";"}
    with pytest.raises(ValueError, match="belong to format 'csv'"):
        ObjectStoreLocalConnection("f", "/d", "parquet", csv_read_options={})
    with pytest.raises(ValueError, match="did you mean 'delimiter'"):
        ObjectStoreLocalConnection("f", "/d", "csv", csv_read_options={"delimeter": ";"})
    with pytest.raises(ValueError, match="did you mean 'parquet'"):
        ObjectStoreLocalConnection("f", "/d", "parket")


def test_content_behind_a_reference_waits() -> None:
    files = ObjectStoreLocalConnection("f", "${DIR}", "${FORMAT}", csv_read_options={"delimiter": ";"})
    assert files.format == "${FORMAT}"
    assert connection_from_fields("r", {"kind": "redshift", **COMPLETE["redshift"], "port": "${PORT}"})
    with pytest.raises(ValueError, match="port must be a whole number"):
        connection_from_fields("r", {"kind": "redshift", **COMPLETE["redshift"], "port": "many"})


def test_class_body() -> None:
    class warehouse:  # noqa: N801 - users write connections in lower case
        kind = "postgres"
        url = "${WAREHOUSE_DSN}"
        timezone = "Europe/Berlin"

        def helper(self) -> None: ...

    connection = connection_from_class(warehouse)
    assert connection == PostgresConnection("warehouse", "${WAREHOUSE_DSN}", timezone="Europe/Berlin")
    assert connection.origin is not None
    assert connection.origin.file == __file__
    assert registered_connections() == {}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "Kinds: bigquery, delta_local"),
        ({"kind": "postgrs", "url": "x"}, "did you mean 'postgres'"),
        ({"kind": "postgres", "ulr": "x"}, "did you mean 'url'"),
        ({"kind": "postgres", "type": "postgres", "url": "x"}, "kind and type"),
        ({"kind": "kafka", "brokers": "h", "bootstrap_servers": "h"}, "bootstrap_servers twice"),
    ],
)
def test_class_body_refuses(body: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        connection_from_class(type("c", (), body))


def test_spellings() -> None:
    brokers = {
        "type": "kafka",
        "brokers": ["a:1", "b:2"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "AWS_MSK_IAM",
    }
    extra = {"oauthbearer_token_refresh_cb": "m:f", "enable_auto_commit": False, "session_timeout_ms": 45000}
    kafka = connection_from_fields("k", {**brokers, **extra, "client_dns_lookup": "use_all_dns_ips"})
    assert isinstance(kafka, KafkaConnection)
    assert (kafka.bootstrap_servers, kafka.security_protocol) == ("a:1,b:2", "SASL_SSL")
    lake = connection_from_fields("l", {"type": "s3", "bucket": "b", "region": "r", "prefix": "p/"})
    assert isinstance(lake, ObjectStoreS3Connection)
    assert (lake.format, lake.default_credentials, lake.prefix) == ("parquet", True, "p/")
    assert isinstance(connection_from_fields("d", {"kind": "delta", "path": "/x"}), DeltaLocalConnection)
    assert isinstance(connection_from_fields("d", {"kind": "delta", **S3}), DeltaS3Connection)
    assert isinstance(connection_from_fields("p", {"type": "PostgreSQL", "dsn": "postgres://h/d"}), PostgresConnection)
    assert isinstance(connection_from_fields("m", {"url": "mariadb://h/d"}), MySQLConnection)
    assert connection_from_fields("d", {"kind": "duckdb", "url": "duckdb:////v/a"}) == DuckDBConnection("d", "/v/a")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://h/d", PostgresConnection("c", "postgresql://h/d")),
        ("mysql+pymysql://h/d", MySQLConnection("c", "mysql+pymysql://h/d")),
        (":memory:", SQLiteConnection("c", ":memory:")),
        ("sqlite://", SQLiteConnection("c", ":memory:")),
        ("sqlite:///:memory:", SQLiteConnection("c", ":memory:")),
        ("sqlite:///data/x.db", SQLiteConnection("c", "data/x.db")),
        ("sqlite:////data/x.db", SQLiteConnection("c", "/data/x.db")),
        ("duckdb:///x", DuckDBConnection("c", "x")),
        ("duckdb:////x", DuckDBConnection("c", "/x")),
        ("duckdb://", DuckDBConnection("c", ":memory:")),
    ],
)
def test_urls(url: str, expected: Connection) -> None:
    connection = connection_from_url("c", url)
    assert connection == expected
    assert connection_from_url("c", dsn_of(connection) or "") == connection


@pytest.mark.parametrize("url", ["oracle://u:hunter22@h/d", "hunter22", "sqlite://hunter22/x"])
def test_a_refused_url_is_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match=r"sqlite://") as caught:
        connection_from_url("c", url)
    assert "hunter22" not in str(caught.value)


def test_registry() -> None:
    first = register_connection(PostgresConnection("w", "postgres://h/1"))
    second = register_connection(PostgresConnection("w", "postgres://h/2"))
    assert get_connection("w") is second is not first
    registered_connections().clear()
    with pytest.raises(UnknownNameError, match="Known: w"):
        get_connection("ww")
    with pytest.raises(TypeError, match="takes a Connection"):
        register_connection("w")  # type: ignore[type-var]
