# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""`Table.ensure`: it refuses what a load refuses, in the same words on every database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import pytest

from ematix_flow import BigInt, Text, pk
from ematix_flow.declare.table.class_body import ManagedTable

if TYPE_CHECKING:
    from pathlib import Path


class Keyless(ManagedTable):
    """A table that nothing can be merged into."""

    __schema__ = "mart"
    __tablename__ = "keyless"

    name: Text


class Items(ManagedTable):
    """A table with a key."""

    __schema__ = "mart"
    __tablename__ = "items"

    id: Annotated[BigInt, pk()]
    name: Text


def test_a_table_without_a_key_is_made(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    assert Keyless.ensure(url)["action"] == "created"
    assert Keyless.ensure(url)["action"] == "matched"


def test_drift_is_told_with_the_name_that_was_declared(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    Items.ensure(url)
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        [(name,)] = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        connection.execute(f"ALTER TABLE {name} ADD COLUMN more TEXT")
    with pytest.raises(ValueError, match=r"schema drift detected: mart\.items\n"):
        Items.ensure(url)
