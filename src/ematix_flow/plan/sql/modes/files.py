"""append and truncate where a table is a list of files: programs over the list; no row is inspected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.base.session import Statement
from ematix_flow.connect.files.transaction import BELOW, FILES, REMOVED
from ematix_flow.plan.sql.program import Program
from ematix_flow.plan.sql.render import STAGED, quoted, text

if TYPE_CHECKING:
    from ematix_flow.plan.sql.program import Load

_ROWS = "SELECT COALESCE(SUM(rows), 0) FROM"


def append(load: Load) -> Program:
    """Make every staged file part of the table."""
    return Program("ADD FILES", (_add(load),))


def truncate(load: Load) -> Program:
    """Make the staged files the only ones; those that are there are removed once the commit is certain."""
    mine = f"table_name = {text(load.target.name)}"
    others = f"SELECT path FROM {FILES} WHERE NOT {mine}"
    there = f"SELECT value FROM json_each({BELOW}({text(load.folder + '/')})) WHERE value NOT IN ({others})"
    known = f"SELECT path FROM {FILES} WHERE {mine}"
    return Program(
        "REPLACE FILES",
        (
            Statement(
                f"INSERT OR IGNORE INTO {REMOVED} (path) {there} UNION {known}",
                "deleted",
                "remove the files that are there",
                counted=f"{_ROWS} {FILES} WHERE {mine}",
            ),
            Statement(
                f"DELETE FROM {FILES} WHERE path IN (SELECT path FROM {REMOVED})",
                purpose="forget the files that are there",
            ),
            _add(load),
        ),
    )


def _add(load: Load) -> Statement:
    folder = text(load.folder + "/")
    staged = quoted(STAGED)
    return Statement(
        f"INSERT INTO {FILES} (path, table_name, rows, bytes, staged) "
        f"SELECT {folder} || s.name, {text(load.target.name)}, s.rows, s.bytes, s.staged FROM {staged} AS s",
        "inserted",
        "make every staged file part of the table",
        counted=f"{_ROWS} {staged} AS s",
    )
