"""What every system declares about itself, and what a kind of connection can be used for, as one record."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.base.capabilities import Capabilities
from ematix_flow.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.declare.connection.base import Connection


class System(ABC):
    """The system that a connection of batch pipelines leads to."""

    kind: ClassVar[str]
    dialect: ClassVar[str]
    """The name by which sqlglot knows its SQL, or that of the engine that reads its rows."""

    @abstractmethod
    def info(self) -> Mapping[str, object]:
        """Return host, port, dbname and user for people; no secret."""

    @abstractmethod
    def probe(self) -> str:
        """Check that the system answers and return a sentence about it; no secret."""


DATABASE, FOLDER, LAKE, BROKER = "database", "folder", "lake", "broker"


@dataclass(frozen=True, slots=True)
class SystemRecord:
    """One kind of connection: the classes of its roles, each as `module:Class`; empty where it does not have the role."""

    connection: type[Connection]
    """What users declare."""
    family: str
    """DATABASE, FOLDER, LAKE or BROKER: what sources and targets of this kind are opened as."""
    source: str = ""
    """What batch pipelines read."""
    target: str = ""
    """What loads write to."""
    stream_source: str = ""
    """What a stream reads."""
    sink: str = ""
    """A target that takes messages."""
    capabilities: Capabilities = field(default_factory=Capabilities)
    """What its target can do."""
    extra: str = ""
    """The extra that installs what the kind needs; empty where every installation has it."""

    @property
    def kind(self) -> str:
        """Return the name of the kind."""
        return self.connection.kind

    def load(self, path: str) -> Any:
        """Import the class of a role; the error for a package that is not installed names the extra of the kind."""
        module, name = path.split(":")
        try:
            return getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            message = f"{name} needs the package {error.name!r}, which is not installed"
            extra = f"[{self.extra}]" if self.extra else ""
            raise MissingExtraError(message, hint=f'pip install "ematix-flow-spark{extra}"') from None
