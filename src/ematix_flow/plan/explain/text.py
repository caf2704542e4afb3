"""A plan as lines of plain text for people: every choice with its reason; no colours, no terminal, no markup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.declare.pipeline.write import DROP
from ematix_flow.plan.explain.report import measuring_of, statements_of
from ematix_flow.plan.remote_tasks import RESULTS, STORE
from ematix_flow.plan.steps import IN_PROCESS, TASK
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ematix_flow.connect.base.stage import StageColumn
    from ematix_flow.plan.explain.report import TargetSummary
    from ematix_flow.plan.sql.program import Load
    from ematix_flow.plan.steps import Bounds, FileChoice, Plan, TableRead, TargetPlan

LABEL = 9
"""Width of the words at the left."""


def line(label: str, text: str) -> str:
    """Return one labelled line."""
    return f"  {label:<{LABEL}} {text}".rstrip()


def connection_text(name: str, info: Mapping[str, object] | None) -> str:
    """Return a connection for people: its name and where it leads, as far as that is known."""
    details = info or {}
    host = str(details.get("host") or "")
    where = f"{host}:{details['port']}" if host and details.get("port") else host
    where = "/".join(part for part in (where, str(details.get("dbname") or "")) if part)
    where = f"{details['user']}@{where}" if details.get("user") and where else where
    return f"{name} ({where})" if where else name


def plan_lines(
    plan: Plan, targets: Sequence[TargetSummary], *, verbose: bool = False, dry_run: bool = False
) -> Iterator[str]:
    """Return the lines of a whole plan; `verbose` adds every statement."""
    limit = f", timeout {plan.timeout:g} s" if plan.timeout else ""
    yield f"pipeline {plan.pipeline}" + (f", schedule {plan.schedule}" if plan.schedule else "") + limit
    yield line("source", connection_text(plan.source_connection, plan.source_info))
    yield from _indented(plan.source_sql)
    for target in targets:
        yield ""
        yield from target_lines(target, verbose=verbose)
    if plan.posts:
        yield ""
        yield "after the load" + (" (not part of a dry run)" if dry_run else "")
        yield from (f"    {number}. {post.kind}: {post.summary}" for number, post in enumerate(plan.posts, start=1))
    if plan.notes:
        yield ""
        yield from (f"note: {note}" for note in plan.notes)


def target_lines(target: TargetSummary, *, verbose: bool = False) -> Iterator[str]:
    """Return the lines of one target."""
    connection = connection_text(target.target_connection_name, target.target_connection_info)
    yield f"target {target.schema_qualified_name} on {connection}"
    yield line("mode", target.mode)
    if target.plan is not None:
        yield line("path", f"{target.path}: {target.path_reason}" if target.path else target.path_reason)
        yield from _plan_lines(target.plan, verbose=verbose)
        if verbose and target.spark_plan is not None:
            yield line("spark", "would run what it evaluates like this")
            yield from _indented(target.spark_plan)
        yield from (line("note", note) for note in target.plan.notes)
    if target.dry_run_rows_affected is not None:
        counted = [f"{count} {name.removeprefix('rows_')}" for name, count in target.dry_run_rows_affected.items()]
        yield line("would be", ", ".join(counted))
    if target.quality is not None:
        yield from _verdict_lines(target.quality)
    if target.dry_run_error is not None:
        yield from _block("error", target.dry_run_error)


def _plan_lines(plan: TargetPlan, *, verbose: bool) -> Iterator[str]:
    yield from _table_lines(plan, verbose=verbose)
    yield from _read_lines(plan, verbose=verbose)
    yield line("shape", _shape_text(plan))
    if verbose and plan.shape.place.value and plan.shape.sql != plan.read.sql:
        yield from _indented(plan.shape.sql)
    required = ", ".join(plan.check.required)
    fates = {"fail": "fails the load", "reject": "becomes a reject", DROP: "is counted and forgotten"}
    fate = fates[plan.check.on_bad_row]
    yield line("check", f"{required or 'no column'} must have a value; a row that does not fit {fate}")
    yield line("stage", _stage_text(plan))
    if verbose and not plan.stage.skipped:
        yield f"    {_names(plan.stage.columns)}"
    yield from _audit_lines(plan, verbose=verbose)
    for label, choice in (("keys", plan.commit.keys), ("compare", plan.commit.compare)):
        if choice.value:
            yield line(label, f"{', '.join(choice.value)} ({choice.reason})")
    if plan.commit.load.order or plan.commit.load.order_by:
        yield line("order", _order_text(plan.commit.load))
    yield line("commit", f"{plan.commit.program.label}, in one transaction")
    for number, statement in enumerate(statements_of(plan), start=1):
        yield f"    {number}. {statement.purpose}"
        if verbose:
            yield from _indented(statement.text)


def _order_text(load: Load) -> str:
    """Return which of several rows for one key counts."""
    greatest = f"the one with the greatest {', '.join(load.order_by)}" if load.order_by else ""
    last = "the last in the stream" if load.order else ""
    return f"of several rows for one key {', then '.join(part for part in (greatest, last) if part)} counts"


def _audit_lines(plan: TargetPlan, *, verbose: bool) -> Iterator[str]:
    if plan.audit.skipped:
        yield line("audit", "skipped: EMATIX_SKIP_QUALITY=1")
    if not plan.audit.measures:
        return
    yield line("audit", "before the target is touched; what does not hold")
    fates = {"warn": "is reported", "reject": "sets the row aside", "fail": "fails the load"}
    for one in plan.audit.measures:
        why = f" ({one.holds})" if one.holds else ""
        yield f"    {one.name}: {fates[one.severity]}{why}"
    for sql in measuring_of(plan) if verbose else ():
        yield from _indented(sql)


def _verdict_lines(quality: Mapping[str, Any]) -> Iterator[str]:
    yield line("quality", str(quality["outcome"]))
    for check in quality["checks"]:
        count = check["failed_rows"]
        blame = f", {count} of {quantity(check['total'], 'row')}" if count else ""
        why = f": {check['message']}" if check.get("message") else ""
        yield f"    {check['verdict']:<5} {check['name']} ({check['severity']}){blame}{why}"


def _stage_text(plan: TargetPlan) -> str:
    stage = plan.stage
    if stage.skipped:
        return f"skipped: {stage.skipped}"
    if stage.by.value is None:
        return stage.by.reason
    mover = "this process" if stage.by.value == IN_PROCESS else "Spark"
    carriers = {RESULTS: "the results of tasks", STORE: "a store"}
    carried = (
        f"; rows come here through {carriers[stage.carried.value]}: {stage.carried.reason}" if stage.carried else ""
    )
    return f"by {mover}: {stage.by.reason}{carried}"


def _names(columns: Sequence[StageColumn]) -> str:
    return ", ".join(column.name for column in columns)


def _shape_text(plan: TargetPlan) -> str:
    choice = plan.shape.place
    if choice.value is None:
        return choice.reason
    known = {"source": "the source", "target": "the target", TASK: "the task that stages the rows"}
    evaluator = known.get(str(choice.value), "Spark")
    return f"by {evaluator}: {choice.reason}"


def _table_lines(plan: TargetPlan, *, verbose: bool) -> Iterator[str]:
    ensure = plan.ensure
    if ensure.exists is None:
        yield line("table", "not known: the target could not be queried; if it is missing it is created")
    elif not ensure.exists:
        yield line("table", "is missing and is created")
    elif not ensure.differences:
        yield line("table", "exists as declared")
    else:
        yield line("table", f"exists and differs (on_drift={plan.commit.write.on_drift!r}):")
        for difference in ensure.differences:
            yield f"    {difference.text}{', fixed by the load' if difference.cure in ensure.statements else ''}"
    if ensure.wanted.partitions:
        yield line("divided", f"by {', '.join(map(str, ensure.wanted.partitions))}")
    if verbose:
        for statement in ensure.statements:
            yield from _indented(statement)


def _read_lines(plan: TargetPlan, *, verbose: bool) -> Iterator[str]:
    read = plan.read
    if read.kind == "sql":
        yield line("read", f"SQL on {read.connection}")
    elif read.kind == "files":
        yield line("read", f"{read.format} files {read.path} of {read.connection}")
    elif read.kind == "join":
        yield line("read", f"SQL of Spark over {read.connection}")
        yield from _tables_lines(read.tables, verbose=verbose)
    elif read.span is not None:
        yield line("read", f"what {read.connection} has from {read.span.begin} to {read.span.end}")
    else:
        lake = f"lake tables of {read.connection}"
        yield line("read", lake if read.kind == "lake" else "the rows that the pipeline's function builds")
    if read.files is not None:
        yield from _files_lines(read.files, verbose=verbose)
    if read.bounds is not None:
        yield line("bounds", _bounds_text(read.bounds))
    # On the same-database path the query is part of the statements below.
    if verbose and read.sql and not plan.stage.skipped:
        yield from _indented(read.sql)


def _tables_lines(tables: Sequence[TableRead], *, verbose: bool) -> Iterator[str]:
    for table in tables:
        known = ", ".join(table.columns) or "read by Spark itself"
        yield f"    {table.name} ({table.kind}): {known}"
        if verbose and table.sql:
            yield from _indented(table.sql)


def _files_lines(choice: FileChoice, *, verbose: bool) -> Iterator[str]:
    counted = f"{len(choice.new)} new, {choice.known} known, {len(choice.replaced)} replaced"
    yield line("files", f"{counted} (on_replaced={choice.policy!r})")
    if verbose:
        for what, files in (("new", choice.new), ("replaced", choice.replaced)):
            yield from (f"    {what} {file.key}" for file in files)


def _bounds_text(bounds: Bounds) -> str:
    after = f"{bounds.column} after {bounds.lo}" if bounds.lo is not None else f"{bounds.column} from the beginning"
    if not bounds.fixed:
        return f"{after}, up to the highest value when the load begins"
    return f"{after}, up to {bounds.hi}" if bounds.hi is not None else f"{after}; there is nothing new"


def _indented(text: str) -> Iterator[str]:
    yield from (f"       {part}".rstrip() for part in text.strip("\n").splitlines())


def _block(label: str, text: str) -> Iterator[str]:
    first, *remaining = text.splitlines() or [""]
    yield line(label, first)
    yield from (f"  {'':<{LABEL}} {part}" for part in remaining)
