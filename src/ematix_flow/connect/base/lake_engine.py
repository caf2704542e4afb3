"""What a lake table requires of the engine that reads and writes it: SQL in, rows and counts out.

The engine itself is injected.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


JAR = str(Path(__file__).parents[2] / "java" / "ematix-flow.jar")
"""The file with our classes for Spark."""

NONE: Mapping[str, str] = MappingProxyType({})
"""No settings."""


@dataclass(frozen=True, slots=True)
class SparkRequirements:
    """What a Spark session must have to read and write a system: Java packages and settings; no secret."""

    packages: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    excludes: tuple[str, ...] = ()
    """Dependencies that the packages declare but do not need, as `group:artifact`, either of which may be `*`."""
    jars: tuple[str, ...] = ()
    """Files of this installation."""
    heavy: bool = False
    """The work is so much that Java had better run quickly than start quickly."""
    own: bool = False
    """The work runs code of the user or goes on for long, so that it has a Java process of its own."""

    def __add__(self, other: SparkRequirements) -> SparkRequirements:
        """Return the needs of both."""
        return SparkRequirements(
            self.packages + other.packages,
            self.settings + other.settings,
            self.excludes + other.excludes,
            self.jars + other.jars,
            self.heavy or other.heavy,
            self.own or other.own,
        )


class EngineError(Exception):
    """The error of the engine when a statement fails; `transient` when the same work may succeed later.

    Not `answered` when no response of the engine arrived: then the statement may still be running.
    """

    def __init__(self, message: str, *, transient: bool = False, answered: bool = True) -> None:
        super().__init__(message)
        self.transient = transient
        self.answered = answered


class LakeEngine(Protocol):
    """A Spark session, as far as lake tables need it."""

    def catalog(self, name: str, settings: Mapping[str, str]) -> None:
        """Make a catalog known to the session; secrets among its settings are shown nowhere."""

    def bucket(self, name: str, settings: Mapping[str, str]) -> None:
        """Make a bucket known to the session by settings of Hadoop; secrets among them are shown nowhere."""

    def setting(self, name: str) -> str:
        """Return a setting of the session, empty where it has none."""

    def query(self, sql: str, settings: Mapping[str, str] = NONE) -> list[tuple[Any, ...]]:
        """Return the rows of a query, run under settings that end with it."""

    def run(self, sql: str, settings: Mapping[str, str]) -> dict[str, int]:
        """Run a statement under settings that end with it, and return the numbers that its response names."""

    def view(self, name: str, paths: Sequence[str], columns: str) -> None:
        """Show Parquet files as a relation of this session; without files an empty one of these columns."""

    def columns(self, table: str) -> list[tuple[str, str, bool]] | None:
        """Return name, type and nullability of a table's columns, or None where there is no such table."""

    def materialize(self, name: str, query: str) -> None:
        """Work out a query once and show its rows as a relation of this session."""

    def forget(self, name: str) -> None:
        """Remove a relation of this session and what is cached of it."""
