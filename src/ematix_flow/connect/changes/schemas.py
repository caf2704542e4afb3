"""Change events with a schema in a registry: read with their logical types, which say what numbers in them mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class ChangeReader(ABC):
    """Reads payloads that have schemas; it travels to the tasks that read the messages."""

    @abstractmethod
    def read(self, payload: bytes) -> dict[str, Any] | str:
        """Return the values of one message, or what is wrong with it."""
