"""Threads that work while another one loads; Spark knows both as one program."""

from __future__ import annotations

import threading
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def start_thread(name: str, run: Callable[[], None], spark: Any = None) -> None:
    """Start a thread in the context of this one; with the session of Spark, if it gives work to that."""
    work = copy_context().run
    if spark is None:
        threading.Thread(target=work, args=(run,), name=name, daemon=True).start()
        return
    from pyspark import InheritableThread

    InheritableThread(target=work, args=(run,), name=name, daemon=True, session=spark).start()
