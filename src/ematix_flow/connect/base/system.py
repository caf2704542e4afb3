"""What every system says about itself, and what a kind of connection can be used for, as one record that its system declares."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Mapping


class System(ABC):
    """Whatever a connection of batch pipelines leads to."""

    kind: ClassVar[str]
    dialect: ClassVar[str]
    """The name by which sqlglot knows its SQL, or that of whoever reads its rows."""

    @abstractmethod
    def info(self) -> Mapping[str, object]:
        """Return host, port, dbname and user for people; no secret."""

    @abstractmethod
    def probe(self) -> str:
        """Ask the system for a sign of life and give a sentence about it; no secret."""


@dataclass(frozen=True, slots=True)
class SystemRecord:
    """One kind of connection: the classes of its roles, each as `module:Class`; empty where it does not have the role."""

    kind: str
    database: str = ""
    """Answers SQL of its own, as a source and as a target."""
    files: str = ""
    """A batch source of files."""
    file_tables: str = ""
    """A target whose tables are folders of files."""
    lake_source: str = ""
    """A batch source of lake tables."""
    lake_table: str = ""
    """A target that is one lake table."""
    stream: str = ""
    """What a stream reads."""
    sink: str = ""
    """A target that takes messages."""

    @property
    def source(self) -> str:
        """Return the class that batch pipelines read."""
        return self.database or self.files or self.lake_source

    @property
    def target(self) -> str:
        """Return the class that batch pipelines write to."""
        return self.database or self.file_tables or self.lake_table


def load_class(path: str) -> Any:
    """Import the class of a role; the error for a package that is not installed names the way to it."""
    module, name = path.split(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        message = f"{name} needs the package {error.name!r}, which is not installed"
        raise MissingExtraError(message, hint='pip install "ematix-flow-spark[all]"') from None
