"""The part of a run log that belongs to one project: records and runs under its own keys, returned with plain names.

Records from before there were projects, or before this one had a name, are seen while there is none of its own. The
first change takes such a record over, once and by one project: no other one resumes an open request of an old run log.
A legacy record is returned with its version below zero, so that it is never taken for an own one of the same version.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.backend import RunLogBackend
from ematix_flow.commit.runlog.project_keys import (
    adoption_key,
    digest_of_record,
    is_keyed,
    pipeline_field,
    scoped,
    scoped_key,
    scoped_record,
    unscoped_record,
    unscoped_run,
)
from ematix_flow.commit.runlog.records import Adoption, key_of, with_version
from ematix_flow.connect.config.project_name import project_digest
from ematix_flow.failpoints import failpoint
from ematix_flow.records import split_key

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime
    from pathlib import Path

    from ematix_flow.commit.runlog.backend import RunFilter
    from ematix_flow.commit.runlog.records import R, Record
    from ematix_flow.connect.config.project_name import ProjectName
    from ematix_flow.records import RunRecord


class ProjectBackend(RunLogBackend):
    """One project's view of a run log that several share."""

    def __init__(self, inner: RunLogBackend, project: ProjectName) -> None:
        self._inner, self._project = inner, project
        self._legacy = tuple(project_digest(name) for name in project.legacy)
        self._digests = (project.digest, *self._legacy)

    @property
    def display_address(self) -> str:
        """Return the address of the whole run log."""
        return self._inner.display_address

    @property
    def path(self) -> Path | None:
        """Return the file or the folder of the whole run log."""
        return self._inner.path

    @property
    def project(self) -> ProjectName:
        """Return the project."""
        return self._project

    @property
    def projects(self) -> tuple[str, ...]:
        """Return the name of the project and those it had before."""
        return (self._project.name, *self._project.legacy)

    @property
    def everything(self) -> RunLogBackend:
        """Return the whole run log."""
        return self._inner

    def ensure(self) -> None:
        """Create what is missing of the whole run log."""
        self._inner.ensure()

    def now(self) -> datetime:
        """Return the time of the whole run log."""
        return self._inner.now()

    def clean_up(self, before: datetime) -> None:
        """Clean up the whole run log."""
        self._inner.clean_up(before)

    def close(self) -> None:
        """Close the whole run log."""
        self._inner.close()

    # Records

    def find(self, kind: type[R], key: tuple[str, ...]) -> R | None:
        """Return the project's own record, or the legacy one that it may take over."""
        if pipeline_field(kind) is None:
            return self._inner.find(kind, key)
        if not is_keyed(kind):
            record = self._inner.find(kind, key)
            return unscoped_record(record) if record is not None and digest_of_record(record) in self._digests else None
        own = self._inner.find(kind, scoped_key(kind, key, self._project.digest))
        if own is not None:
            return unscoped_record(own)
        legacy = self._legacy_record(kind, key)
        return None if legacy is None else _as_adoptable(legacy)

    def all(self, kind: type[R]) -> list[R]:
        """Return the project's own records, and legacy ones that it may take over."""
        everything = self._inner.all(kind)
        if pipeline_field(kind) is None:
            return everything
        if not is_keyed(kind):
            return [unscoped_record(record) for record in everything if digest_of_record(record) in self._digests]
        by_key: dict[tuple[str, ...], R] = {}
        for digest in self._digests:
            records = [record for record in everything if digest_of_record(record) == digest]
            own = digest == self._project.digest
            for plain in map(unscoped_record, records) if own else map(_as_adoptable, self._free(records)):
                by_key.setdefault(key_of(plain), plain)
        return sorted(by_key.values(), key=key_of)

    def swap(self, before: R | None, after: R) -> R | None:
        """Write the project's own record; one that replaces a legacy record takes it over."""
        own = scoped_record(after, self._project.digest)
        if before is None or before.version >= 0:
            stored = self._inner.swap(before, own)
        else:
            legacy = self._read_as(before)
            stored = None if legacy is None else self._adopted(legacy, own)
        return None if stored is None else unscoped_record(stored)

    def drop(self, record: Record) -> bool:
        """Delete the project's own record, or the legacy one that was read in its place."""
        if record.version >= 0:
            return self._inner.drop(scoped_record(record, self._project.digest))
        legacy = self._read_as(record)
        return legacy is not None and self._inner.drop(legacy)

    # Legacy records

    def _legacy_record(self, kind: type[R], key: tuple[str, ...]) -> R | None:
        """Return the newest legacy record of a key that no other project has taken over."""
        for digest in self._legacy:
            record = self._inner.find(kind, scoped_key(kind, key, digest))
            if record is not None and self._may_take(self._inner.find(Adoption, (adoption_key(record),))):
                return record
        return None

    def _free(self, records: list[R]) -> list[R]:
        """Return those of some legacy records that no other project has taken over."""
        adoptions = {one.record: one for one in self._inner.all(Adoption)} if records else {}
        return [record for record in records if self._may_take(adoptions.get(adoption_key(record)))]

    def _may_take(self, adoption: Adoption | None) -> bool:
        return adoption is None or (adoption.project == self._project.digest and not adoption.done)

    def _read_as(self, before: R) -> R | None:
        """Return the legacy record that was read as `before`; None when there is an own one, or it has changed."""
        kind, key = type(before), key_of(before)
        if self._inner.find(kind, scoped_key(kind, key, self._project.digest)) is not None:
            return None
        legacy = self._legacy_record(kind, key)
        return legacy if legacy is not None and legacy.version == -before.version else None

    def _adopted(self, legacy: R, after: R) -> R | None:
        """Write the project's own record in place of a legacy one.

        The right to do so is decided first, the legacy record goes last: a crash in between loses no open request and
        leaves none to another project.
        """
        adoption = self._claim_adoption(adoption_key(legacy))
        if adoption is None:
            return None
        failpoint("runlog.adopting")
        stored = self._inner.swap(None, after)
        if stored is None:
            return None
        failpoint("runlog.adopted")
        if not self._inner.drop(legacy):  # a process of an earlier version has changed it meanwhile
            self._inner.drop(stored)
            return None
        self._inner.swap(adoption, replace(adoption, done=True))
        return stored

    def _claim_adoption(self, key: str) -> Adoption | None:
        """Record that this project takes a record over; return None when another one does."""
        adoption = self._inner.swap(None, Adoption(key, self._project.digest)) or self._inner.find(Adoption, (key,))
        return adoption if adoption is not None and self._may_take(adoption) else None

    # Runs

    def put_run(self, run: RunRecord) -> None:
        """Write a run of this project: its ids may be those of another project's run, too."""
        self._inner.put_run(self._own_run(run))

    def put_progress(self, run: RunRecord) -> None:
        """Write the progress of a run of this project."""
        self._inner.put_progress(self._own_run(run))

    def _own_run(self, run: RunRecord) -> RunRecord:
        digest = self._project.digest
        run_id, request_id = scoped(run.run_id, digest), scoped(run.request_id, digest)
        return replace(run, run_id=run_id, request_id=request_id, project=self._project.name)

    def runs(self, run_filter: RunFilter) -> tuple[list[RunRecord], int]:
        """Return the newest runs of the requested projects."""
        if run_filter.request_id is not None:
            return self._of_request(run_filter, run_filter.request_id)
        page, total = self._inner.runs(run_filter)
        return [unscoped_run(run) for run in page], total

    def _of_request(self, run_filter: RunFilter, request_id: str) -> tuple[list[RunRecord], int]:
        """Return the attempts at a request of this project, or of one under an earlier name of it."""
        for digest in self._digests:
            page, total = self._inner.runs(replace(run_filter, request_id=scoped(request_id, digest)))
            if page:
                return [unscoped_run(run) for run in page], total
        return [], 0

    def newest_runs(
        self, pipelines: Sequence[str], limit: int, projects: tuple[str, ...] | None = None
    ) -> list[RunRecord]:
        """Return the newest runs of the requested projects."""
        return [unscoped_run(run) for run in self._inner.newest_runs(pipelines, limit, projects)]

    def count_outcomes(self, since: datetime, projects: tuple[str, ...] | None = None) -> dict[tuple[str, str], int]:
        """Count the runs of the requested projects."""
        return self._inner.count_outcomes(since, projects)

    def run(self, run_id: str, projects: tuple[str, ...] | None = None) -> RunRecord | None:
        """Return a run by its whole id, that of this project first, or by a beginning of it that no other has."""
        whole, number = split_key(run_id)
        for name in self.projects if projects is None else projects:
            record = self._inner.run(f"{scoped(whole, project_digest(name))}{number}", (name,))
            if record is not None and unscoped_run(record).run_id == whole:
                return unscoped_run(record)
        record = self._inner.run(run_id, projects) or self._inner.run(run_id, (self._project.name,))
        return None if record is None else unscoped_run(record)

    def last_attempt(self, request_id: str, target: str | None) -> int:
        """Return the highest number, also of attempts under an earlier name."""
        return max(self._inner.last_attempt(scoped(request_id, digest), target) for digest in self._digests)

    def forget_runs(self, before: datetime, runs: Collection[str], requests: Collection[str]) -> int:
        """Delete runs of the whole run log, by the ids that are stored there."""
        return self._inner.forget_runs(before, runs, requests)


def _as_adoptable(legacy: R) -> R:
    """Return a legacy record as one that the project may take over."""
    return with_version(unscoped_record(legacy), -legacy.version)
