"""Lets tasks run in the folder of the command: relative paths mean the same to it and to a worker that others used before."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    Task = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


def in_this_folder(task: Task) -> Task:
    """Return the task as one that first goes to the folder this process is in now; on other machines there may be none."""
    folder = os.getcwd()  # noqa: PTH109 - the text travels

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        with suppress(OSError):
            os.chdir(folder)
        yield from task(batches)

    return run
