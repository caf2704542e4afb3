"""Runs every slot in a process of its own on this machine, which goes on when the scheduler ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from ematix_flow.engine.executors.base import (
    DispatchError,
    DispatchHandle,
    worker_arguments,
    worker_environment,
)

if TYPE_CHECKING:
    from ematix_flow.engine.executors.base import DispatchSpec


STDERR = 2
"""What workers print as their result belongs to the log output of a scheduler."""


class SubprocessExecutor:
    """Starts `flow run` for each slot."""

    backend = "subprocess"

    def __init__(self) -> None:
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def dispatch(self, spec: DispatchSpec) -> DispatchHandle:
        """Start a process for a slot; its output goes where the scheduler's own output goes."""
        command = [sys.executable, "-m", "ematix_flow", *worker_arguments(spec)]
        try:
            # A session of its own: a signal to the scheduler's terminal must not end the work.
            process = subprocess.Popen(
                command,
                env={**os.environ, **worker_environment(spec)},
                stdin=subprocess.DEVNULL,
                stdout=STDERR,
                start_new_session=True,
            )
        except OSError as error:
            message = f"no process could be started for {spec.pipeline_name}: {error}"
            raise DispatchError(message) from None
        self._started = {ref: one for ref, one in self._started.items() if one.poll() is None}
        self._started[str(process.pid)] = process
        threading.Thread(target=process.wait, name=f"worker-{process.pid}", daemon=True).start()
        return DispatchHandle(spec.pipeline_name, self.backend, str(process.pid))

    def cancel(self, handle: DispatchHandle) -> None:
        """End the process of a slot politely."""
        process = self._started.get(handle.ref)
        if process is not None and process.poll() is None:
            process.terminate()
