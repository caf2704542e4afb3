"""Who joins a training set: the database that has the versions, or Spark, which reads all of them; chosen by size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.plan.steps import Choice
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

AUTO, DATABASE, SPARK = "auto", "database", "spark"
ENGINES = (AUTO, DATABASE, SPARK)

LOOKUP = 3
"""How many rows Spark reads and sorts in the time in which a database looks up one row of the spine."""

WORTH_SPARK = 2_000_000
"""Lookups, rows of the spine times views, from which the time that Spark needs to begin does not count."""


@dataclass(frozen=True, slots=True)
class JoinSize:
    """How large a training set is, as far as it is known without building it."""

    spine: int | None
    """Rows of the spine; None for a frame of Spark, whose rows nobody has counted."""
    versions: Mapping[str, int]
    """By view, about how many versions there are."""

    @property
    def lookups(self) -> int:
        """Return how many values a database looks up."""
        return (self.spine or 0) * len(self.versions)

    @property
    def moved(self) -> int:
        """Return how many rows Spark sorts."""
        return self.lookups + sum(self.versions.values())


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Who would join a training set and why; nothing was read but sizes."""

    engine: str
    reason: str
    size: JoinSize

    def __str__(self) -> str:
        """Return the choice as one line."""
        return f"join by {'Spark' if self.engine == SPARK else 'the database'}: {self.reason}"


def by_size(size: JoinSize) -> Choice:
    """Return who is expected to be done first."""
    versions = quantity(sum(size.versions.values()), "version")
    what = f"{quantity(size.spine or 0, 'row')} of the spine x {quantity(len(size.versions), 'view')}, about {versions}"
    if size.lookups < WORTH_SPARK:
        return Choice(DATABASE, f"{what}: too few for Spark")
    if size.moved > LOOKUP * size.lookups:
        return Choice(DATABASE, f"{what}: most versions would be read for nothing")
    return Choice(SPARK, f"{what}: as many that sorting them is faster than looking them up")
