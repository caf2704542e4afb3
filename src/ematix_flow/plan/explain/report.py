"""A plan as plain data under its public key names; it reads a plan and derives nothing anew."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.session import Statement
from ematix_flow.plan.columns import FAILED, RAW
from ematix_flow.plan.sql.program import INCOMING
from ematix_flow.plan.sql.render import STAGED, bind_staged, native_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ematix_flow.plan.steps import FileChoice, Plan, Post, TargetPlan


@dataclass(frozen=True, slots=True)
class TargetSummary:
    """One target of a plan under its public names; without `plan` only the declaration is known."""

    schema_qualified_name: str
    mode: str
    target_connection_name: str
    declared_columns: tuple[str, ...]
    path: str | None = None
    path_reason: str = ""
    augmented_columns: tuple[str, ...] = ()
    merge_keys: tuple[str, ...] = ()
    merge_keys_reason: str = ""
    compare_columns: tuple[str, ...] = ()
    compare_columns_reason: str = ""
    target_connection_info: Mapping[str, object] | None = None
    plan_sql: str = ""
    plan_sql_label: str = ""
    dry_run_rows_affected: Mapping[str, int] | None = None
    dry_run_error: str | None = None
    quality: Mapping[str, Any] | None = None
    """What a dry run measured of the rows."""
    spark_plan: str | None = None
    """How Spark would run what it evaluates, where that was requested."""
    plan: TargetPlan | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the target as plain data: the public keys first, then the steps of the plan."""
        left_out = ("plan", "spark_plan") if self.spark_plan is None else ("plan",)
        known = {f.name: _plain_value(getattr(self, f.name)) for f in fields(self) if f.name not in left_out}
        return known | (steps_of(self.plan) if self.plan is not None else {})


def summary_of(plan: TargetPlan) -> TargetSummary:
    """Return a planned target under its public names."""
    commit = plan.commit
    declared = tuple(column.name for column in commit.load.columns)
    column_names = (column.column.name for column in plan.ensure.wanted.columns)
    return TargetSummary(
        schema_qualified_name=plan.table_name,
        mode=commit.write.spelled,
        target_connection_name=plan.connection,
        declared_columns=declared,
        path=plan.path.value,
        path_reason=plan.path.reason,
        augmented_columns=tuple(name for name in column_names if name not in declared),
        merge_keys=commit.keys.value,
        merge_keys_reason=commit.keys.reason,
        compare_columns=commit.compare.value,
        compare_columns_reason=commit.compare.reason,
        target_connection_info=plan.connection_info,
        plan_sql=";\n\n".join(statement.text for statement in statements_of(plan)),
        plan_sql_label=commit.program.label,
        plan=plan,
    )


def statements_of(plan: TargetPlan) -> tuple[Statement, ...]:
    """Return the statements of the commit as they are sent; staged rows have the name of their relation."""
    program, dialect = plan.commit.program, plan.commit.load.dialect
    if plan.path.value != "same_db":
        return program.statements
    if not program.materializes_incoming(marked=plan.shape.marked, audited=bool(plan.audit.measures)):
        return tuple(_bound(statement, dialect, f"({plan.read.sql})") for statement in program.statements)
    incoming = native_column(INCOMING, dialect)
    names = [column.name for column in plan.stage.columns] + ([FAILED, RAW] if plan.shape.marked else [])
    listed = ", ".join(native_column(name, dialect) for name in names)
    store = Statement(f"INSERT INTO {incoming} ({listed}) {plan.read.sql}", "", "keep the rows of the source query")
    return (store, *(_bound(statement, dialect, incoming) for statement in program.statements))


def _bound(statement: Statement, dialect: str, relation: str) -> Statement:
    return replace(statement, sql=bind_staged(statement.sql, dialect, relation))


def plan_dict(plan: Plan, targets: Sequence[TargetSummary]) -> dict[str, Any]:
    """Return a whole plan as plain data; `targets` also has those that could not be planned."""
    return {
        "pipeline_name": plan.pipeline,
        "schedule": plan.schedule,
        **({} if plan.timeout is None else {"timeout": plan.timeout}),
        "mode": mode_of([target.mode for target in targets]),
        "source_connection_name": plan.source_connection,
        "source_connection_info": dict(plan.source_info),
        "source_sql": plan.source_sql,
        "targets": [target.to_dict() for target in targets],
        "notes": list(notes_of(plan)),
        "transforms_post": posts_of(plan.posts),
    }


def notes_of(plan: Plan) -> tuple[str, ...]:
    """Return the notes of a plan and of its targets, each once."""
    return tuple(dict.fromkeys((*plan.notes, *(note for target in plan.targets for note in target.notes))))


def mode_of(modes: list[str]) -> str | None:
    """Return the mode of a pipeline; targets of several modes have none in common."""
    return modes[0] if len(set(modes)) == 1 else None


def posts_of(posts: tuple[Post, ...]) -> list[dict[str, str]]:
    """Return the post steps as plain data."""
    return [{"kind": post.kind, "summary": post.summary, "name": post.name} for post in posts]


def steps_of(plan: TargetPlan) -> dict[str, Any]:
    """Return the steps of one target as plain data, in the order they run."""
    return {
        "table": _table(plan),
        "read": _read(plan),
        "shape": {
            "evaluated_by": plan.shape.place.value,
            "reason": plan.shape.place.reason,
            "dialect": plan.shape.dialect,
            "sql": plan.shape.sql,
        },
        "check": {
            "required": list(plan.check.required),
            "never_empty": list(plan.check.filled),
            "on_bad_row": plan.check.on_bad_row,
        },
        "stage": {
            "columns": [column.name for column in plan.stage.columns],
            "by": plan.stage.by.value,
            "reason": plan.stage.by.reason,
            **({"through": plan.stage.carried.value} if plan.stage.carried else {}),
        },
        "audit": _audit(plan),
        "commit": [{"purpose": s.purpose, "counts": s.counts, "sql": s.sql} for s in statements_of(plan)],
        "notes": list(plan.notes),
    }


def measuring_of(plan: TargetPlan) -> tuple[str, ...]:
    """Return the queries that measure the staged rows, the one for many of them first."""
    measures, dialect = plan.audit.measures, plan.commit.load.dialect
    together = [one.counted for one in measures if one.counted]
    if not measures:
        return ()
    return (f"SELECT {', '.join(['COUNT(*)', *together])} FROM {native_column(STAGED, dialect)} AS s",
            *(one.query for one in measures if one.query))  # fmt: skip


def _audit(plan: TargetPlan) -> dict[str, Any]:
    named = [{"name": m.name, "columns": list(m.columns), "severity": m.severity} for m in plan.audit.measures]
    return {"skipped": plan.audit.skipped, "expectations": named, "sql": list(measuring_of(plan))}


def _table(plan: TargetPlan) -> dict[str, Any]:
    ensure = plan.ensure
    return {
        "exists": ensure.exists,
        "columns": [
            {"name": c.column.name, "type": str(c.column.type), "nullable": c.nullable} for c in ensure.wanted.columns
        ],
        "primary_key": list(ensure.wanted.primary_key),
        "unique": [list(group) for group in ensure.wanted.unique],
        "partitions": [str(partition) for partition in ensure.wanted.partitions],
        "differences": [difference.text for difference in ensure.differences],
        "statements": list(ensure.statements),
    }


def _read(plan: TargetPlan) -> dict[str, Any]:
    read, bounds = plan.read, plan.read.bounds
    known: dict[str, Any] = {
        "kind": read.kind,
        "connection": read.connection,
        "sql": read.sql,
        "path": read.path,
        "format": read.format,
        "columns": [{"name": c.name, "family": c.family, "type": c.native} for c in read.columns],
        "bounds": None
        if bounds is None
        else {"column": bounds.column, "after": bounds.lo, "up_to": bounds.hi, "fixed": bounds.fixed},
    }
    if read.tables:
        known["tables"] = [
            {"name": t.name, "connection": t.connection, "kind": t.kind, "columns": list(t.columns), "sql": t.sql}
            for t in read.tables
        ]
    if read.span is not None:
        known["span"] = {"source": read.span.source, "from": read.span.begin, "to": read.span.end}
    return known if read.files is None else known | {"files": _files(read.files)}


def _files(choice: FileChoice) -> dict[str, Any]:
    return {
        "new": [file.key for file in choice.new],
        "known": choice.known,
        "replaced": [file.key for file in choice.replaced],
        "on_replaced": choice.policy,
    }


def _plain_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if hasattr(value, "keys") else value
