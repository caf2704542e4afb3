"""Rejected rows in the target's metadata tables: written with their load, with a status for what follows."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.ledger import Ledger, some_of, transaction
from ematix_flow.connect.base.stream_source import LATE, SQL_FAILED, UNREADABLE
from ematix_flow.connect.types.reject_rows import SHAPED, is_shaped

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ematix_flow.commit.request import Excluded
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.records import Token


_AUDIT, _TARGET, _PLAIN = "q", "c", "p"
"""Parts of the id of a reject that an expectation or the target refused, and that of a row which is as in the source."""

_REFUSED = re.compile(f":[{_AUDIT}{_TARGET}]({_PLAIN}?)[0-9]+$")

_WAITS = "status IN ('pending', 'sent')"
"""A reject that may be tried again; a topic has a copy of one that is sent."""


_COLUMNS = (
    "reject_id", "target_name", "run_id", "reason", "column_name", "source_position", "row_json", "status", "attempt",
    "rejected_at",
)  # fmt: skip
_SHOWN_AS_TEXT = ("run_id", "rejected_at")


@dataclass(frozen=True, slots=True)
class Reject:
    """One rejected row."""

    reject_id: str
    target_name: str
    run_id: str
    reason: str
    column_name: str | None
    source_position: str | None
    row_json: str
    status: str
    attempt: int | None
    rejected_at: str

    @property
    def is_typed(self) -> bool:
        """Return whether its values have the types of the target: an expectation or the target itself refused the row."""
        return _REFUSED.search(self.reject_id) is not None or is_shaped(self.row_json)

    @property
    def is_shaped(self) -> bool:
        """Return whether its row went through column map, normalisers and transforms, so that it may not do so again."""
        match = _REFUSED.search(self.reject_id)
        return (match is not None and not match[1]) or is_shaped(self.row_json)

    @property
    def is_message(self) -> bool:
        """Return whether it is a message as it came, and not a row that the SQL of a stream returned."""
        return self.column_name == UNREADABLE or self.reason.startswith(SQL_FAILED)

    @property
    def is_late(self) -> bool:
        """Return whether it is a row of a stream that came after its window was closed."""
        return self.reason.startswith(LATE)

    @property
    def stage(self) -> str:
        """Return where a stream has set it aside."""
        return "late_data" if self.is_late else "transform" if self.is_message else "write"

    def to_dict(self) -> dict[str, Any]:
        """Return the reject as plain data, with its row as an object."""
        return {**asdict(self), "row": row_of(self.row_json)}


def row_of(text: str) -> dict[str, Any]:
    """Return a row that the rejects table stores; what is no object is the only value of one."""
    value = json.loads(text)
    return {name: one for name, one in value.items() if name != SHAPED} if isinstance(value, dict) else {"value": value}


def _refused_id(token: Token, by: str, row: Excluded, *, alters: bool) -> str:
    return f"{token.run_id}:{by}{'' if alters else _PLAIN}{row.number}"


class Rejects:
    """The rejects table of one database."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._name = ledger.name("rejects")

    def of_pipeline(self, session: Session, pipeline: str, status: str | None, limit: int) -> list[Reject]:
        """Return the newest rejects of a pipeline in all of its targets; `status` None means all."""
        as_text = self._ledger.as_text
        columns = ", ".join(as_text(name) if name in _SHOWN_AS_TEXT else name for name in _COLUMNS)
        where = "pipeline_name = ?" + (" AND status = ?" if status else "")
        rows = session.query(
            f"SELECT {columns} FROM {self._name} WHERE {where} ORDER BY rejected_at DESC LIMIT {int(limit)}",
            (pipeline, status) if status else (pipeline,),
        )
        return [Reject(*row) for row in rows]

    def insert_staged(  # noqa: PLR0913 - what is known about rejects
        self,
        session: Session,
        token: Token,
        relation: str,
        at: datetime,
        *,
        once: str = "",
        attempt: int = 1,
        status: str = "pending",
    ) -> int:
        """Move the staged rejects into the rejects table; those about the column `once` only if they are new there."""
        row_id = "ROW_NUMBER() OVER (ORDER BY row_json, reason)"
        prefix = f"'{token.run_id}:'"
        numbered = (
            f"CONCAT({prefix}, {row_id})"
            if self._ledger.dialect == "mysql"
            else f"{prefix} || CAST({row_id} AS VARCHAR(20))"
        )
        return session.execute(
            f"INSERT INTO {self._name} (reject_id, pipeline_name, target_name, run_id, reason, column_name, "
            "source_position, row_json, rejected_at, status, attempt) "
            f"SELECT {numbered}, ?, ?, {self._ledger.uuid(token.run_id)}, "
            f"reason, column_name, source_position, row_json, {self._ledger.at(at)}, '{status}', {int(attempt)} "
            f"FROM {relation} AS rejected" + (self._unknown() if once else ""),
            (token.pipeline, token.target, *((once, token.pipeline, token.target) if once else ())),
        )

    def _unknown(self) -> str:
        return (
            f" WHERE rejected.column_name <> ? OR NOT EXISTS (SELECT 1 FROM {self._name} AS known WHERE "
            "known.pipeline_name = ? AND known.target_name = ? AND known.row_json = rejected.row_json "
            "AND known.reason = rejected.reason)"
        )

    def insert(self, session: Session, token: Token, row: Excluded, at: datetime, *, alters: bool) -> None:
        """Write one row that the target refuses; `alters` where it is not as in the source."""
        stamp = f"{self._ledger.uuid(token.run_id)}, ?, ?, ?, {self._ledger.at(at)}, 'pending', 1"
        session.execute(
            f"INSERT INTO {self._name} (reject_id, pipeline_name, target_name, run_id, reason, column_name, row_json, "
            f"rejected_at, status, attempt) VALUES (?, ?, ?, {stamp})",
            (
                _refused_id(token, _TARGET, row, alters=alters),
                token.pipeline,
                token.target,
                row.reason,
                row.column or None,
                row.row_json,
            ),
        )

    def insert_audited(
        self, session: Session, token: Token, rows: Sequence[Excluded], at: datetime, *, alters: bool
    ) -> None:
        """Write rows that do not satisfy what is expected of them; `alters` where they are not as in the source."""
        names = "reject_id, pipeline_name, target_name, run_id, reason, row_json, rejected_at, status, attempt"
        one = f"(?, ?, ?, {self._ledger.uuid(token.run_id)}, ?, ?, {self._ledger.at(at)}, 'pending', 1)"
        for some in some_of(rows):
            values = [
                value
                for row in some
                for value in (
                    _refused_id(token, _AUDIT, row, alters=alters),
                    token.pipeline,
                    token.target,
                    row.reason,
                    row.row_json,
                )
            ]
            placeholders = ", ".join(one for _ in some)
            session.execute(f"INSERT INTO {self._name} ({names}) VALUES {placeholders}", values)

    def set_replayed(self, session: Session, reject_id: str, at: datetime) -> bool:
        """Record that a rejected row went through the pipeline again; False when it had done so before."""
        changed = session.execute(
            f"UPDATE {self._name} SET status = 'replayed', replayed_at = {self._ledger.at(at)} "
            f"WHERE reject_id = ? AND {_WAITS}",
            (reject_id,),
        )
        return changed == 1

    def resolve(self, session: Session, ids: Sequence[str], status: str | None) -> int:
        """Set the status of pending rejects, or remove them where it is None; return how many there were."""
        table, changed = self._name, 0
        act = f"DELETE FROM {table}" if status is None else f"UPDATE {table} SET status = '{status}'"
        waiting = "" if status is None else f" AND {_WAITS}"
        for some in some_of(ids):
            placeholders = ", ".join("?" for _ in some)
            changed += session.execute(f"{act} WHERE reject_id IN ({placeholders}){waiting}", some)
        return changed


def resolve_rejects(database: TargetSystem, ids: Sequence[str], status: str | None) -> int:
    """Set the status of rejects, or remove them, in a transaction of their own; return how many there were."""
    with closing(database.session()) as session, transaction(session):
        return Rejects(Ledger(database)).resolve(session, ids, status)


def rejects_of(database: TargetSystem, pipeline: str, status: str | None, limit: int) -> list[Reject]:
    """Return the newest rejects of a pipeline in a database."""
    ledger = Ledger(database)
    with closing(database.session()) as session:
        return Rejects(ledger).of_pipeline(session, pipeline, status, limit) if ledger.exists(session) else []
