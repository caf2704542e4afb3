"""Options that narrow lists down: by name, by state and by time; the commands decide what is listed."""

from __future__ import annotations

from datetime import datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.errors import DeclareError, UnknownNameError, did_you_mean
from ematix_flow.serve.cli.common.errors import UsageRefusedError
from ematix_flow.serve.cli.common.slot_runner import InstantType

if TYPE_CHECKING:
    from collections.abc import Iterable

STATES = ("running", "due", "waiting", "paused", "backoff", "gave_up", "interrupted", "cancelled", "idle")


class Since(click.ParamType[datetime]):
    """An instant in ISO form, or how long ago: 90s, 30m, 6h, 7d."""

    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return the instant, or refuse the text."""
        from ematix_flow.declare.pipeline.keywords import duration

        try:
            return InstantType().convert(SYSTEM_CLOCK.now() - duration("--since", value), param, ctx)
        except OverflowError:
            self.fail(f"{value!r} is longer ago than any run.", param, ctx)
        except (DeclareError, TypeError):
            return InstantType().convert(value, param, ctx)


names_argument = click.argument("names", nargs=-1, metavar="[NAME]...")
state_option = click.option("--state", type=click.Choice(STATES), help="Only what is in this state.")


def is_named(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a name matches: every one does without patterns; * and ? stand for any characters."""
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def check_names(patterns: tuple[str, ...], known: Iterable[str]) -> None:
    """Refuse a name that nothing is declared under."""
    names = list(known)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            error = UnknownNameError(f"nothing named {pattern!r} is declared", hint=did_you_mean(pattern, names))
            raise UsageRefusedError(error)
