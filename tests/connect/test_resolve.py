from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ematix_flow.connect.config.lookup import (
    ConnectionEntry,
    find_connection,
    resolve_connection,
    resolve_dsn,
)
from ematix_flow.connect.config.secrets import forget_secrets
from ematix_flow.connect.config.sources import file_entries
from ematix_flow.declare.connection.registry import (
    DuckDBConnection,
    KafkaConnection,
    ObjectStoreS3Connection,
    PostgresConnection,
    SchemaRegistryConnection,
    connection_from_class,
    register_connection,
)
from ematix_flow.errors import ConnectionMissingError, DeclareError, DeclareTypeError, MissingSecretError

if TYPE_CHECKING:
    from collections.abc import Callable

    Env = Callable[[str, str], None]

USER = "~/.ematix-flow/connections.toml"
PROJECT = "./.ematix-flow.toml"
FOLDER = "./connections.toml"


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> Env:
    forget_secrets()
    return monkeypatch.setenv


def write(file: str, text: str) -> Path:
    path = Path(file).expanduser()
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# --- the chain -------------------------------------------------------------------------------------------------------


def test_each_place_beats_the_ones_below(env: Env) -> None:
    register_connection(PostgresConnection("raw-db", "postgres://h/registry"))
    expected = [("postgres://h/registry", "registered in this process")]
    write(USER, '[connections.raw-db]\nurl = "postgres://h/user"')
    expected.append(("postgres://h/user", USER))
    write(FOLDER, '[connections.raw-db]\nurl = "postgres://h/folder"')
    expected.append(("postgres://h/folder", FOLDER))
    write(PROJECT, '[connections.raw-db]\nurl = "postgres://h/project"')
    expected.append(("postgres://h/project", PROJECT))
    env("EMATIX_FLOW_DSN_RAW_DB", "postgres://h/env")
    expected.append(("postgres://h/env", "environment EMATIX_FLOW_DSN_RAW_DB"))
    files = {PROJECT: Path(PROJECT), FOLDER: Path(FOLDER), USER: Path(USER).expanduser()}
    for url, file in reversed(expected):
        assert find_connection("raw-db") == ConnectionEntry(PostgresConnection("raw-db", url), file)
        if file in files:
            files[file].unlink()
        else:
            env("EMATIX_FLOW_DSN_RAW_DB", "")


def test_default_has_a_variable_of_its_own(env: Env) -> None:
    env("EMATIX_FLOW_DSN", "postgres://h/short")
    assert resolve_dsn() == "postgres://h/short"
    env("EMATIX_FLOW_DSN_DEFAULT", "postgres://h/long")
    assert resolve_dsn() == "postgres://h/long"
    with pytest.raises(LookupError):
        resolve_dsn("other")


def test_a_decorated_class_alone_is_enough(env: Env) -> None:
    class warehouse:  # noqa: N801 - users write connections in lower case
        kind = "postgres"
        url = "${WAREHOUSE_URL}"

    env("WAREHOUSE_URL", "postgres://u:pw@h/wh")
    register_connection(connection_from_class(warehouse))
    assert resolve_dsn("warehouse") == "postgres://u:pw@h/wh"


def test_url_and_kind_entries_of_a_file_are_seen(env: Env) -> None:
    env("WAREHOUSE_PASSWORD", "pw")
    env("KAFKA_BOOTSTRAP", "b:9092")
    write(
        USER,
        '[connections.warehouse]\nurl = "postgres://user:${WAREHOUSE_PASSWORD}@host/wh"\n'
        '[connections.kafka_prod]\nkind = "kafka"\nbootstrap_servers = "${KAFKA_BOOTSTRAP}"\ngroup_id = "ematix-flow"\n'
        '[connections.analytics]\ntype = "duckdb"\npath = "/var/data/a.duckdb"\n'
        '[connections.lake]\ntype = "s3"\nbucket = "b"\nregion = "r"\nprefix = "p/"\n'
        '[connections.old]\ntype = "postgres"\ndsn = "postgres://h/old"\n'
        '[[connection]]\nname = "block"\nkind = "sqlite"\npath = "x.db"\n'
        '[spark]\nmaster = "local[2]"\n',
    )
    assert resolve_connection("warehouse") == PostgresConnection("warehouse", "postgres://user:pw@host/wh")
    assert resolve_connection("kafka_prod") == KafkaConnection("kafka_prod", "b:9092", "ematix-flow")
    assert resolve_connection("analytics") == DuckDBConnection("analytics", "/var/data/a.duckdb")
    assert isinstance(resolve_connection("lake"), ObjectStoreS3Connection)
    assert resolve_dsn("old") == "postgres://h/old"
    assert resolve_dsn("block") == "sqlite:///x.db"
    assert str(find_connection("analytics").connection.origin) == f"{USER}:7"


def test_a_url_that_is_a_reference_as_a_whole_tells_its_kind_late(env: Env) -> None:
    write(PROJECT, '[connections]\nx = "${X_URL}"\ny = {url = "${Y_URL}", timezone = "UTC"}')
    env("X_URL", "duckdb:///x.db")
    env("Y_URL", "mysql://u:c4n4ry@h/d")
    assert resolve_connection("x") == DuckDBConnection("x", "x.db")
    connection = find_connection("y").connection
    assert (connection.kind, connection.settings()["url"]) == ("mysql", "${Y_URL}")
    assert "c4n4ry" not in repr(resolve_connection("y"))


def test_values_of_the_environment_are_expanded_too(env: Env) -> None:
    env("EMATIX_FLOW_DSN_W", "postgres://u:${PW}@h/d")
    env("PW", "pw")
    assert resolve_dsn("w") == "postgres://u:pw@h/d"


def test_one_unset_variable_breaks_one_entry_only() -> None:
    write(PROJECT, '[connections.a]\nurl = "postgres://${UNSET}@h/a"\n[connections.b]\nurl = "postgres://h/b"')
    assert resolve_dsn("b") == "postgres://h/b"
    with pytest.raises(MissingSecretError, match=r"'a' \(\./\.ematix-flow\.toml\): .*UNSET"):
        resolve_connection("a")


def test_a_missing_connection_names_every_way_and_the_near_name(env: Env) -> None:
    env("EMATIX_FLOW_DSN_WAREHOUSE", "postgres://h/d")
    with pytest.raises(ConnectionMissingError) as caught:
        resolve_connection("warehose")
    text = str(caught.value)
    for part in ("EMATIX_FLOW_DSN_WAREHOSE", PROJECT, " ./connections.toml ", USER, "did you mean 'warehouse'?"):
        assert part in text


def test_a_registry_by_name_is_looked_up(env: Env) -> None:
    env("EMATIX_FLOW_SCHEMA_REGISTRY_SR_URL", "http://u:pw@sr")
    register_connection(KafkaConnection("k", "h:1", payload_format="avro", schema_registry="sr"))
    register_connection(KafkaConnection("loop", "h:1", schema_registry="loop"))
    kafka = resolve_connection("k")
    assert isinstance(kafka, KafkaConnection)
    assert kafka.schema_registry == SchemaRegistryConnection("sr", "http://u:pw@sr")
    with pytest.raises(TypeError, match="not a schema registry"):
        resolve_connection("loop")


# --- single variables ------------------------------------------------------------------------------------------------


def test_single_variables_make_a_connection(env: Env) -> None:
    env("EMATIX_FLOW_KAFKA_EVENTS_BROKERS", "b1.kafka:9092,b2.kafka:9092")
    env("EMATIX_FLOW_KAFKA_EVENTS_SECURITY_PROTOCOL", "SASL_SSL")
    env("EMATIX_FLOW_KAFKA_EVENTS_EU_BROKERS", "eu:9092")
    env("EMATIX_FLOW_SPARK_MASTER", "local[2]")
    entry = find_connection("events")
    assert entry.connection == KafkaConnection("events", "b1.kafka:9092,b2.kafka:9092", security_protocol="SASL_SSL")
    assert entry.config_source == "environment EMATIX_FLOW_KAFKA_EVENTS_*"
    assert find_connection("events-eu").connection == KafkaConnection("events-eu", "eu:9092")


def test_single_variables_fill_in_a_file_and_a_dsn(env: Env) -> None:
    write(PROJECT, '[connections.w]\nurl = "postgres://h/d"\ntimezone = "UTC"')
    env("EMATIX_FLOW_POSTGRES_W_TIMEZONE", "Europe/Berlin")
    assert find_connection("w").connection == PostgresConnection("w", "postgres://h/d", timezone="Europe/Berlin")
    env("EMATIX_FLOW_DSN_W", "postgresql://h/env")
    assert find_connection("w").connection == PostgresConnection("w", "postgresql://h/env", timezone="Europe/Berlin")
    env("EMATIX_FLOW_DSN_W", "mysql://h/env")
    assert find_connection("w").config_source == "environment EMATIX_FLOW_DSN_W"


def test_an_unknown_property_is_refused_for_its_own_connection(env: Env) -> None:
    env("EMATIX_FLOW_KAFKA_EVENTS_BROKRS", "b:1")
    with pytest.raises(DeclareTypeError, match="EMATIX_FLOW_KAFKA_EVENTS_BROKRS") as caught:
        find_connection("events")
    assert "did you mean 'brokers'?" in str(caught.value)
    env("EMATIX_FLOW_KAFKA_EVENTS_BROKRS", "")
    with pytest.raises(ConnectionMissingError):
        find_connection("events")
    write(PROJECT, '[connections.ev]\nurl = "postgres://h/d"\n[connections.ev_eu]\nkind = "kafka"\nbrokers = ["b:1"]')
    env("EMATIX_FLOW_KAFKA_EV_EU_BROKRS", "b:1")
    assert find_connection("ev").connection.kind == "postgres"
    with pytest.raises(DeclareTypeError, match="BROKRS"):
        find_connection("ev_eu")


def test_two_kinds_for_one_name_are_refused(env: Env) -> None:
    env("EMATIX_FLOW_KAFKA_X_BROKERS", "b:1")
    env("EMATIX_FLOW_DUCKDB_X_PATH", "x")
    with pytest.raises(DeclareError, match="kinds duckdb, kafka"):
        find_connection("x")


# --- files -----------------------------------------------------------------------------------------------------------


def test_an_unknown_key_is_refused_with_file_and_key_when_its_entry_is_asked_for() -> None:
    write(PROJECT, '[connections.bad]\nkind = "kafka"\nbrokrs = "b"\n[connections.good]\nurl = "postgres://h/d"')
    assert resolve_dsn("good") == "postgres://h/d"
    with pytest.raises(DeclareTypeError, match=r"\./\.ematix-flow\.toml: .*'brokrs'") as caught:
        find_connection("bad")
    assert "did you mean 'brokers'?" in str(caught.value)
    assert str(caught.value).endswith(f"At:   {PROJECT}:1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[conections.x]\nurl = "postgres://h/d"', r"unknown table \[conections\]"),
        ('[[connection]]\nurl = "postgres://h/d"', "without a name"),
        ('[connection.x]\nurl = "postgres://h/d"', "as tables"),
        ('[connections.x]\nurl = "a"\n[[connection]]\nname = "x"', "'x' twice"),
        ("[connections.x", "no valid TOML"),
        ("#" * (1 << 20) + "##", "larger than"),
    ],
)
def test_a_file_of_the_wrong_shape_is_refused(text: str, message: str) -> None:
    write(PROJECT, text)
    with pytest.raises(DeclareError, match=message):
        find_connection("x")


def test_other_tables_are_left_alone() -> None:
    write(PROJECT, '[spark.conf]\n"a.b" = "c"\n[tool.x]\ny = 1\n')
    assert list(file_entries()) == [(PROJECT, {}), (FOLDER, {}), (USER, {})]
