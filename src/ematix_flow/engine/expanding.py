"""Creates or widens a target's tables as its plan says; it moves no rows and opens no transaction of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.redact import safe_text
from ematix_flow.errors import CommitError
from ematix_flow.plan.sql.ddl import WantedColumn, WantedTable, create_table_sql
from ematix_flow.plan.sql.scd2 import points_columns

if TYPE_CHECKING:
    from ematix_flow.connect.base import Database, Session
    from ematix_flow.plan.steps import TargetPlan


def expand(database: Database, session: Session, plan: TargetPlan) -> None:
    """Bring the target up to its plan; each statement is idempotent over retries because the plan looked first."""
    wanted = plan.ensure.wanted
    if plan.ensure.statements:
        if wanted.place.schema:
            database.create_schema(session, wanted.place.schema)
        for statement in plan.ensure.statements:
            _ddl(database, session, statement, wanted)
    points = plan.commit.load.points
    if points is not None and database.find_table(session, points) is None:
        if points.schema:
            database.create_schema(session, points.schema)
        columns = tuple(WantedColumn(column, nullable=True) for column in points_columns(plan.commit.load))
        table = WantedTable(points, columns, (), ())
        _ddl(database, session, create_table_sql(table, database), table)


def _ddl(database: Database, session: Session, statement: str, wanted: WantedTable) -> None:
    try:
        session.execute(statement)
    except database.errors as error:
        # A twin may have created the same table between our look and this statement.
        if "CREATE" in statement and database.find_table(session, wanted.place) is not None:
            return
        message = f"the target's table could not be prepared: {safe_text(error)}"
        raise CommitError(message) from None
