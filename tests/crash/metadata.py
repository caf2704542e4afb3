"""What the bookkeeping of a crashed and repaired table must say: as many loads as were made, and nothing left behind."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.ledger import Ledger
from ematix_flow.records import Token
from tests.crash.folders import unsettled
from tests.crash.journey import MODES, table_of, table_rows
from tests.crash.lakes import locks, strange_commits

if TYPE_CHECKING:
    from ematix_flow.connect.base.database import Database
    from ematix_flow.connect.base.session import Session
    from tests.crash.journey import CrashTarget, Load


def contradictions(target: CrashTarget, load: Load, loads: int, posts: int | None = None) -> list[str]:
    """Return every contradiction between the bookkeeping of a table's pipeline and its rows, after `loads` loads.

    Each has run its post step, unless the number of `posts` is given.
    """
    database = target.opened(load.table)
    ledger = Ledger(database)
    with closing(database.session()) as session:

        def one(what: str, table: str, column: str = "pipeline_name", more: str = "") -> Any:
            return session.query(f"SELECT {what} FROM {table} WHERE {column} = ?{more}", (load.table,))[0][0]

        tokens = int(one("COUNT(*)", ledger.name("ledger")))
        figures = {
            "loads in the ledger": (tokens, loads),
            **_leftovers(target, load, database),
            "successes in the history": (_histories(session, ledger, load, "success"), loads),
            "runs without an end": (_histories(session, ledger, load, "running"), 0),
            "rejects": (
                int(one("COUNT(*)", ledger.name("rejects"))), int(one("SUM(rows_rejected)", ledger.name("ledger")) or 0)
            ),
        }  # fmt: skip
        if target.has_posts:
            done = int(one("COUNT(*)", "crash_posts", "pipeline"))
            figures["post steps"] = (done, loads if posts is None else posts)
        if {**MODES[load.mode], **load.options}.get("incremental_column"):
            watermark = ledger.watermark(session, load.table)
            highest = max((row[1] for row in table_rows(target, load)), default=None)
            figures["watermark"] = (
                watermark and watermark.value,
                None if highest is None else str(max(highest, _last(load))),
            )
        stages = [name for name, _ in database.stages(session)]
    figures["staging left behind"] = (
        len([n for n in stages if n.startswith(f"stg_{_key(target, load)}")]) if load.slot else 0,
        0,
    )
    return [f"{what}: {there}, expected {right}" for what, (there, right) in figures.items() if there != right]


def _leftovers(target: CrashTarget, load: Load, database: Database) -> dict[str, tuple[Any, Any]]:
    """Return what there is besides rows, and should not be."""
    if target.is_folder:
        return {"files": (unsettled(database, table_of(target, load)), [])}
    if target.is_lake:
        return {"commits of nobody": (strange_commits(database), []), "locks left behind": (locks(database), [])}
    return {}


def _last(load: Load) -> int:
    """Return the number of the rejected row, which is the highest of its load and ends the range."""
    return load.number * 10 + 9


def _key(target: CrashTarget, load: Load) -> str:
    return Token(load.table, f"target:{target.schema}.{load.table}", load.slot or "").tag


def _histories(session: Session, ledger: Ledger, load: Load, status: str) -> int:
    table = ledger.name("run_history")
    rows = session.query(f"SELECT COUNT(*) FROM {table} WHERE pipeline_name = ? AND status = ?", (load.table, status))
    return int(rows[0][0])
