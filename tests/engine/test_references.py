"""`config.connect`: what it remembers under a name, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow import SQLiteConnection, config, get_connection, register_connection

if TYPE_CHECKING:
    from pathlib import Path


def test_a_later_call_replaces_what_an_earlier_one_remembered(tmp_path: Path) -> None:
    for name in ("one.db", "two.db"):
        config.connect(url=f"sqlite:///{tmp_path / name}").close()
        assert config.resolve_dsn() == f"sqlite:///{tmp_path / name}"


def test_a_declared_connection_stays(tmp_path: Path) -> None:
    declared = register_connection(SQLiteConnection("mine", path=str(tmp_path / "declared.db")))
    config.connect("mine", url=f"sqlite:///{tmp_path / 'given.db'}").close()
    assert get_connection("mine") is declared
