"""What a run log needs of its storage: records with compare-and-set, runs, and a clock; the rules are in `log`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.config.project_name import ProjectName

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime
    from pathlib import Path

    from ematix_flow.commit.runlog.records import R, Record
    from ematix_flow.records import RunRecord

RUNNING = "running"
ACTIVE = ("requested", RUNNING, "paused")
"""Statuses of runs that are not over."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs are requested."""

    pipeline: str | None = None
    status: str | None = None
    limit: int = 50
    offset: int = 0
    projects: tuple[str, ...] | None = None
    """Only runs of these projects; None for all."""
    since: datetime | None = None
    """Only runs that began then or later."""
    request_id: str | None = None
    """Only the attempts at this request."""
    counted: bool = True
    """Whether the runs are counted too, which takes longer the more there are; without, the page alone counts."""


RECENT = 10_000
"""Runs that are read to count them, where a backend cannot count by itself."""


def last_of(attempts: Sequence[RunRecord]) -> RunRecord | None:
    """Return the last attempt of the run that was found; None when there is none, or more than one run."""
    if len({run.run_id for run in attempts}) != 1:
        return None
    return max(attempts, key=lambda run: run.attempt)


class RunLogBackend(ABC):
    """Storage of a run log. What a method has written when it returns survives a crash; RunLogError when it is away."""

    @property
    @abstractmethod
    def display_address(self) -> str:
        """Return the address for people; no secret."""

    @property
    def path(self) -> Path | None:
        """Return the file or the folder, where it is one of this machine."""
        return None

    @property
    def project(self) -> ProjectName:
        """Return the project whose records these are; one without a name where projects are not distinguished."""
        return ProjectName()

    @property
    def projects(self) -> tuple[str, ...] | None:
        """Return the names whose runs count as those of the project; None where projects are not distinguished."""
        return None

    @property
    def everything(self) -> RunLogBackend:
        """Return the backend with the records of all projects, under the keys by which they are stored."""
        return self

    @abstractmethod
    def ensure(self) -> None:
        """Create what is missing, or raise where nothing may be created; safe when two processes do it at once."""

    @abstractmethod
    def now(self) -> datetime:
        """Return the time by the clock that all processes with this run log share."""

    @abstractmethod
    def find(self, kind: type[R], key: tuple[str, ...]) -> R | None:
        """Return the record of a key."""

    @abstractmethod
    def all(self, kind: type[R]) -> list[R]:
        """Return every record of a kind, in the order of their keys."""

    @abstractmethod
    def swap(self, before: R | None, after: R) -> R | None:
        """Write a record in place of exactly `before`; None when that is not what is there."""

    @abstractmethod
    def drop(self, record: Record) -> bool:
        """Delete a record, if it is still this one."""

    @abstractmethod
    def put_run(self, run: RunRecord) -> None:
        """Write or replace the record of one attempt of a run."""

    @abstractmethod
    def put_progress(self, run: RunRecord) -> None:
        """Replace the extras of a running attempt; one that has ended meanwhile stays as it is."""

    @abstractmethod
    def runs(self, run_filter: RunFilter) -> tuple[list[RunRecord], int]:
        """Return the newest runs, and how many there are."""

    def newest_runs(
        self, pipelines: Sequence[str], limit: int, projects: tuple[str, ...] | None = None
    ) -> list[RunRecord]:
        """Return the newest runs of each of some pipelines, those of one pipeline newest first."""
        pages = [self.runs(RunFilter(name, limit=limit, projects=projects))[0] for name in pipelines]
        return [run for page in pages for run in page]

    def count_outcomes(self, since: datetime, projects: tuple[str, ...] | None = None) -> dict[tuple[str, str], int]:
        """Return how many runs began since then, by pipeline and status."""
        runs, _ = self.runs(RunFilter(since=since, limit=RECENT, projects=projects))
        return dict(Counter((run.pipeline, run.status) for run in runs))

    @abstractmethod
    def run(self, run_id: str, projects: tuple[str, ...] | None = None) -> RunRecord | None:
        """Return a run by its id or a beginning of it that no other has, among all runs or those of some projects.

        It is the last attempt of the run, unless `id#1` names another.
        """

    @abstractmethod
    def last_attempt(self, request_id: str, target: str | None) -> int:
        """Return the highest number of an attempt at a request, or at one target of it; 0 when there is none."""

    @abstractmethod
    def forget_runs(self, before: datetime, runs: Collection[str], requests: Collection[str]) -> int:
        """Delete ended runs that began earlier, except these runs and those of these requests; return how many."""

    def clean_up(self, before: datetime) -> None:
        """Remove what is left of records that were dropped earlier; there is nothing by default."""
        del before

    @abstractmethod
    def close(self) -> None:
        """Close what is open; the backend can be used again."""
