"""mode="mirror": the table becomes what the source is, and an empty source is refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ematix_flow import SQLiteConnection, ematix
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine.review.compare import RETAINED
from ematix_flow.errors import DeclareError, FlowError

if TYPE_CHECKING:
    from pathlib import Path

THINGS = Table("main", "things", (Column(BigInt(), primary_key=True, name="id"), Column(Text(), name="what")))
WARNING = "no absent key was (deleted|closed)"
STRICT = replace(THINGS, columns=(THINGS.columns[0], Column(Text(), name="what", nullable=False)))


@pytest.mark.slow
def test_rows_that_the_source_no_longer_has_are_deleted(tmp_path: Path) -> None:
    rows = [{"id": 1, "what": "a"}, {"id": 2, "what": "b"}]
    there = SQLiteConnection("there", path=str(tmp_path / "t.db"))

    @ematix.pipeline(target=THINGS, target_connection=there, mode="mirror")
    def things(conn: object) -> object:
        import pyarrow as pa

        return pa.Table.from_pylist(rows, schema=pa.schema([("id", pa.int64()), ("what", pa.string())]))

    def mirrored() -> list[tuple[int, str]]:
        with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
            return connection.execute("SELECT id, what FROM things ORDER BY id").fetchall()

    things.sync()
    assert mirrored() == [(1, "a"), (2, "b")]
    rows[:] = [{"id": 2, "what": "B"}, {"id": 3, "what": "c"}]
    things.sync()
    assert mirrored() == [(2, "B"), (3, "c")]
    rows.clear()
    with pytest.raises(FlowError, match="empty"):
        things.sync()
    assert mirrored() == [(2, "B"), (3, "c")]


@pytest.mark.slow
@pytest.mark.parametrize("write", [{"mode": "mirror"}, {"mode": "scd2", "handle_deletes": "soft"}])
def test_the_key_of_a_rejected_row_is_not_absent(
    tmp_path: Path, write: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "local")
    rows: list[tuple[int, str | None]] = [(1, "a"), (2, "b"), (3, "c")]
    there = SQLiteConnection("there", path=str(tmp_path / "t.db"))

    @ematix.pipeline(target=STRICT, target_connection=there, on_bad_row="reject", **write)
    def things(conn: object) -> object:
        import pyarrow as pa

        return pa.table({"id": [key for key, _ in rows], "what": pa.array([what for _, what in rows], pa.string())})

    def current() -> list[tuple[int, str]]:
        where = "WHERE is_current" if write["mode"] == "scd2" else ""
        with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
            return connection.execute(f"SELECT id, what FROM things {where} ORDER BY id").fetchall()

    things.sync()
    rows[:] = [(1, "A"), (2, None)]  # the row of key 2 is bad, and key 3 is gone
    (foreseen,) = things.plan(diff=True).targets
    assert (foreseen.changed, foreseen.removed, foreseen.counts.deleted, foreseen.notes) == (1, 0, 0, (RETAINED,))
    with pytest.warns(UserWarning, match=WARNING):
        done = things.sync()
    assert (done["rows_rejected"], current()) == (1, [(1, "A"), (2, "b"), (3, "c")])
    rows[:] = [(2, None)]
    with pytest.warns(UserWarning, match=WARNING):
        things.sync()
    assert current() == [(1, "A"), (2, "b"), (3, "c")]
    rows[:] = [(1, "A"), (2, "B")]
    things.sync()
    assert current() == [(1, "A"), (2, "B")]


def test_a_mirror_needs_the_whole_source() -> None:
    assert write("mirror").handle_deletes == "hard"
    with pytest.raises(DeclareError, match="whole source"):
        write("mirror", incremental_column="at")
    with pytest.raises(FlowError, match="mirror"):
        ematix.streaming_pipeline(source="k", source_query="t", target="d", target_table=("a", "b"), mode="mirror")(
            lambda: None
        )
