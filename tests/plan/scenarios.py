"""Pipelines whose plans are kept as golden files; time, slot and systems are fixed, and no system is opened."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from ematix_flow import BigInt, Numeric, String, Text, TimestampTZ, natural_key, pk  # noqa: TC001 - read from annotations
from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.connect.registry import system_of
from ematix_flow.declare.connection.registry import (
    DuckDBConnection,
    MySQLConnection,
    PostgresConnection,
    SQLiteConnection,
)
from ematix_flow.declare.decorators import ematix
from ematix_flow.declare.table.class_body import ManagedTable
from ematix_flow.normalize import lower, trim
from ematix_flow.plan.batch import Inspection, PlanRequest, plan_target
from ematix_flow.plan.post_steps import post_steps
from ematix_flow.plan.source import SourceValue
from ematix_flow.plan.steps import Bounds, Plan
from ematix_flow.records import SourceWatermark, Token
from ematix_flow.transforms import deduplicate_by

if TYPE_CHECKING:
    from ematix_flow.connect.base.database import Database
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.declare.quality.tester import Tester
    from ematix_flow.plan.steps import TargetPlan

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
SLOT = "2026-01-02T03:00:00+00:00"
SQL = "SELECT id, email, amount, changed_at FROM raw.orders WHERE amount > 0"
COLUMNS = (
    SourceColumn("id", "integer", "BIGINT"),
    SourceColumn("email", "text", "VARCHAR"),
    SourceColumn("amount", "decimal", "DECIMAL(12,2)"),
    SourceColumn("changed_at", "timestamp_tz", "TIMESTAMP WITH TIME ZONE"),
)
WAREHOUSES = {
    "duckdb": DuckDBConnection(name="warehouse", path="warehouse.duckdb"),
    "sqlite": SQLiteConnection(name="warehouse", path="warehouse.sqlite"),
    "postgres": PostgresConnection(name="warehouse", url="postgresql://loader:canary-pw@db.example:5432/warehouse"),
    "mysql": MySQLConnection(name="warehouse", url="mysql://loader:canary-pw@db.example:3306/warehouse"),
}
RAW = PostgresConnection(name="raw", url="postgresql://reader:canary-pw@raw.example:5432/raw")


class Orders(ManagedTable):
    """A table with a key, a normalised column and types that databases spell differently."""

    __schema__ = "mart"
    __tablename__ = "orders"

    id: Annotated[BigInt, pk()]
    email: Annotated[String[120], trim(), lower()]
    amount: Numeric[12, 2] | None
    changed_at: TimestampTZ


class Emails(ManagedTable):
    """A second target with a natural key."""

    __schema__ = "mart"
    __tablename__ = "emails"

    id: Annotated[BigInt, pk()]
    email: Annotated[Text, natural_key()]


def _expected(t: Tester) -> None:
    """Expect one thing of each kind."""
    t.column("amount").between(0, 99999)
    t.column("email").is_in(["a@b.c", "it's"], severity="warn")
    t.column("email").regex(r"^[^@\s]+@[^@]+$")
    t.unique(["email", "changed_at"])
    t.row_count(at_least=1)
    t.column("email").exists_in("mart.emails", "email")
    t.sql("old", "changed_at > amount OR id IN (SELECT 1)", severity="fail")
    t.query("many", "SELECT email, COUNT(*) AS n FROM rows GROUP BY email HAVING COUNT(*) > 9")
    t.python("mine", len)


class Largest:
    """SQL of a user around the rows."""

    def to_sql_wrap(self, inner: str) -> str:
        return (
            f"SELECT MAX(id) AS id, email, MAX(amount) AS amount, MAX(changed_at) AS changed_at "
            f"FROM {inner} GROUP BY email"
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    """A declared pipeline and what is seen of its systems."""

    options: dict[str, Any]
    same_database: bool = True
    exists: bool = False
    watermark: str | None = None
    source: dict[str, Any] = field(default_factory=dict)


SCENARIOS = {
    "append": Scenario({"target": Orders, "mode": "append", "schedule": "0 3 * * *"}),
    "truncate": Scenario({"target": Orders, "mode": "truncate", "transforms_post": ["ANALYZE mart.orders", print]}),
    "merge": Scenario(
        {
            "target": Orders,
            "mode": "merge",
            "update_columns": ["email", "amount"],
            "compare_columns": ["amount"],
            "handle_deletes": "hard",
            "transforms_pre": [deduplicate_by("id", order_by="changed_at DESC")],
        }
    ),
    "scd2_load_time": Scenario({"target": Orders, "mode": "scd2", "handle_deletes": "soft"}),
    "scd2_event_time": Scenario(
        {"target": Orders, "mode": "scd2", "event_timestamp_column": "changed_at", "ttl": timedelta(days=90)}
    ),
    "incremental": Scenario(
        {"target": Orders, "mode": "merge", "incremental_column": "changed_at", "lookback": timedelta(hours=2)},
        watermark="2026-01-01 00:00:00+00:00",
    ),
    "fan_out": Scenario(
        {
            "targets": [
                ematix.target(Orders, mode="append"),
                ematix.target(Emails, mode="merge", keys=["email"], column_map={"email": "email"}),
            ]
        }
    ),
    "quality": Scenario(
        {
            "target": Orders,
            "mode": "merge",
            "expectations": _expected,
            "on_quality_failure": "reject",
            "freshness_sla": "6h",
            "freshness_column": "changed_at",
        },
    ),
    "wrap": Scenario({"target": Orders, "mode": "append", "transforms_pre": [Largest()]}),
    "cross_db_wrap": Scenario(
        {"target": Orders, "mode": "append", "on_bad_row": "reject", "transforms_pre": [Largest()]},
        same_database=False,
    ),
    "cross_db": Scenario({"target": Orders, "mode": "scd1", "on_bad_row": "reject"}, same_database=False),
}


def planned(name: str, dialect: str) -> Plan:
    """Return the plan of a scenario on a system."""
    scenario = SCENARIOS[name]
    database = _database(dialect)
    source = database if scenario.same_database else system_of(RAW)
    pipeline = _declared(name, scenario)
    plans = tuple(_target_plan(pipeline, target, scenario, database, source) for target in pipeline.targets)  # type: ignore[arg-type]
    return Plan(
        pipeline=pipeline.name,
        schedule=pipeline.schedule,
        source_connection="warehouse" if scenario.same_database else "raw",
        source_info=dict(source.info()),
        source_sql=SQL,
        targets=plans,
        posts=post_steps(pipeline),
    )


def _declared(name: str, scenario: Scenario) -> Pipeline:
    @ematix.pipeline(name=f"load_{name}", **scenario.options)
    def load(conn: Any) -> str:
        return SQL

    return load.pipeline


def _database(dialect: str) -> Database:
    return system_of(WAREHOUSES[dialect])  # type: ignore[return-value]


def _target_plan(
    pipeline: Pipeline, target: TargetDeclaration, scenario: Scenario, database: Database, source: Database
) -> TargetPlan:
    inspection = Inspection(
        source_name="warehouse" if scenario.same_database else "raw",
        target_name="warehouse",
        source_dialect=source.dialect,
        source_columns=COLUMNS,
        source_sql=SQL,
        same_database=scenario.same_database,
        target_known=True,
    )
    if scenario.watermark is not None:
        watermark = SourceWatermark("changed_at", scenario.watermark)
        bounds = Bounds("changed_at", scenario.watermark, "2026-01-02 00:00:00+00:00")
        inspection = replace(inspection, watermark=watermark, bounds=bounds)
    token = Token(pipeline.name, f"warehouse:{target.table.qualified_name}", SLOT)
    return plan_target(
        PlanRequest(pipeline, target, SourceValue(None, sql=SQL), database, token, NOW, source), inspection
    )
