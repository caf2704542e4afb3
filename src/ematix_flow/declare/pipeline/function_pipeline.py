"""Pipelines that are a plain function: the function does its own work, the project knows its name and its schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.declare.origin import caller_origin
from ematix_flow.declare.pipeline.keywords import timing_keywords
from ematix_flow.declare.pipeline.pipeline import Pipeline, arguments_of
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.schedule.schedule import timing_of
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
    **more: Any,
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Return the decorator that takes a function without arguments into the project and leaves it as it is.

    `more` is what pipelines with targets take too: catchup, idempotent, pool, priority, realert_after and
    alert_every_attempt.
    """
    origin = caller_origin()
    options = {
        "schedule": schedule,
        "timezone": timezone,
        "depends_on": depends_on,
        "upstream_freshness": upstream_freshness_secs,
        "retry": retry,
        **more,
    }

    def declare(function: Callable[[], Any]) -> Callable[[], Any]:
        try:
            if arguments_of(function):
                message = f"{function.__name__}() takes arguments, which no run could fill"
                raise DeclareTypeError(message, hint="register a function without arguments, or use @ematix.pipeline.")
            PROJECT.add_pipeline(
                Pipeline(name=name, function=function, targets=(), **timing_of(timing_keywords(options)), origin=origin)
            )
        except FlowError as error:
            raise error.at(origin) from None
        return function

    return declare
