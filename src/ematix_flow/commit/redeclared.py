"""Finds the watermark of a target, also where it was declared another way before: alone, or in a list of several.

`target=` stores it under the name of the pipeline, `targets=[...]` under that and the table's. The history shows under
which of the two the table was loaded last, and whether that name has loaded another table since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.errors import PlanError
from ematix_flow.plan.metadata_tables import history_name, other_history_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.commit.ledger import Ledger
    from ematix_flow.connect.base.session import Session
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.records import SourceWatermark


@dataclass(frozen=True, slots=True)
class _Load:
    """A load of the pipeline: its name in the history, its table, and how far it read its source."""

    name: str
    table: tuple[str, str]
    end: str | None


def find_watermark(
    ledger: Ledger, session: Session, pipeline: Pipeline, target: TargetDeclaration
) -> tuple[SourceWatermark | None, str]:
    """Return how far the pipeline has read for this target, and the name under which that is stored if it is another one."""
    own, other = (name(pipeline, target.table) for name in (history_name, other_history_name))
    stored = ledger.watermark(session, own)
    if target.write.incremental_column is None:
        return stored, ""
    before = ledger.watermark(session, other)
    if stored is not None and before is None:
        return stored, ""
    table = (target.table.schema, target.table.name)
    last = _last_load(
        ledger,
        session,
        pipeline,
        "h.pipeline_name IN (?, ?) AND h.target_schema = ? AND h.target_table = ?",
        (own, other, *table),
    )
    if last is None or last.name == own:
        return stored, ""
    newest = _last_load(ledger, session, pipeline, "h.pipeline_name = ?", (other,))
    if newest is not None and newest.table == table:
        return (before, other) if before is not None else (None, "")
    known = stored is not None and stored.value == last.end
    if last.end is not None and target.write.mode == "append" and not known:
        raise _overtaken(own, last, pipeline, target)
    return stored, ""


def rename_watermark(ledger: Ledger, session: Session, name: str, new_name: str) -> None:
    """Store a watermark under the name that its target has now; what was there is of another table."""
    table = ledger.name("watermarks")
    session.execute(f"DELETE FROM {table} WHERE pipeline_name = ?", (new_name,))
    session.execute(f"UPDATE {table} SET pipeline_name = ? WHERE pipeline_name = ?", (new_name, name))


def _last_load(
    ledger: Ledger, session: Session, pipeline: Pipeline, condition: str, parameters: Sequence[str]
) -> _Load | None:
    """Return the last load of the pipeline that moved a watermark, or the last one where none did."""
    rows = session.query(
        "SELECT h.pipeline_name, h.target_schema, h.target_table, l.watermark_hi "
        f"FROM {ledger.name('ledger')} AS l JOIN {ledger.name('run_history')} AS h ON h.run_id = l.run_id "
        f"WHERE l.pipeline_name = ? AND {condition} "
        "ORDER BY CASE WHEN l.watermark_hi IS NULL THEN 1 ELSE 0 END, l.committed_at DESC LIMIT 1",
        (pipeline.name, *parameters),
    )
    if not rows:
        return None
    name, schema, table, end = rows[0]
    return _Load(str(name), (str(schema), str(table)), None if end is None else str(end))


def _overtaken(own: str, last: _Load, pipeline: Pipeline, target: TargetDeclaration) -> PlanError:
    message = (
        f"pipeline {pipeline.name!r} has loaded {target.table.qualified_name} up to {last.end} as its only target, and its "
        "watermark has gone on with another table since: an append from the beginning would double rows"
    )
    hint = (
        f"write into the metadata table watermarks how far it came: pipeline_name {own!r}, "
        f"column_name {target.write.incremental_column!r}, last_value {last.end!r}."
    )
    return PlanError(message, hint=hint, origin=pipeline.origin)
