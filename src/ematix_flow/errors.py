"""Errors for people: a fact, a hint and the location of the declaration; no I/O and no retry logic here.

Each class also derives from the built-in type that callers of the public contract already catch.
"""

from __future__ import annotations

import difflib
import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ematix_flow.records import Audited


@dataclass(frozen=True, slots=True)
class Origin:
    """Where in the user's files something was declared."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system reports when a disk, a quota or a file can take no more."""


class FlowError(Exception):
    """Base of every error that this package raises on purpose."""

    transient = False
    """True when the same call may succeed later without a change by the user."""

    def __init__(self, what: str, *, hint: str | None = None, origin: Origin | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.origin = origin

    def __str__(self) -> str:
        lines = [self.what]
        if self.hint:
            lines.append(f"Hint: {self.hint}")
        if self.origin:
            lines.append(f"At:   {self.origin}")
        return "\n".join(lines)

    def at(self, origin: Origin | None) -> FlowError:
        """Return the error with the location of the declaration that it is about, unless it has one."""
        self.origin = self.origin or origin
        return self


class DeclareError(FlowError, ValueError):
    """A declaration has an impossible value."""


class DeclareTypeError(FlowError, TypeError):
    """A declaration has the wrong shape: a missing or unknown keyword, a wrong type."""


class UnknownNameError(FlowError, KeyError):
    """A name that nothing was declared under."""


class ConnectionMissingError(FlowError, LookupError):
    """No level of the resolution chain has this connection."""


class MissingSecretError(FlowError, KeyError):
    """A `${...}` reference that cannot be resolved."""


class MissingExtraError(FlowError, ImportError):
    """A system needs a package that is not installed."""


class PlanError(FlowError, ValueError):
    """The declarations cannot be turned into a plan."""


class UnsupportedError(FlowError, NotImplementedError):
    """The chosen system cannot do what was requested."""


class DriftError(FlowError, ValueError):
    """The table in the target differs from its declaration."""


class RunError(FlowError, ValueError):
    """The work itself failed; the target is unchanged."""


class NotOnlineError(RunError, RuntimeError):
    """The current values of a feature view were requested, and it has no online store."""


class BadRowsError(RunError):
    """Rows of the source do not fit the target and the policy is to load nothing."""


class CommitError(RunError):
    """The commit was refused or rolled back; the target is unchanged."""


class StagingLostError(CommitError):
    """Staging does not hold what its tasks reported, as after a crash of the server; the rows can be staged again."""


class RefusedError(CommitError):
    """The target's own rules refused the rows, for example one of its constraints."""


class StalePlanError(CommitError):
    """The target, or what waits for it, is no longer what the plan was built for; nothing was changed."""


class FencedError(CommitError):
    """A newer run of the same pipeline took over; this one may not commit any more."""


class PositionMovedError(FencedError):
    """A stream has moved on in its target since its position was read; nothing was changed."""


class RunCancelledError(RunError):
    """The run was cancelled before it committed."""


class RunTimeoutError(RunError, TimeoutError):
    """The run took longer than its pipeline allows, and was stopped before it committed."""

    transient = True


class QualityCheckFailed(RunError, AssertionError):  # noqa: N818 - the name of the public contract
    """Rows of a load do not satisfy what was expected of them, and the target is as it was."""

    audited: Audited | None = None
    """What was measured."""


class QualityUnrunnable(RunError, RuntimeError):  # noqa: N818 - the name of the public contract
    """An expectation that decides about a load could not be measured, and the target is as it was."""


class StreamLostError(RunError):
    """Messages that a stream has not read yet are gone, or its position means nothing any more; an operator decides."""


class UnknownOutcomeError(CommitError):
    """A commit was sent and no ledger could be queried whether it happened."""

    transient = True


class TransientError(RunError):
    """The other side was away or busy; the same load may be tried again."""

    transient = True


class TargetAwayError(TransientError):
    """The table of a target that was loaded before is not there now; nothing was changed."""


class EngineLostError(TransientError):
    """The Spark that worked on a load ended in the middle of it; nothing was changed, and another one can do it again."""


class OvertakenError(TransientError):
    """Another writer committed first, and nothing was changed: the same work may be begun again at once."""


class RunLogError(TransientError):
    """The run log does not answer or cannot be written; loads go on without it."""


OWN_PREFIX = "_flow_"
"""How the names of columns begin that loads add to rows on their way and that users may not use."""


def usable(names: Iterable[str]) -> list[str]:
    """Return the names that a user can use, in their order: none of our own."""
    return [name for name in names if not name.lower().startswith(OWN_PREFIX)]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `name`, if any is."""
    known = usable(known)
    matches = difflib.get_close_matches(name.lower(), {k.lower(): k for k in known}, n=1, cutoff=0.6)
    return {k.lower(): k for k in known}[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the hint for an unknown name: the nearest known one, or all of them."""
    names = sorted(usable(known))
    match = nearest(name, names)
    listed = ", ".join(names) if names else "none"
    return f"did you mean {match!r}? Known: {listed}." if match else f"known: {listed}."
