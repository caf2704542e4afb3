"""Rejects of a pipeline with several targets go back into the table that refused them, and into no other one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import duckdb
import pytest

import ematix_flow as ef
from ematix_flow import ematix
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.rejects import list_rejects, replay_rejects

if TYPE_CHECKING:
    from pathlib import Path


def declared(folder: Path, *, length: int, default: str) -> Any:
    """Return a pipeline from a file of SQLite into a narrow table there and a wide one in DuckDB."""
    PROJECT.clear()
    ef.register_connection(ef.SQLiteConnection(name="shop", path=str(folder / "shop.db")))
    ef.register_connection(ef.DuckDBConnection(name="copy", path=str(folder / "copy.duckdb")))

    @ematix.table(schema="main")
    class Narrow:
        id: Annotated[ef.Integer, ef.pk()]
        name: ef.String[length]  # type: ignore[valid-type]

    @ematix.table(schema="main")
    class Wide:
        id: Annotated[ef.Integer, ef.pk()]
        name: ef.Text

    targets = [
        ematix.target(Narrow, target_connection="shop", mode="merge", on_bad_row="reject", on_drift="warn"),
        ematix.target(Wide, target_connection="copy", mode="append", on_bad_row="reject", column_map={"name": default}),
    ]

    @ematix.pipeline(targets=targets, source_connection="shop", continue_on_failure=True)
    def items(conn: object) -> str:
        return "SELECT * FROM raw"

    return items


def ids_of(folder: Path) -> tuple[list[int], list[int]]:
    """Return the keys in both tables."""
    with closing(sqlite3.connect(folder / "shop.db")) as shop, duckdb.connect(folder / "copy.duckdb") as copy:
        narrow = shop.execute("SELECT id FROM narrow ORDER BY id").fetchall()
        wide = copy.execute("SELECT id FROM wide ORDER BY id").fetchall()
    return [key for (key,) in narrow], [key for (key,) in wide]


@pytest.fixture
def refused(tmp_path: Path) -> Path:
    """Return a folder in which each table has refused another row."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.executescript(
            "CREATE TABLE raw (id INT, name TEXT); INSERT INTO raw VALUES (1, 'long'), (2, NULL), (3, 'a')"
        )
    declared(tmp_path, length=1, default="name")()
    assert ids_of(tmp_path) == ([3], [1, 3])
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.execute("DROP TABLE narrow")
    return tmp_path


def test_each_target_gets_its_own_rejects_again(refused: Path) -> None:
    mended = declared(refused, length=9, default="coalesce(name, '-')").pipeline
    assert len(list_rejects(mended)) == 3
    done = replay_rejects(mended)
    assert (done["replayed"], done["rejected"]) == (2, 1)
    assert done["result"]["rows_inserted"] == 1
    assert ids_of(refused) == ([1], [1, 2, 3])
    assert [reject.target_name for reject in list_rejects(mended)] == ["shop:main.narrow"]


def test_single_rejects_can_be_chosen(refused: Path) -> None:
    mended = declared(refused, length=9, default="coalesce(name, '-')").pipeline
    [chosen] = [reject for reject in list_rejects(mended) if reject.target_name.startswith("copy")]
    assert replay_rejects(mended, [chosen.reject_id])["replayed"] == 1
    assert len(list_rejects(mended)) == 2
