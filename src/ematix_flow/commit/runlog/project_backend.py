"""The part of a run log that belongs to one project: records and runs under its own keys, given with plain names.

Records from before projects were told apart, or before this one had a name, are seen as long as there is none of its own. The
first change takes such a record over, once and by one project: an open request of an old run log is resumed by nobody else.
A former record is given out with its version below zero, so that it is never taken for an own one of the same version.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.backend import Book
from ematix_flow.commit.runlog.project_keys import (
    adoption_key,
    is_keyed,
    mark_of_record,
    marked,
    marked_key,
    marked_record,
    pipeline_field,
    unmarked_record,
    unmarked_run,
)
from ematix_flow.commit.runlog.records import Adoption, key_of, with_version
from ematix_flow.connect.config.project_name import project_mark
from ematix_flow.failpoints import failpoint
from ematix_flow.records import split_key

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime
    from pathlib import Path

    from ematix_flow.commit.runlog.backend import Wanted
    from ematix_flow.commit.runlog.records import R, Record
    from ematix_flow.connect.config.project_name import ProjectName
    from ematix_flow.records import RunRecord


class ProjectBook(Book):
    """One project's view of a book that several share."""

    def __init__(self, inner: Book, project: ProjectName) -> None:
        self._inner, self._project = inner, project
        self._legacy = tuple(project_mark(name) for name in project.legacy)
        self._marks = (project.mark, *self._legacy)

    @property
    def shown(self) -> str:
        """Return the place of the whole book."""
        return self._inner.shown

    @property
    def path(self) -> Path | None:
        """Return the file or the folder of the whole book."""
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
    def everything(self) -> Book:
        """Return the whole book."""
        return self._inner

    def ensure(self) -> None:
        """Make what is missing of the whole book."""
        self._inner.ensure()

    def now(self) -> datetime:
        """Return the time of the whole book."""
        return self._inner.now()

    def clean_up(self, before: datetime) -> None:
        """Tidy the whole book."""
        self._inner.clean_up(before)

    def close(self) -> None:
        """Close the whole book."""
        self._inner.close()

    # Records

    def find(self, kind: type[R], key: tuple[str, ...]) -> R | None:
        """Return the project's own record, or the former one that it may take over."""
        if pipeline_field(kind) is None:
            return self._inner.find(kind, key)
        if not is_keyed(kind):
            found = self._inner.find(kind, key)
            return unmarked_record(found) if found is not None and mark_of_record(found) in self._marks else None
        own = self._inner.find(kind, marked_key(kind, key, self._project.mark))
        if own is not None:
            return unmarked_record(own)
        legacy = self._legacy_record(kind, key)
        return None if legacy is None else _shown(legacy)

    def all(self, kind: type[R]) -> list[R]:
        """Return the project's own records, and former ones that it may take over."""
        everything = self._inner.all(kind)
        if pipeline_field(kind) is None:
            return everything
        if not is_keyed(kind):
            return [unmarked_record(record) for record in everything if mark_of_record(record) in self._marks]
        by_key: dict[tuple[str, ...], R] = {}
        for mark in self._marks:
            found = [record for record in everything if mark_of_record(record) == mark]
            own = mark == self._project.mark
            for plain in map(unmarked_record, found) if own else map(_shown, self._free(found)):
                by_key.setdefault(key_of(plain), plain)
        return sorted(by_key.values(), key=key_of)

    def swap(self, before: R | None, after: R) -> R | None:
        """Write the project's own record; one that replaces a former record takes it over."""
        own = marked_record(after, self._project.mark)
        if before is None or before.version >= 0:
            kept = self._inner.swap(before, own)
        else:
            legacy = self._read_as(before)
            kept = None if legacy is None else self._taken_over(legacy, own)
        return None if kept is None else unmarked_record(kept)

    def drop(self, record: Record) -> bool:
        """Forget the project's own record, or the former one that was read in its place."""
        if record.version >= 0:
            return self._inner.drop(marked_record(record, self._project.mark))
        legacy = self._read_as(record)
        return legacy is not None and self._inner.drop(legacy)

    # Former records

    def _legacy_record(self, kind: type[R], key: tuple[str, ...]) -> R | None:
        """Return the newest former record of a key that no other project has taken over."""
        for mark in self._legacy:
            found = self._inner.find(kind, marked_key(kind, key, mark))
            if found is not None and self._may_take(self._inner.find(Adoption, (adoption_key(found),))):
                return found
        return None

    def _free(self, found: list[R]) -> list[R]:
        """Return those of some former records that no other project has taken over."""
        taken = {one.record: one for one in self._inner.all(Adoption)} if found else {}
        return [record for record in found if self._may_take(taken.get(adoption_key(record)))]

    def _may_take(self, adoption: Adoption | None) -> bool:
        return adoption is None or (adoption.project == self._project.mark and not adoption.done)

    def _read_as(self, before: R) -> R | None:
        """Return the former record that was read as `before`; None when there is an own one, or it has changed."""
        kind, key = type(before), key_of(before)
        if self._inner.find(kind, marked_key(kind, key, self._project.mark)) is not None:
            return None
        legacy = self._legacy_record(kind, key)
        return legacy if legacy is not None and legacy.version == -before.version else None

    def _taken_over(self, legacy: R, after: R) -> R | None:
        """Write the project's own record in place of a former one.

        Who may do so is settled first, and the former record goes last: a crash in between loses no open request and
        leaves none to another project.
        """
        adoption = self._settled(adoption_key(legacy))
        if adoption is None:
            return None
        failpoint("runlog.adopting")
        kept = self._inner.swap(None, after)
        if kept is None:
            return None
        failpoint("runlog.adopted")
        if not self._inner.drop(legacy):  # a process of before has changed it meanwhile
            self._inner.drop(kept)
            return None
        self._inner.swap(adoption, replace(adoption, done=True))
        return kept

    def _settled(self, key: str) -> Adoption | None:
        """Note that this project takes a record over; None when another one does."""
        found = self._inner.swap(None, Adoption(key, self._project.mark)) or self._inner.find(Adoption, (key,))
        return found if found is not None and self._may_take(found) else None

    # Runs

    def put_run(self, run: RunRecord) -> None:
        """Write a run of this project: its ids may be those of another project's run, too."""
        mark = self._project.mark
        run_id, request_id = marked(run.run_id, mark), marked(run.request_id, mark)
        self._inner.put_run(replace(run, run_id=run_id, request_id=request_id, project=self._project.name))

    def runs(self, wanted: Wanted) -> tuple[list[RunRecord], int]:
        """Return the newest runs of the projects that are wanted."""
        found, total = self._inner.runs(wanted)
        return [unmarked_run(run) for run in found], total

    def run(self, run_id: str, projects: tuple[str, ...] | None = None) -> RunRecord | None:
        """Return a run by its whole id, that of this project first, or by a beginning of it that no other has."""
        whole, number = split_key(run_id)
        for name in self.projects if projects is None else projects:
            found = self._inner.run(f"{marked(whole, project_mark(name))}{number}", (name,))
            if found is not None and unmarked_run(found).run_id == whole:
                return unmarked_run(found)
        found = self._inner.run(run_id, projects) or self._inner.run(run_id, (self._project.name,))
        return None if found is None else unmarked_run(found)

    def last_attempt(self, request_id: str, target: str | None) -> int:
        """Return the highest number, also of attempts that were made under a former name."""
        return max(self._inner.last_attempt(marked(request_id, mark), target) for mark in self._marks)

    def forget_runs(self, before: datetime, runs: Collection[str], requests: Collection[str]) -> int:
        """Forget runs of the whole book, by the ids that are kept there."""
        return self._inner.forget_runs(before, runs, requests)


def _shown(legacy: R) -> R:
    """Return a former record to whoever may take it over."""
    return with_version(unmarked_record(legacy), -legacy.version)
