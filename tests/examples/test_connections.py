"""The documented ways to declare a connection, and the order in which they count."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ematix_flow
from ematix_flow import KafkaConnection, PostgresConnection, SchemaRegistryConnection, config, get_connection
from ematix_flow.connect.config.lookup import find_connection, resolve_connection
from tests.examples.conftest import README

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tests.examples.databases import UserDatabase

    Example = Callable[..., ModuleType]

pytestmark = pytest.mark.slow

USER_FILE = Path(".ematix-flow") / "connections.toml"


@pytest.fixture
def user_file() -> Path:
    """Return the path of the user's connections file."""
    path = Path.home() / USER_FILE
    path.parent.mkdir()
    return path


def test_a_toml_file_names_connections_by_url_and_by_kind(user_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(README / "connections.toml", user_file)
    monkeypatch.setenv("WAREHOUSE_PASSWORD", "hunter2!")
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "k1:9092")
    assert config.resolve_dsn("warehouse") == "postgres://user:hunter2!@host/wh"
    kafka = resolve_connection("kafka_prod")
    assert isinstance(kafka, KafkaConnection)
    assert (kafka.bootstrap_servers, kafka.group_id) == ("k1:9092", "ematix-flow")
    assert "hunter2!" not in str(config.list_connections())


def test_an_unset_variable_of_one_entry_leaves_the_others_alone(
    user_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(README / "connections.toml", user_file)
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "k1:9092")
    assert sorted(config.list_connections()) == ["kafka_prod", "warehouse"]
    with pytest.raises(KeyError, match="WAREHOUSE_PASSWORD"):
        config.resolve_dsn("warehouse")


def test_the_project_file_counts_before_the_users(user_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(README / "connections.toml", user_file)
    shutil.copy(README / "project.toml", ".ematix-flow.toml")
    monkeypatch.setenv("WAREHOUSE_DSN", "u:p@project-host/wh")
    monkeypatch.setenv("RAW_DB_PASSWORD", "secret-of-raw")
    assert config.resolve_dsn("warehouse") == "postgres://u:p@project-host/wh"
    assert config.resolve_dsn("raw_db") == "postgres://user:secret-of-raw@host/raw"


def test_a_toml_file_may_say_type_and_dsn(user_file: Path) -> None:
    shutil.copy(README / "backends.toml", user_file)
    assert config.resolve_dsn("warehouse") == "postgres://user:pass@host/db"
    assert config.resolve_dsn("analytics") == "duckdb:////var/data/analytics.duckdb"
    assert find_connection("lake").connection.kind == "object_store_s3"
    kafka = find_connection("events_kafka").connection
    assert isinstance(kafka, KafkaConnection)
    assert kafka.bootstrap_servers == "b1.kafka:9092,b2.kafka:9092"


def test_single_properties_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_KAFKA_EVENTS_BROKERS", "b1.kafka:9092,b2.kafka:9092")
    monkeypatch.setenv("EMATIX_FLOW_KAFKA_EVENTS_SECURITY_PROTOCOL", "SASL_SSL")
    kafka = find_connection("events").connection
    assert isinstance(kafka, KafkaConnection)
    assert (kafka.bootstrap_servers, kafka.security_protocol) == ("b1.kafka:9092,b2.kafka:9092", "SASL_SSL")


def test_a_class_body_becomes_a_typed_connection(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("connections_declared")
    assert isinstance(module.warehouse, PostgresConnection)
    assert isinstance(module.kafka_prod, KafkaConnection)
    assert get_connection("warehouse") is module.warehouse
    monkeypatch.setenv("WAREHOUSE_DSN", "postgres://u:canary-1@h/wh")
    assert config.resolve_dsn("warehouse") == "postgres://u:canary-1@h/wh"
    monkeypatch.setenv("WAREHOUSE_DSN", "postgres://u:canary-2@h/wh")
    assert config.resolve_dsn("warehouse") == "postgres://u:canary-2@h/wh"
    assert "canary" not in repr(resolve_connection("warehouse"))
    assert "KAFKA_PASS" not in repr(module.kafka_prod)


def test_a_typed_instance_can_be_registered(example: Example) -> None:
    warehouse = example("connection_registered").warehouse
    assert ematix_flow.registered_connections() == {"warehouse": warehouse}
    assert config.resolve_dsn("warehouse") == "postgres://localhost/wh"


def test_a_schema_registry_is_named_by_its_connection(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    example("schema_registry")
    monkeypatch.setenv("SR_URL", "http://sr:8081")
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "k:9092")
    kafka = resolve_connection("kafka_avro")
    assert isinstance(kafka, KafkaConnection)
    assert isinstance(kafka.schema_registry, SchemaRegistryConnection)
    assert kafka.schema_registry.url == "http://sr:8081"


def test_the_environment_counts_before_everything(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    example("connection_registered")
    Path(".ematix-flow.toml").write_text('[connections.warehouse]\nurl = "postgres://project/wh"\n')
    assert config.resolve_dsn("warehouse") == "postgres://project/wh"
    monkeypatch.setenv("EMATIX_FLOW_DSN_WAREHOUSE", "postgres://environment/wh")
    assert config.resolve_dsn("warehouse") == "postgres://environment/wh"
    monkeypatch.setenv("EMATIX_FLOW_DSN", "postgres://default/wh")
    assert config.resolve_dsn("default") == "postgres://default/wh"
    assert config.resolve_dsn("warehouse") == "postgres://environment/wh"


# connect and check


def test_connect_by_url_opens_and_remembers_the_name(duck: UserDatabase) -> None:
    conn = config.connect("mine", url=duck.url)
    assert conn.fetch_scalar_int("SELECT 41 + 1") == 42
    assert (conn.dialect(), conn.dsn()) == ("duckdb", duck.url)
    assert conn.query("SELECT 1 AS n, 'x' AS word, DATE '2026-01-02' AS day", max_rows=5) == {
        "columns": [
            {"name": "n", "type": "int"},
            {"name": "word", "type": "string"},
            {"name": "day", "type": "timestamp"},
        ],
        "rows": [[1, "x", "2026-01-02"]],
        "truncated": False,
    }
    conn.close()
    assert config.check_connection("mine")[0]
    config.connect("mine", url="duckdb://").close()
    assert config.resolve_dsn("mine") == "duckdb://"


def test_connect_is_a_public_name_and_takes_fields(lite: UserDatabase) -> None:
    path = lite.url.removeprefix("sqlite:///")
    conn = ematix_flow.connect("books", kind="sqlite", path=path)
    assert conn.execute("CREATE TABLE book (title TEXT)") == 0
    assert conn.execute("INSERT INTO book VALUES ('a'), ('b')") == 2
    conn.close()
    assert lite.count("book") == 2


@pytest.mark.parametrize("url", ["oracle://u:canary-pw@h/db", "canary-pw"])
def test_a_url_of_another_scheme_is_a_value_error_without_the_url(url: str) -> None:
    with pytest.raises(ValueError, match="unknown scheme") as caught:
        ematix_flow.connect("x", url=url)
    assert "canary" not in str(caught.value)


def test_checking_says_what_is_wrong_without_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_DSN_GONE", "postgres://u:canary-pw@127.0.0.1:1/db?connect_timeout=2")
    ok, message = config.check_connection("gone")
    assert not ok
    assert "canary-pw" not in message
    ok, message = config.check_connection("gnoe")
    assert not ok
    assert "did you mean 'gone'?" in message


@pytest.mark.service
def test_checking_a_server_that_answers(
    postgres: UserDatabase, mysql: UserDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, database in (("PG", postgres), ("MY", mysql)):
        monkeypatch.setenv(f"EMATIX_FLOW_DSN_{name}", database.url)
        ok, message = config.check_connection(name.lower())
        assert ok
        assert "canary" not in message


def test_setting_a_connection_by_fields_keeps_the_rest_of_the_file(user_file: Path) -> None:
    user_file.write_text('# mine\n[connections.other]\nurl = "sqlite:///x.db"\n')
    assert config.set_connection("warehouse", {"url": "postgres://u:pw-of-mine@h/wh"}) == user_file
    assert config.resolve_dsn("warehouse") == "postgres://u:pw-of-mine@h/wh"
    assert user_file.read_text().startswith("# mine\n[connections.other]")
    assert config.list_connections()["warehouse"] == "postgres://u:***@h/wh"


def test_the_command_line_sets_a_connection_by_its_url(user_file: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(ematix_flow.__file__).parents[1])}
    arguments = ["connections", "set", "warehouse", "url=postgres://u:canary-pw@h/wh"]
    done = subprocess.run(
        [sys.executable, "-m", "ematix_flow", *arguments], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "canary-pw" not in done.stdout + done.stderr
    assert user_file.stat().st_mode & 0o077 == 0
    assert config.resolve_dsn("warehouse") == "postgres://u:canary-pw@h/wh"
