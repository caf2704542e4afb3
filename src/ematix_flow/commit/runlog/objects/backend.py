"""A run log in a folder or a bucket: records as numbered documents, and runs; no service is known here."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.backend import RunLogBackend
from ematix_flow.commit.runlog.objects.documents import RETAIN_SECONDS, Versions
from ematix_flow.commit.runlog.objects.names import safe_name
from ematix_flow.commit.runlog.objects.runs import ObjectRuns
from ematix_flow.commit.runlog.records import document_of, from_document, key_of, with_version
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.errors import RunError, RunLogError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import datetime
    from pathlib import Path

    from ematix_flow.commit.runlog.backend import RunFilter
    from ematix_flow.commit.runlog.records import R, Record
    from ematix_flow.connect.storage.base import Store
    from ematix_flow.records import RunRecord

STATE = "state/"


class ObjectBackend(RunLogBackend):
    """Objects below a prefix of a store."""

    def __init__(self, store: Store, path: Path | None = None) -> None:
        self._store = store
        self._path = path
        self._versions = Versions(store)
        self._runs = ObjectRuns(store)

    @property
    def display_address(self) -> str:
        """Return the folder or the bucket."""
        return self._store.display_address

    @property
    def path(self) -> Path | None:
        """Return the folder, where it is one of this machine."""
        return self._path

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise every error of the store as one of the run log."""
        try:
            yield
        except (OSError, RunError) as error:
            raise RunLogError(f"the run log {self.display_address} does not answer: {safe_text(error)}") from None

    def ensure(self) -> None:
        """Check that the store answers; a folder is created."""
        with self._translate_errors():
            if self._path is not None:
                (self._path / STATE).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._store.probe()

    def now(self) -> datetime:
        """Return the time of the store."""
        with self._translate_errors():
            return self._store.now()

    def close(self) -> None:
        """Drop the cache; clients of buckets belong to the process."""
        self._versions.forget()

    # Records

    def find(self, kind: type[R], key: tuple[str, ...]) -> R | None:
        """List the numbers of a key and read the last one."""
        with self._translate_errors():
            version = self._versions.newest(_prefix(kind, key))
        return None if version is None or version.dropped else from_document(kind, version.content)

    def all(self, kind: type[R]) -> list[R]:
        """List everything of a kind, and read what is new."""
        with self._translate_errors():
            versions = self._versions.every(f"{STATE}{kind.table}/")
        records = [from_document(kind, version.content) for version in versions if not version.dropped]
        return sorted(records, key=key_of)

    def swap(self, before: R | None, after: R) -> R | None:
        """Create the number that follows."""
        prefix = _prefix(type(after), key_of(after))
        with self._translate_errors():
            if before is None:
                last = self._versions.newest(prefix)
                if last is not None and not last.dropped:
                    return None
            else:
                last = self._versions.at(prefix, before.version)
                if last is None:
                    return None
            number = self._versions.follow(prefix, last, document_of(after))
        return None if number is None else with_version(after, number)

    def drop(self, record: Record) -> bool:
        """Create a number which marks the record as gone: the next one must not have a number that was used."""
        prefix = _prefix(type(record), key_of(record))
        with self._translate_errors():
            last = self._versions.at(prefix, record.version)
            return last is not None and self._versions.follow(prefix, last, {"dropped": True}) is not None

    def clean_up(self, before: datetime) -> None:
        """Remove records that were dropped long ago, with all their numbers, and what killed writers left."""
        with self._translate_errors():
            oldest = max((self._store.now() - before).total_seconds(), RETAIN_SECONDS)
            for version in self._versions.every(STATE):
                if version.dropped and version.age > oldest:
                    self._versions.remove(version.prefix)
            for draft in list(self._store.unfinished(STATE)):
                if draft.age > RETAIN_SECONDS:
                    self._store.delete(draft.key)

    # Runs

    def put_run(self, run: RunRecord) -> None:
        """Write a run."""
        with self._translate_errors():
            self._runs.put(run)

    def put_progress(self, run: RunRecord) -> None:
        """Write a run again, as long as it is running."""
        with self._translate_errors():
            self._runs.put_progress(run)

    def runs(self, run_filter: RunFilter) -> tuple[list[RunRecord], int]:
        """List the names of runs and read one page of them."""
        with self._translate_errors():
            return self._runs.page(run_filter)

    def run(self, run_id: str, projects: tuple[str, ...] | None = None) -> RunRecord | None:
        """Read one run."""
        with self._translate_errors():
            return self._runs.get(run_id, projects)

    def last_attempt(self, request_id: str, target: str | None) -> int:
        """List the attempts."""
        with self._translate_errors():
            return self._runs.last_attempt(request_id, target)

    def forget_runs(self, before: datetime, runs: Collection[str], requests: Collection[str]) -> int:
        """Remove old runs."""
        with self._translate_errors():
            return self._runs.forget(before, runs, requests)


def _prefix(kind: type[Record], key: tuple[str, ...]) -> str:
    return f"{STATE}{kind.table}/{'/'.join(safe_name(part) for part in key)}/"
