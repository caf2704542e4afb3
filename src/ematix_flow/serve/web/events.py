"""Server-sent events: one reader of the run log for all open pages, which says what changed and never how."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool

from ematix_flow.commit.runlog.records import Action
from ematix_flow.errors import RunLogError
from ematix_flow.records import PipelineState, record_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.records import RunRecord

EVERY_SECONDS = 2.0
HEARTBEAT_SECONDS = 15.0
MOST_READERS = 1000
_NEWEST = 50
_WAITING = 100
"""Events that wait for a reader who does not read; further ones are left out, since each only says that something changed."""


@dataclass(slots=True)
class EventHub:
    """The open pages, and what they know."""

    log: RunLog
    readers: set[asyncio.Queue[str]] = field(default_factory=set)
    _known: dict[str, str] | None = None
    _task: asyncio.Task[None] | None = None

    async def subscribe(self) -> AsyncIterator[str]:
        """Yield events as text until the reader goes away."""
        queue: asyncio.Queue[str] = asyncio.Queue(_WAITING)
        self.readers.add(queue)
        if self._task is None or self._task.done():
            self._known = None
            self._task = asyncio.create_task(self._watch())
        try:
            yield "retry: 3000\nevent: hello\ndata: {}\n\n"
            while True:
                try:
                    yield await asyncio.wait_for(queue.get(), HEARTBEAT_SECONDS)
                except TimeoutError:
                    yield ": alive\n\n"
        finally:
            self.readers.discard(queue)

    async def close(self) -> None:
        """Stop reading the run log."""
        if self._task is not None:
            self._task.cancel()

    async def _watch(self) -> None:
        while self.readers:
            changed = await run_in_threadpool(self._changed)
            if changed:
                self._send(f"event: changed\ndata: {json.dumps(changed)}\n\n")
            await asyncio.sleep(EVERY_SECONDS)

    def _send(self, text: str) -> None:
        for queue in self.readers:
            if not queue.full():
                queue.put_nowait(text)

    def _changed(self) -> dict[str, Any]:
        """Return the runs and pipelines that are not as they were the last time."""
        try:
            now = self._snapshot()
        except RunLogError:
            return {}
        before, self._known = self._known, now
        if before is None:
            return {}
        changed = sorted(key for key, text in now.items() if before.get(key) != text)
        by_kind: dict[str, Any] = {}
        for key in changed:
            kind, _, name = key.partition(" ")
            by_kind.setdefault(kind, []).append(name)
        return by_kind

    def _snapshot(self) -> dict[str, str]:
        runs = [*self.log.latest_runs(_NEWEST), *self.log.running_runs(_NEWEST)]
        known = {f"runs {record_key(run)}": _state(run) for run in runs}
        known |= {f"pipelines {state.pipeline}": str(state.version) for state in self.log.all(PipelineState)}
        return known | {f"actions {action.id}": str(action.version) for action in self.log.all(Action)}


def _state(run: RunRecord) -> str:
    """Return what differs when a run has changed: its status, or how far it is."""
    return f"{run.status} {run.extras.get('snapshot_at') or run.extras.get('progress_at')}"
