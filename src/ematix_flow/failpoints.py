"""Named places where a crash can be requested; free when `FLOW_FAILPOINTS` is unset, never a control flow.

The variable holds `name=action` pairs joined by commas. Actions: `kill` (SIGKILL of this process), `raise`,
`stop` (SIGSTOP), `sleep:SECONDS`, `note:FILE` (append the name and the time to a file, to show where time goes).
`name=action@N` acts on the N-th passing only (counted per process), `@N-M` on those from N to M, and
`name=action@file:PATH` acts once for all processes: the first one that can create PATH.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

NAMES = (
    "token.before_insert",
    "token.after_insert",
    "plan.after_bounds",
    "ddl.before_expand",
    "ddl.after_expand",
    "stage.task_start",
    "stage.mid_rows",
    "stage.before_task_commit",
    "stage.after_task_commit",
    "stage.before_return",
    "stage.collected",
    "commit.connected",
    "commit.fence_locked",
    "commit.ledger_inserted",
    "commit.verified",
    "commit.watermark",
    "commit.dlq",
    "commit.applied_first_stmt",
    "commit.applied",
    "commit.before_commit",
    "commit.commit_sent",
    "commit.after_commit",
    "runlog.before_success",
    "runlog.after_success",
    "gc.before_drop",
    "gc.mid_drop",
    "post.before",
    "post.after",
)
"""Every failpoint of the batch path, in the order a load passes them."""

AUDIT_NAMES = ("commit.measured", "commit.audited")
"""Further ones of loads with expectations, between `commit.verified` and `commit.watermark`."""

CARRY_NAMES = ("carry.before_send", "carry.received")
"""Further ones of loads whose staged rows come to the driver from other machines; the first one is passed in tasks."""

RESULT_NAMES = ("result.before_print", "result.after_print", "result.after_close")
"""Further ones of `flow run`, which closes its request after the result is printed and everything else has ended."""

STORE_NAMES = ("store.before_record", "store.after_record", "store.mid_settle")
"""Further ones of targets that commit by a record in a store."""

LAKE_NAMES = ("store.before_change", "store.after_change", "store.before_record")
"""Further ones of lake tables, whose own commit comes before the record."""

ADDING_NAMES = ("store.files_placed",)
"""Further ones of a load whose staged files become files of a lake table."""


SINK_NAMES = ("sink.begun", "sink.before_position", "sink.before_commit", "sink.after_commit")
"""Those of a batch of a stream whose target is a broker; only a transaction passes `sink.before_commit`."""

TRANSFORM_NAMES = ("stream.read", "stream.transformed")
"""Further ones of streams whose SQL runs on Spark: after tasks have read the messages, and after they have the result."""

STATE_NAMES = ("state.range_written", "state.computed", "state.loaded")
"""Further ones of streams with state: before Spark reads a range, after it has computed a batch, and after its load."""

REDEPLOY_NAMES = (
    "redeploy.begun",
    "redeploy.replayed",
    "redeploy.built",
    "redeploy.before_switch",
    "redeploy.switched",
    "redeploy.removed",
)
"""Those of a state that is built anew: the second one after every range, the fourth one in the transaction that decides."""

SPOOL_NAMES = ("spool.before_fsync", "spool.after_fsync", "spool.after_ack")
"""Further ones of streams that read queues, in the order a message passes them."""


CDC_NAMES = (
    "cdc.published",
    "cdc.slot_created",
    "cdc.snapshot_exported",
    "cdc.before_advance",
    "cdc.advanced",
)
"""Further ones of streams that read the log of PostgreSQL, in the order a stream passes them."""

ADOPTION_NAMES = ("runlog.adopting", "runlog.adopted")
"""Those of a project that takes a record of an old run log over: before it has its own, and before the old one goes."""

SLOT_NAMES = (
    "scheduler.leading",
    "slot.claimed",
    "slot.begun",
    "scheduler.taken",
    "scheduler.dispatched",
    "slot.before_success",
    "slot.ended",
)
"""Further ones of scheduled runs, in the order a slot passes them; the load comes before `slot.before_success`."""


class FailpointError(RuntimeError):
    """Raised by a failpoint whose action is `raise`."""


@dataclass(slots=True)
class _Armed:
    action: str
    argument: str = ""
    first: int = 0
    last: int = 0
    once_file: str = ""
    passed: int = field(default=0)


def _parse(text: str) -> dict[str, _Armed]:
    armed: dict[str, _Armed] = {}
    for entry in filter(None, (item.strip() for item in text.split(","))):
        name, _, spec = entry.partition("=")
        action, _, when = spec.partition("@")
        verb, _, argument = action.partition(":")
        once_file = when.removeprefix("file:") if when.startswith("file:") else ""
        first, _, last = when.partition("-") if not once_file else ("", "", "")
        armed[name] = _Armed(verb, argument, int(first or 0), int(last or first or 0), once_file)
    return armed


_armed = _parse(os.environ.get("FLOW_FAILPOINTS", ""))


def arm(text: str) -> None:
    """Replace what is armed in this process; tests use it, the environment variable does it for a whole command."""
    global _armed  # noqa: PLW0603 - one process-wide switch, so that a disarmed failpoint costs one dict check
    _armed = _parse(text)


def failpoint(name: str) -> None:
    """Perform the action of this failpoint: nothing, unless it is armed."""
    if _armed and name in _armed:
        _act(name, _armed[name])


def _act(name: str, armed: _Armed) -> None:
    armed.passed += 1
    if armed.first and not armed.first <= armed.passed <= armed.last:
        return
    if armed.once_file:
        try:
            Path(armed.once_file).touch(exist_ok=False)
        except FileExistsError:
            return
    match armed.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "sleep":
            time.sleep(float(armed.argument or 1))
        case "note":
            with Path(armed.argument).open("a", encoding="utf-8") as notes:
                notes.write(f"{name} {time.time():.6f}\n")
        case _:
            raise FailpointError(name)
