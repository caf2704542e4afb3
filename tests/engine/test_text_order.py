"""Texts are compared by their bytes in UTF-8, whatever collation and charset the columns of a source have."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import pytest

import ematix_flow as ef
from ematix_flow import ematix, normalize
from ematix_flow.connect.registry import open_database
from ematix_flow.declare.connection.registry import connection_from_fields

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.quality import Tester

COLLATED = {
    "sqlite": ("", "CREATE TABLE raw (id INT, word VARCHAR(9) COLLATE NOCASE)"),
    "duckdb": ("", "CREATE TABLE raw (id INT, word VARCHAR COLLATE NOCASE)"),
    "postgres": (
        "CREATE COLLATION en (provider = icu, locale = 'en-US')",
        "CREATE TABLE raw (id INT, word TEXT COLLATE en)",
    ),
    "mysql": ("", "CREATE TABLE raw (id INT, word VARCHAR(9)) CHARSET latin1 COLLATE latin1_swedish_ci"),
}
"""What makes a table whose texts have an order of their own."""


def expected(t: Tester) -> None:
    """Expect texts that most collations have in between, and the bytes not."""
    t.column("word").between("a", "z")


@pytest.mark.service
@pytest.mark.parametrize("path", ["same_db", "cross_db"])
@pytest.mark.parametrize("kind", COLLATED)
def test_no_collation_decides(kind: str, path: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    servers = kind in ("postgres", "mysql")
    place = {"url": request.getfixturevalue(f"{kind}_url")} if servers else {"path": str(tmp_path / "texts.db")}
    schema = {"postgres": "public", "mysql": place.get("url", "").rpartition("/")[2]}.get(kind, "main")
    connection = ef.register_connection(connection_from_fields("texts", {"kind": kind, **place}))
    with closing(open_database(connection).session()) as session:
        for statement in filter(None, COLLATED[kind]):
            session.execute(statement)
        session.execute("INSERT INTO raw VALUES (1, 'b'), (2, 'Z'), (3, 'é'), (4, 'F'), (5, NULL)")

    @ematix.table(schema=schema)
    class Spelled:
        id: Annotated[ef.Integer, ef.pk()]
        word: ef.Text | None
        bounded: Annotated[ef.Text | None, normalize.clamp("a", "f")]
        left: Annotated[ef.Text | None, normalize.nullif("é")]

    @ematix.pipeline(
        target=Spelled, target_connection="texts", mode="append", force_path=path, expectations=expected, name="spelled"
    )
    def spelled(conn: object) -> str:
        return 'SELECT id, word, word AS bounded, word AS "left" FROM raw'.replace('"', "`" if kind == "mysql" else '"')

    result = spelled()
    assert result["quality"]["checks"][0]["failed_rows"] == 3
    with closing(open_database(connection).session()) as session:
        rows = session.query(
            "SELECT bounded, `left` FROM spelled ORDER BY id".replace("`", "`" if kind == "mysql" else '"')
        )
    assert rows == [("b", "b"), ("a", "Z"), ("f", None), ("a", "F"), (None, None)]
