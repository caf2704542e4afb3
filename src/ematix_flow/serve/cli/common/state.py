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
    """True when a failure is wanted as JSON on stdout too."""
    when_stopped: str | None = None
    """What to say to a user whose command was stopped by a signal."""
    close_request: Callable[[], None] | None = None
    """Closes the request of a run whose result is delivered."""
    request_closed: bool = False
    """True when the request is closed: nothing that comes later makes the command a failed one."""
    ending: ExitStack = field(default_factory=ExitStack)
    """Runs after the result or the error is told."""

    def at_end(self, action: Callable[[], object]) -> None:
        """Do something when the command has told its result."""
        self.ending.callback(action)


def user_name(otherwise: str) -> str:
    """Return the name of the user, or another word for one that has none, as in containers."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return otherwise


def current() -> State:
    """Return the state of the command that runs."""
    return click.get_current_context().ensure_object(State)
