from __future__ import annotations

from pathlib import Path

import pytest

from ematix_flow import config
from ematix_flow.connect.config.lookup import Listed, find_connection, list_connections, resolve_dsn, set_connection
from ematix_flow.connect.config.secrets import forget_secrets, register_resolver, unregister_resolver
from ematix_flow.declare.connection.registry import DuckDBConnection, register_connection
from ematix_flow.errors import DeclareError, DeclareTypeError

USER = "~/.ematix-flow/connections.toml"


def write(text: str) -> Path:
    path = Path(USER).expanduser()
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_listing_survives_every_broken_entry_and_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    env = monkeypatch.setenv
    forget_secrets()
    env("PW", "c4n4ry-1")
    env("EMATIX_FLOW_DSN_WAREHOUSE", "postgres://u:${PW}@h/d?sslpassword=c4n4ry-2")
    env("EMATIX_FLOW_DSN", "postgres://u@h/d")
    env("EMATIX_FLOW_KAFKA_EVENTS_BROKERS", "b:1")
    env("EMATIX_FLOW_KAFKA_EVENTS_SASL_PLAIN_USERNAME", "u")
    env("EMATIX_FLOW_KAFKA_EVENTS_SASL_PLAIN_PASSWORD", "c4n4ry-3")
    write(
        '[connections.Warehouse]\nurl = "postgres://h/shadowed"\n'
        '[connections.unset]\nurl = "postgres://u:${UNSET}@h/d"\n'
        '[connections.vault]\nurl = "postgres://u:p@${broken:x}/d"\n'
        '[connections.bad]\nkind = "kafka"\nbrokrs = "b"\nsasl_plain_password = "c4n4ry-4"\n'
        '[connections.odd]\nkind = "nosuch"\n',
    )
    register_connection(DuckDBConnection("local", "x.db"))
    register_resolver("broken", _Broken())
    try:
        listed = list_connections()
    finally:
        unregister_resolver("broken")
    assert listed == {
        "Warehouse": Listed(
            "postgres", "environment EMATIX_FLOW_DSN_WAREHOUSE", "postgres://u:***@h/d?sslpassword=***"
        ),
        "default": Listed("postgres", "environment EMATIX_FLOW_DSN", "postgres://u@h/d"),
        "events": Listed(
            "kafka",
            "environment EMATIX_FLOW_KAFKA_EVENTS_*",
            "bootstrap_servers=b:1 sasl_plain_username=u sasl_plain_password=***",
        ),
        "unset": Listed("postgres", USER, "postgres://u:***@h/d"),
        "vault": Listed("postgres", USER, "postgres://u:***@${broken:x}/d"),
        "bad": Listed("kafka", USER, "brokrs=b sasl_plain_password=***"),
        "odd": Listed("nosuch", USER, ""),
        "local": Listed("duckdb", "registered in this process", "duckdb:///x.db"),
    }
    assert config.list_connections()["default"] == "postgres://u@h/d"


class _Broken:
    def resolve(self, reference: str) -> str:
        raise AssertionError(reference)


def test_setting_keeps_everything_else() -> None:
    before = '# mine\n[connections.old]\nurl = "postgres://h/old"  # keep\n\n[[connection]]\nname = "block"\nkind = "sqlite"\npath = "x"\n'
    path = write(before)
    path.chmod(0o644)
    assert set_connection("warehouse", {"url": "postgres://u:p@h/d"}) == path
    set_connection("block", "duckdb:///y")
    set_connection("files", {"kind": "files", "path": "/d", "format": "csv", "csv_read_options": {"delimiter": ";"}})
    text = path.read_text(encoding="utf-8")
    assert '# mine\n[connections.old]\nurl = "postgres://h/old"  # keep\n' in text
    assert path.stat().st_mode & 0o777 == 0o600
    assert [item.name for item in path.parent.iterdir()] == ["connections.toml"]
    assert resolve_dsn("warehouse") == "postgres://u:p@h/d"
    assert resolve_dsn("old") == "postgres://h/old"
    assert resolve_dsn("block") == "duckdb:///y"
    assert find_connection("files").connection.settings()["csv_read_options"] == {"delimiter": ";"}


def test_setting_into_nothing_and_twice() -> None:
    path = config.set_connection("w.x", "postgres://h/1")
    config.set_connection("w.x", "${W_URL}")
    assert path.read_text(encoding="utf-8") == '[connections."w.x"]\nurl = "${W_URL}"\n'
    assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)


@pytest.mark.parametrize("wrong", ["oracle://u:c4n4ry@h", {"kind": "kafka", "brokrs": "c4n4ry"}, {"kind": "kafka"}])
def test_what_cannot_be_a_connection_is_not_written(wrong: str | dict[str, object]) -> None:
    with pytest.raises((DeclareError, DeclareTypeError)) as caught:
        set_connection("w", wrong)
    assert "c4n4ry" not in str(caught.value)
    assert not Path(USER).expanduser().exists()


def test_a_broken_user_file_is_not_overwritten() -> None:
    path = write("[connections.x\nurl = 'postgres://u:c4n4ry@h'")
    with pytest.raises(DeclareError, match="line 1") as caught:
        set_connection("w", "postgres://h/d")
    assert "c4n4ry" not in str(caught.value)
    assert "c4n4ry" in path.read_text(encoding="utf-8")
