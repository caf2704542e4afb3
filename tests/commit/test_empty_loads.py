"""A load of which no row is left does not clear its target, whoever has refused the rows."""

from __future__ import annotations

import sqlite3
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, SQLiteConnection, ematix, pk, register_connection  # noqa: TC001 - the table reads its annotations
from ematix_flow.declare.spark_settings import ENGINE_VARIABLE
from ematix_flow.errors import CommitError
from ematix_flow.pipeline import sync

if TYPE_CHECKING:
    from pathlib import Path

TABLE = """
CREATE TABLE counts (id INTEGER NOT NULL PRIMARY KEY, n INTEGER NOT NULL CHECK (n > 0),
    _loaded_at TIMESTAMPTZ NOT NULL, _batch_id UUID NOT NULL)
"""


@pytest.fixture
def counted(sqlite_path: Path, monkeypatch: pytest.MonkeyPatch) -> type:
    """Return the table of counts, in a file that is known as the connection `store`."""
    monkeypatch.setenv(ENGINE_VARIABLE, "local")

    @ematix.table(schema="main", name="counts")
    class Counted:
        id: Annotated[BigInt, pk()]
        n: BigInt

    register_connection(SQLiteConnection("store", path=str(sqlite_path)))
    return Counted


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*no absent key was deleted:UserWarning")
@pytest.mark.parametrize(
    ("options", "absent_stay"),
    [({"mode": "truncate"}, False), ({"mode": "merge", "handle_deletes": "hard"}, True), ({"mode": "mirror"}, True)],
    ids=repr,
)
def test_rows_that_the_database_refuses_do_not_clear_the_table(
    options: dict[str, Any], absent_stay: bool, sqlite_path: Path, counted: type
) -> None:
    with closing(sqlite3.connect(sqlite_path)) as database:
        database.execute(TABLE)

    def load(*rows: dict[str, int], **more: Any) -> dict[str, Any]:
        return sync(
            target=counted, source=list(rows), target_connection="store", on_bad_row="reject", **options, **more
        )

    load({"id": 1, "n": 5}, {"id": 2, "n": 6})
    # Where rows are rejected no key is taken for absent, and so there is nothing to refuse.
    with nullcontext() if absent_stay else pytest.raises(CommitError, match=r"can be loaded \(2 rejected\)") as caught:
        load({"id": 3, "n": -1}, {"id": 4, "n": 0})
    if caught is not None:
        assert "CHECK" in caught.value.what
        assert '"n": -1' in caught.value.what
    with closing(sqlite3.connect(sqlite_path)) as database:
        assert database.execute("SELECT id, n FROM counts ORDER BY id").fetchall() == [(1, 5), (2, 6)]
    assert load({"id": 3, "n": -1}, {"id": 4, "n": 7})["rows_rejected"] == 1
    assert load({"id": 5, "n": -1}, allow_empty=True)["rows_rejected"] == 1
    with closing(sqlite3.connect(sqlite_path)) as database:
        assert database.execute("SELECT count(*) FROM counts").fetchone() == (3 if absent_stay else 0,)


@pytest.mark.slow
def test_an_error_about_a_load_without_a_good_row_tells_why_they_do_not_fit(sqlite_path: Path, counted: type) -> None:

    def load(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
        chosen = {"mode": "truncate", "on_bad_row": "reject"} | more
        return sync(target=counted, source=list(rows), target_connection="store", **chosen)

    load({"id": 1, "n": 5})
    with pytest.raises(CommitError, match=r"can be loaded \(2 rejected\)") as caught:
        load({"id": 2, "n": "many"}, {"id": 3, "n": "few"})
    assert "n: " in caught.value.what
    assert "many" in caught.value.what
    assert "allow_empty=True" in str(caught.value.hint)
    with closing(sqlite3.connect(sqlite_path)) as database:
        assert database.execute("SELECT id, n FROM counts").fetchall() == [(1, 5)]
        # A load that is refused leaves nothing behind.
        assert database.execute("SELECT count(*) FROM ematix_flow_rejects").fetchone() == (0,)
