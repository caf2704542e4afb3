"""Lookups that are read again in the background: a batch sees one state of them, and nothing that it needs is released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb

from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.options import Lookup
from ematix_flow.engine.stream.lookups import LookupRows, held

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


@dataclass
class Frame:
    """A frame that Spark keeps, until it is released."""

    number: int
    schema: str = "id BIGINT"
    released: bool = False

    def unpersist(self) -> None:
        """Release it."""
        self.released = True


def lookup_of(path: Path) -> Lookup:
    """Return the lookup of a table that has one row."""
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE names AS SELECT 1 AS id")
    connection = connection_from_fields("names", {"kind": "duckdb", "path": str(path)})
    return Lookup(connection=connection, table="names", schema="main")


def test_a_batch_keeps_its_rows_however_often_they_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Frame] = []

    def again(_: LookupRows) -> Frame:
        read.append(Frame(len(read)))
        return read[-1]

    monkeypatch.setattr(LookupRows, "_read", again)
    rows = LookupRows("names", lookup_of(tmp_path / "names.duckdb"), lambda: None)
    with held([rows]):
        assert rows() is read[0]
        for _ in range(3):
            rows._renew()
        with held([rows]):
            assert rows() is read[0]
        assert [frame.released for frame in read] == [False, True, True, False]
    assert rows() is read[3]
    rows._renew()
    assert rows() is read[4]
    assert [frame.released for frame in read] == [True, True, True, False, False]
    with held([rows]):
        rows._renew()
        rows.close()
        rows._renew()
    assert all(frame.released for frame in read[3:])


def test_a_batch_of_this_process_sees_one_state_too(tmp_path: Path) -> None:
    path = tmp_path / "names.duckdb"
    rows = LookupRows("names", lookup_of(path))
    with held([rows]):
        with duckdb.connect(str(path)) as connection:
            connection.execute("INSERT INTO names VALUES (2)")
        rows._renew()
        assert rows().num_rows == 1
    assert rows().num_rows == 2
