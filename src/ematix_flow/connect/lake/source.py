"""Lake tables as sources: which relation a name means for Spark, and which version of it a load reads."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from ematix_flow.connect.base.source import SourceSystem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.connect.base.lake_engine import LakeEngine, SparkRequirements
    from ematix_flow.connect.lake.location import LakeLocation


class LakeSource(SourceSystem):
    """The tables of one connection, read by Spark."""

    dialect: ClassVar[str] = "spark"

    def __init__(self, name: str, location: LakeLocation) -> None:
        self.name = name
        self.location = location

    @property
    @abstractmethod
    def spark_requirements(self) -> SparkRequirements:
        """Return what a session needs from its start."""

    @property
    def read_paths(self) -> tuple[str, ...]:
        """Return the folder that tasks read; a bucket is reached from everywhere."""
        return (self.location.store.display_address,) if self.location.bucket is None else ()

    @abstractmethod
    def identity(self) -> tuple[str, ...]:
        """Return what makes two connections the same, as the targets of the system define it."""

    def info(self) -> Mapping[str, object]:
        """Return host, port, dbname and user for people; no secret."""
        return self.location.info()

    def probe(self) -> str:
        """Return whether the lake is there."""
        return self.location.store.probe()

    def prepare(self, engine: LakeEngine) -> None:
        """Make the tables known to the engine."""
        self.location.prepare(engine)

    @abstractmethod
    def relation(self, schema: str, name: str) -> tuple[str, ...]:
        """Return the parts of the name by which Spark knows a table."""

    @abstractmethod
    def newest(self, engine: LakeEngine, schema: str, name: str) -> str:
        """Return the version of a table that is the newest now; a load reads it to its end."""
