"""What one call of the command line carries from its options to its end."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from ematix_flow.serve.cli.common.signals import Stop

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class State:
    """Options that every command has, and what must be undone when it ends."""

    stop: Stop = field(default_factory=Stop)
    traceback: bool = False
    json_errors: bool = False
    """True when a failure is printed as JSON on stdout too."""
    when_stopped: str | None = None
    """The message for a user whose command was stopped by a signal."""
    close_request: Callable[[], None] | None = None
    """Closes the request of a run whose result is delivered."""
    request_closed: bool = False
    """True when the request is closed: nothing that comes later makes the command a failed one."""
    ending: ExitStack = field(default_factory=ExitStack)
    """Runs after the result or the error is printed."""

    def at_end(self, action: Callable[[], object]) -> None:
        """Register an action for after the result is printed."""
        self.ending.callback(action)


def user_name(otherwise: str) -> str:
    """Return the name of the user, or another text for one that has none, as in containers."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return otherwise


def current() -> State:
    """Return the state of the command that runs."""
    return click.get_current_context().ensure_object(State)
