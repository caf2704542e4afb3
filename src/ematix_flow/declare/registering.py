"""Pipelines that are a plain function: the function does its own work, the project knows its name and its schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.declare.keywords import duration
from ematix_flow.declare.origin import caller_origin
from ematix_flow.declare.pipeline import Pipeline, arguments_of
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.schedule import check_schedule, retry_from
from ematix_flow.errors import DeclareTypeError, FlowError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def register(
    *,
    name: str,
    schedule: str | None,
    depends_on: str | Sequence[str] | None = None,
    upstream_freshness_secs: float | None = None,
    retry: Any = None,
    timezone: str | None = None,
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Give the decorator that takes a function without arguments into the project and leaves it as it is."""
    origin = caller_origin()

    def declare(function: Callable[[], Any]) -> Callable[[], Any]:
        try:
            if arguments_of(function):
                message = f"{function.__name__}() takes arguments, which no run could fill"
                raise DeclareTypeError(message, hint="register a function without arguments, or use @ematix.pipeline.")
            fresh = upstream_freshness_secs
            PROJECT.add_pipeline(
                Pipeline(
                    name=name,
                    function=function,
                    targets=(),
                    schedule=check_schedule(schedule, timezone),
                    timezone=timezone,
                    depends_on=upstream_names(depends_on),
                    upstream_freshness=None if fresh is None else duration("upstream_freshness_secs", fresh),
                    retry=retry_from(retry),
                    origin=origin,
                )
            )
        except FlowError as error:
            raise error.at(origin) from None
        return function

    return declare


def upstream_names(value: Any) -> tuple[str, ...]:
    """Give the names of the pipelines that `depends_on=` means: names, or the declared pipelines themselves."""
    if value is None:
        return ()
    entries = (value,) if isinstance(value, str) or hasattr(value, "name") else value
    if not isinstance(entries, list | tuple | set | frozenset):
        message = f"depends_on= takes names, not {type(value).__name__}"
        raise DeclareTypeError(message, hint='write the name of a pipeline or a list, for example depends_on=["raw"].')
    return tuple(str(getattr(entry, "name", entry)) for entry in entries)
