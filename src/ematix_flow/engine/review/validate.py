"""Has the databases check what a run would send them: read query, commit statements and post steps; nothing runs."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.source import SqlSource
from ematix_flow.connect.base.stage import WorkTable
from ematix_flow.connect.base.target import SqlTarget
from ematix_flow.connect.config.redact import redact, safe_text
from ematix_flow.connect.files.source import ALL_FILES
from ematix_flow.connect.registry import open_database
from ematix_flow.declare.pipeline.pipeline import TransformRef
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.own_target import empty_target_in
from ematix_flow.engine.batch.planner import plan_load, request_for, token_for
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.review.inspect_offline import UNINSPECTED, inspect_source_offline, inspecting_offline
from ematix_flow.engine.review.preview import PREVIEW_SLOT, plan_despite_drift, refuse_plain
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import DriftError, FlowError, RunError, did_you_mean
from ematix_flow.plan.post_steps import first_keyword, is_maintenance, post_steps
from ematix_flow.plan.sql.render import bind_staged, native_column
from ematix_flow.plan.sql.user.joins import check_joined
from ematix_flow.plan.sql.user.query import check_query, statements_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.connect.files.source import Files
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.engine.batch.source import OpenSource
    from ematix_flow.engine.review.inspect_offline import OfflineSource
    from ematix_flow.plan.steps import Post, TargetPlan

EXPLAINABLE = ("select", "insert", "update", "delete", "merge", "replace", "with", "values", "table", "from")
"""First words of statements that every database can explain."""

CHECKED = "_flow_checked"
"""Scratch table in place of the staged rows."""


@dataclass(frozen=True, slots=True)
class ValidateResult:
    """The errors and notes of the databases about a pipeline."""

    pipeline_name: str
    ok: bool
    source_sql: str
    errors: tuple[str, ...]
    target_connection_name: str
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return asdict(self) | {"errors": list(self.errors), "notes": list(self.notes)}

    def to_json(self, indent: int | None = 2) -> str:
        """Return the result as JSON."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def text(self, *, verbose: bool = False) -> str:
        """Return the result for people; `verbose` adds the query that was checked."""
        lines = [f"{self.pipeline_name}: {'ok' if self.ok else 'failed'}"]
        lines += [f"  error: {_indented(error)}" for error in self.errors]
        lines += [f"  note: {_indented(note)}" for note in self.notes]
        if verbose and self.source_sql:
            lines += [f"  source: {_indented(self.source_sql)}"]
        return "\n".join(lines)


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")


class Findings:
    """Errors and notes, each once, in the order they were found."""

    def __init__(self) -> None:
        self.errors: dict[str, None] = {}
        self.notes: dict[str, None] = {}
        self.source_sql = ""
        self.missing = False
        """True when the first load creates a target, which later statements may refer to."""

    def note(self, *texts: str) -> None:
        """Add something that was not checked."""
        self.notes.update(dict.fromkeys(redact(text) for text in texts))

    def error(self, text: str) -> None:
        """Add something that would fail."""
        self.errors[redact(text)] = None

    @contextmanager
    def about(self, what: str, *raised: type[BaseException]) -> Iterator[None]:
        """Run a check whose failure is a finding."""
        try:
            yield
        except FlowError as error:
            where = f"\nAt:   {error.origin}" if error.origin else ""
            self.error(f"{what}: {error.what}" + (f"\nHint: {error.hint}" if error.hint else "") + where)
        except raised as error:
            self.error(f"{what}: {_error_text(error)}")


def _error_text(error: BaseException) -> str:
    """Return the text of an exception; those of Python itself often mean nothing without their name."""
    text, name = safe_text(error), type(error).__name__
    return f"{name}: {text}" if type(error).__module__ == "builtins" and text != name else text


def validate_pipeline(pipeline: Pipeline, options: Options | None = None) -> ValidateResult:
    """Check everything that can be checked without running it; what is wrong comes out as errors, never as a raise."""
    refuse_plain(pipeline)
    findings = Findings()
    with findings.about("source", Exception):
        _check_targets(pipeline, inspect_source_offline(pipeline), options or Options(), findings)
    _check_posts(pipeline, findings)
    return ValidateResult(
        pipeline_name=pipeline.name,
        ok=not findings.errors,
        source_sql=findings.source_sql,
        errors=tuple(findings.errors),
        target_connection_name=pipeline.targets[0].connection_name,
        notes=tuple(findings.notes),
    )


def _check_targets(pipeline: Pipeline, offline_source: OfflineSource, options: Options, findings: Findings) -> None:
    if not offline_source.resolved:
        findings.error(f"source: {'; '.join(offline_source.notes)}")
        return
    findings.note(*offline_source.notes)
    if offline_source.source.value.result is not None:
        findings.note("the function returns a result instead of a source: there is nothing to check")
        return
    for target in pipeline.targets:
        with findings.about(target.table.qualified_name):
            _check_target(pipeline, target, offline_source, options, findings)


def _check_target(
    pipeline: Pipeline, target: TargetDeclaration, offline_source: OfflineSource, options: Options, findings: Findings
) -> None:
    database = target_for(target.connection, target.table, session_for(options))
    token = token_for(pipeline, target, PREVIEW_SLOT)
    load_request = request_for(
        offline_source.unforced(pipeline), target, offline_source.source, database, token, options
    )
    inspect_load = inspecting_offline(source_resolved=True, target_resolved=True)
    name = target.table.qualified_name
    try:
        plan = plan_load(load_request, inspect_load)[0]
    except DriftError as error:
        findings.error(f"{name}: {error.what}")
        plan = replace(plan_despite_drift(load_request, inspect_load), notes=())
    findings.source_sql = findings.source_sql or plan.read.sql
    if plan.ensure.exists is None:
        findings.error(f"{name}: {'; '.join(plan.notes)}")
    else:
        findings.note(*plan.notes)
    source = offline_source.source
    if plan.ensure.exists is False:
        requested = source.value.sql if source.sides else plan.read.sql
        sql = empty_target_in(requested, source, target, database)
        if sql is not None and source.sides:
            source = replace(source, value=replace(source.value, sql=sql))
        elif sql is not None:
            plan = replace(plan, read=replace(plan.read, sql=sql))
    _check_read(plan, source, findings)
    check_commit(plan, database, findings)


def _check_read(plan: TargetPlan, source: OpenSource, findings: Findings) -> None:
    """Have the source database explain the read; what Spark reads is checked by name, without Spark."""
    if source.value.frame is UNINSPECTED:
        return
    database = source.database
    if database is not None and database.exists():
        with findings.about("source query", *database.failures), _closing(database.read_only_session()) as session:
            database.explain(session, plan.read.sql)
    elif source.sides:
        _check_join(plan, source, findings)
    elif source.files is not None and source.value.sql:
        with findings.about("source query"):
            tables = {ALL_FILES: _file_columns(source.files, "", source.value.options)}
            for folder in source.files.folders():
                tables[folder] = _file_columns(source.files, folder, source.value.options)
            check_query(source.value.sql, tables)


def _check_join(plan: TargetPlan, source: OpenSource, findings: Findings) -> None:
    """Have each database explain its part of a query over several connections; its columns are checked by name."""
    systems = {side.alias: side.system for side in source.sides}
    for table in plan.read.tables:
        system = systems[table.alias]
        if table.sql and isinstance(system, SqlSource):
            with findings.about(table.name, *system.failures), _closing(system.read_only_session()) as session:
                system.explain(session, table.sql)
    with findings.about("source query"):
        check_joined(source.value.sql, plan.read.tables)


def _file_columns(files: Files, folder: str, options: Mapping[str, Any]) -> dict[str, str]:
    try:
        return {column.name: column.family for column in files.file_set(folder, options).columns}
    except RunError:
        return {}


def check_commit(plan: TargetPlan, database: TargetSystem, findings: Findings) -> None:
    """Have the target explain every statement of the commit, over an empty scratch table of the staged columns."""
    if plan.ensure.exists is None:
        return
    if not plan.ensure.exists:
        findings.missing = True
        findings.note(f"{plan.table_name} does not exist yet: the statements of its commit are not checked")
        return
    if plan.ensure.differences or not isinstance(database, SqlTarget):
        return
    with findings.about(f"{plan.table_name}: commit", *database.failures), _closing(database.session()) as session:
        points = plan.commit.load.points
        if points is not None and database.find_table(session, points) is None:
            findings.note(f"{plan.table_name} has no table of folded events yet: its commit is not checked")
            return
        work = (*plan.commit.program.work_tables, WorkTable(CHECKED, plan.stage.columns))
        names = {table.name: database.create_work_table(session, table, plan.token.tag) for table in work}
        for statement in plan.commit.program.statements:
            database.explain(session, _bound(statement.text, database.dialect, names))


def _bound(sql: str, dialect: str, names: Mapping[str, str]) -> str:
    for name, actual in names.items():
        sql = sql.replace(native_column(name, dialect), actual)
    # Bound last: the relation may itself hold the name of a work table.
    return bind_staged(sql, dialect, names[CHECKED])


def _check_posts(pipeline: Pipeline, findings: Findings) -> None:
    for post in post_steps(pipeline):
        if isinstance(post.step, TransformRef):
            known = [*PROJECT.transforms, *PROJECT.pipelines]
            if post.step.name not in known:
                hint = did_you_mean(post.step.name, known)
                findings.error(f"{post.name}: no transform or pipeline has this name\nHint: {hint}")
        elif isinstance(post.step, str):
            with findings.about(post.name):
                _check_sql_post(post, open_database(pipeline.targets[0].connection), findings)


def _check_sql_post(post: Post, database: Catalog, findings: Findings) -> None:
    for sql in statements_in(str(post.step), database.dialect):
        if is_maintenance(sql):
            findings.note(f"{post.name}: {first_keyword(sql).upper()} is maintenance, which no database explains")
        elif first_keyword(sql) not in EXPLAINABLE:
            findings.note(
                f"{post.name}: {first_keyword(sql).upper()} is not checked, a database explains queries and changes"
            )
        elif not database.exists():
            findings.note(f"{post.name}: not checked, the database does not exist yet")
        else:
            _explain_post(sql, post, database, findings)


def _explain_post(sql: str, post: Post, database: Catalog, findings: Findings) -> None:
    try:
        with _closing(database.session()) as session:
            database.explain(session, sql)
    except database.failures as error:
        if findings.missing:
            findings.note(f"{post.name}: not checked before the first load creates its table ({safe_text(error)})")
        else:
            findings.error(f"{post.name}: {safe_text(error)}")


@contextmanager
def _closing(session: Session) -> Iterator[Session]:
    try:
        yield session
    finally:
        session.close()
