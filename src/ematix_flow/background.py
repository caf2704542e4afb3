"""Work in a thread that never keeps the process from ending; it knows nothing of what the work is."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")


def in_background(work: Callable[[], Result], name: str) -> Future[Result]:
    """Start some work and return its future; threads of a pool would be waited for at the end of the process."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again by Future.result in the asking thread
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
