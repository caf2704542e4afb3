"""Workflows as declared: pipelines that are set off together, and what sets them off; whether it has is not known here."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.origin import caller_origin
from ematix_flow.declare.pipeline.pipeline import Source
from ematix_flow.declare.project import PROJECT, WORKFLOW_PREFIX
from ematix_flow.declare.schedule.schedule import check_schedule
from ematix_flow.errors import DeclareError, DeclareTypeError, FlowError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ematix_flow.errors import Origin


@dataclass(frozen=True, slots=True)
class TriggerOp:
    """A condition over successes of pipelines and workflows: `all` or `any` of the members."""

    kind: str
    members: tuple[str | TriggerOp, ...]

    def leaves(self) -> tuple[str, ...]:
        """Return the names that the condition is about, each once, in the order they are written in."""
        return tuple(dict.fromkeys(self._names()))

    def _names(self) -> Iterator[str]:
        for member in self.members:
            if isinstance(member, TriggerOp):
                yield from member.leaves()
            else:
                yield member

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(str(member) for member in self.members)})"


def AllOf(*members: Any) -> TriggerOp:  # noqa: N802 - spelled like a type, as users know it
    """Return the condition that every member has succeeded."""
    return _condition("all", members)


def AnyOf(*members: Any) -> TriggerOp:  # noqa: N802 - spelled like a type, as users know it
    """Return the condition that one member has succeeded."""
    return _condition("any", members)


def _condition(kind: str, members: Sequence[Any]) -> TriggerOp:
    if not members:
        message = f"{kind.title()}Of() needs at least one pipeline"
        raise DeclareError(message)
    checked = tuple(member if isinstance(member, TriggerOp) else name_of(member) for member in members)
    _refuse_twice("upstream", [member for member in checked if isinstance(member, str)])
    return TriggerOp(kind, checked)


@dataclass(frozen=True, slots=True)
class Workflow:
    """Pipelines that run together, and what sets them off."""

    name: str
    jobs: tuple[str, ...]
    triggered_by: TriggerOp | None = None
    schedule: str | None = None
    timezone: str | None = None
    on_message: Source | None = None
    origin: Origin | None = None

    @property
    def key(self) -> str:
        """Return the name under which the run log keeps the state of the workflow."""
        return workflow_key(self.name)


def workflow_key(name: str) -> str:
    """Return the name under which the run log keeps the state of a workflow; no pipeline can have it."""
    return f"{WORKFLOW_PREFIX}{name}"


def workflow(
    *,
    name: str,
    jobs: Any,
    triggered_by: Any = None,
    schedule: str | None = None,
    timezone: str | None = None,
    on_message: Any = None,
    **unknown: Any,
) -> Workflow:
    """Declare a workflow of pipelines that are declared already, and return it."""
    origin = caller_origin()
    try:
        _refuse_unknown(unknown)
        declared = Workflow(
            name=_check_name("name", name),
            jobs=_jobs(jobs),
            triggered_by=_trigger(triggered_by),
            schedule=check_schedule(schedule, timezone),
            timezone=timezone,
            on_message=_message(on_message),
            origin=origin,
        )
        _check_triggers(declared)
        _refuse_circle(declared)
        _claim_jobs(declared)
        PROJECT.add_workflow(declared)
    except FlowError as error:
        raise error.at(origin) from None
    return declared


def name_of(value: Any) -> str:
    """Return the name of a pipeline or workflow that was named or handed over."""
    return _check_name("member", getattr(value, "name", value))


def _check_name(option: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        message = f"{option}={value!r} must be a name"
        raise DeclareError(message)
    return value


def _jobs(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value:
        message = "a workflow needs at least one job"
        raise DeclareError(message, hint='jobs=["first", "second"], or the declared pipelines themselves.')
    names = tuple(name_of(job) for job in value)
    _refuse_twice("job", names)
    for name in names:
        if name not in PROJECT.pipelines and name not in PROJECT.streams:
            message = f"job {name!r} is not declared"
            raise DeclareError(message, hint=did_you_mean(name, (*PROJECT.pipelines, *PROJECT.streams)))
    return names


def _trigger(value: Any) -> TriggerOp | None:
    if value is None or isinstance(value, TriggerOp):
        return value
    return AllOf(*(value if isinstance(value, list | tuple) else (value,)))


def _message(value: Any) -> Source | None:
    if value is None or isinstance(value, Source):
        return value
    message = f"on_message= takes Source(connection, query=topic or queue), not {type(value).__name__}"
    raise DeclareTypeError(message)


def _check_triggers(declared: Workflow) -> None:
    triggers = [declared.triggered_by, declared.schedule, declared.on_message]
    streams = [name for name in declared.jobs if name in PROJECT.streams]
    if declared.timezone is not None and declared.schedule is None:
        message = "timezone= belongs to schedule="
        raise DeclareError(message)
    if streams and any(triggers):
        message = f"{streams[0]!r} is a stream, which runs all the time, so the workflow takes no trigger"
        raise DeclareError(message)
    if declared.on_message is not None and (declared.triggered_by or declared.schedule):
        message = "on_message= cannot be combined with triggered_by= or schedule="
        raise DeclareError(message)
    if not streams and not any(triggers):
        message = f"nothing sets workflow {declared.name!r} off"
        raise DeclareError(message, hint="give schedule=, triggered_by= or on_message=.")
    for name in declared.triggered_by.leaves() if declared.triggered_by else ():
        if name not in PROJECT.pipelines and name not in PROJECT.workflows:
            message = f"workflow {declared.name!r} is triggered by {name!r}, which is not declared before it"
            raise DeclareError(message, hint=did_you_mean(name, (*PROJECT.pipelines, *PROJECT.workflows)))


def _refuse_circle(declared: Workflow) -> None:
    """Refuse a workflow that sets itself off through its jobs: it would fire for ever."""
    jobs = {**PROJECT.jobs, **dict.fromkeys(declared.jobs, declared)}
    workflows = {**PROJECT.workflows, declared.name: declared}
    paths = [(declared, (f"workflow {declared.name}",))]
    visited: set[str] = set()
    while paths:
        workflow, path = paths.pop()
        succeeded = {workflow.name: path} | {n: (*path, n) for n in workflow.jobs if jobs.get(n) is workflow}
        for after in workflows.values():
            cause = (
                next((n for n in after.triggered_by.leaves() if n in succeeded), None) if after.triggered_by else None
            )
            if cause is None:
                continue
            longer = (*succeeded[cause], f"workflow {after.name}")
            if after is declared:
                message = f"workflow {declared.name!r} sets itself off for ever: {' -> '.join(longer)}"
                raise DeclareError(message, hint="take one of these out of jobs= or triggered_by=.")
            if after.name not in visited:
                visited.add(after.name)
                paths.append((after, longer))


def _claim_jobs(declared: Workflow) -> None:
    for name in declared.jobs:
        other = PROJECT.jobs.get(name)
        if other is not None:
            text = f"job {name!r} moves from workflow {other.name!r} to {declared.name!r}"
            warnings.warn(text, UserWarning, stacklevel=4)


def _refuse_twice(kind: str, names: Sequence[str]) -> None:
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        message = f"{kind} {twice[0]!r} stands there twice"
        raise DeclareError(message)


def _refuse_unknown(unknown: dict[str, Any]) -> None:
    for keyword in unknown:
        message = f"a workflow has no keyword {keyword!r}"
        known = ("name", "jobs", "triggered_by", "schedule", "timezone", "on_message")
        hint = "write triggered_by= instead." if keyword == "depends_on" else did_you_mean(keyword, known)
        raise DeclareTypeError(message, hint=hint)
