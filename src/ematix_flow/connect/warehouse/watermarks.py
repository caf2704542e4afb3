"""How far pipelines between warehouses have read, in a file."""

from __future__ import annotations

import json
import os
from pathlib import Path


class FileWatermarkStore:
    """A JSON file with the watermark of each pipeline; it is replaced as a whole, so a crash leaves the old one or the new one."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def get(self, pipeline: str) -> str | None:
        """Return what was stored for a pipeline."""
        return self._values().get(pipeline)

    def set(self, pipeline: str, value: str) -> None:
        """Store a value for a pipeline."""
        values = {**self._values(), pipeline: value}
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}.draft")
        with draft.open("w", encoding="utf-8") as file:
            json.dump(values, file, indent=2, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)

    def _values(self) -> dict[str, str]:
        try:
            values: dict[str, str] = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return values
