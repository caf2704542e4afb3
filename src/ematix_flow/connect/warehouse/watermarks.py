"""How far pipelines between warehouses have read, in a file."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class FileWatermarkStore:
    """A JSON file with the watermark of each pipeline; it is replaced as a whole, so a crash leaves the old one or the new one.

    Pipelines that store at the same time wait for each other: none may write over the watermark of another.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def get(self, pipeline: str) -> str | None:
        """Return what was stored for a pipeline."""
        return self._values().get(pipeline)

    def set(self, pipeline: str, value: str) -> None:
        """Store a value for a pipeline."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_name(f"{self._path.name}.draft")
        with self._alone():
            values = {**self._values(), pipeline: value}
            with draft.open("w", encoding="utf-8") as file:
                json.dump(values, file, indent=2, sort_keys=True)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one thread of one process at a time change the file; the lock of a killed one ends with it."""
        with self._path.with_name(f"{self._path.name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _values(self) -> dict[str, str]:
        try:
            values: dict[str, str] = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return values
