"""Runs as objects: found by day and time, by id, and by request; names hold what lists need, so that few are read."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from datetime import UTC
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ematix_flow.commit.runlog.backend import ACTIVE, last_of
from ematix_flow.commit.runlog.objects.documents import READERS
from ematix_flow.commit.runlog.objects.names import safe_name
from ematix_flow.commit.runlog.project_keys import digest_in
from ematix_flow.commit.runlog.records import instant
from ematix_flow.connect.config.project_name import project_digest
from ematix_flow.records import RunRecord, split_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from ematix_flow.commit.runlog.backend import RunFilter
    from ematix_flow.connect.storage.base import Store

RUNS = "runs/"
IDS = "ids/"
ATTEMPTS = "attempts/"
_RUN_KEY = re.compile(r"runs/([\d-]+/\d+)~([^~]+)~([^~]+)~([^~]+?)(?:~([0-9a-f]{12}))?\.jsonl")
_ATTEMPT = re.compile(r"(?<!%20)%23\d+$")
"""The number of an attempt at the end of a name; the digest of a project has a blank before it."""
_SEARCHED = 200
"""The newest runs among which those of a request are searched; names do not hold it."""
_FIELDS = frozenset(field.name for field in fields(RunRecord))


@dataclass(frozen=True, slots=True)
class _Name:
    """What the name of a run's object holds: `runs/<day>/<time>~<status>~<pipeline>~<id>[~<project>].jsonl`."""

    key: str
    started: str
    status: str
    pipeline: str
    run_id: str
    """With the number of the attempt, from the second one on."""
    project: str
    """The digest of the project; empty for a run of none."""

    @property
    def stem(self) -> str:
        """Return the id without the attempt."""
        return _stem(self.run_id)


class ObjectRuns:
    """The runs of one run log."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, run: RunRecord) -> None:
        """Write a run, then its pointer, and remove what it replaces; a list that sees both follows the pointer."""
        key, pointer = _key(run), _pointer_of(_name(run))
        before = self._store.read(pointer)
        self._store.write(key, _line(run))
        if before != key.encode():
            self._store.write(pointer, key.encode())
        if before is not None and before != key.encode():
            self._store.delete(before.decode())
        if run.request_id:
            self._store.write(f"{_attempts(run.request_id, run.target)}{run.attempt:06d}", b"")

    def put_progress(self, run: RunRecord) -> None:
        """Write a run in place of itself while its pointer leads there; one that ends meanwhile leaves nothing behind."""
        key, pointer = _key(run), _pointer_of(_name(run))
        if self._store.read(pointer) != key.encode():
            return
        self._store.write(key, _line(run))
        if self._store.read(pointer) != key.encode():
            self._store.delete(key)

    def page(self, run_filter: RunFilter) -> tuple[list[RunRecord], int]:
        """Return the newest runs and how many there are; every name is listed, but only one page is read."""
        digests = None if run_filter.projects is None else {project_digest(name) for name in run_filter.projects}
        earliest = "" if run_filter.since is None else f"{run_filter.since.astimezone(UTC):%Y-%m-%d/%H%M%S%f}"
        names = [
            name
            for name in self._names()
            if digests is None or name.project in digests
            if run_filter.pipeline in (None, "") or name.pipeline == safe_name(run_filter.pipeline or "")
            if run_filter.status in (None, "", name.status)
            if name.started >= earliest
        ]
        newest = sorted(names, key=lambda name: (name.started, name.run_id), reverse=True)
        if run_filter.request_id is not None:
            attempts = self._read(name.key for name in newest[:_SEARCHED])
            matching = [run for run in attempts if run.request_id == run_filter.request_id]
            return matching[run_filter.offset : run_filter.offset + run_filter.limit], len(matching)
        return self._read(n.key for n in newest[run_filter.offset : run_filter.offset + run_filter.limit]), len(names)

    def get(self, run_id: str, projects: tuple[str, ...] | None = None) -> RunRecord | None:
        """Return a run by its id, or by a beginning that no other id has: its last attempt, unless one is named."""
        whole, number = split_key(run_id)
        if number == "#1":
            return last_of(self._pointed([_pointer_of(safe_name(whole))], projects))
        start, digests = safe_name(run_id), None if projects is None else {project_digest(name) for name in projects}
        shard = f"{IDS}{start[:2]}/" if len(start) > 1 else IDS
        names = [entry.key.rpartition("/")[2] for entry in self._store.listed(shard)]
        like = [name for name in names if run_id and name.startswith(start)]
        same = [name for name in like if _stem(name) == start]
        chosen = same or [name for name in like if digests is None or _digest_in_name(name) in digests]
        if start in like and _stem(start) != start:  # an attempt is named
            chosen = [start]
        if len({_stem(name) for name in chosen}) != 1:
            return None
        return last_of(self._pointed(map(_pointer_of, chosen), projects))

    def _pointed(self, pointers: Iterable[str], projects: tuple[str, ...] | None) -> list[RunRecord]:
        """Return the runs that pointers lead to, of some projects."""
        keys = [key.decode() for key in map(self._store.read, pointers) if key is not None]
        return [run for run in self._read(keys) if projects is None or run.project in projects]

    def last_attempt(self, request_id: str, target: str | None) -> int:
        """Return the highest number of an attempt; 0 when there is none."""
        entries = self._store.listed(_attempts(request_id, target))
        return max((int(one.key.rpartition("/")[2]) for one in entries), default=0)

    def forget(self, before: datetime, runs: Collection[str], requests: Collection[str]) -> int:
        """Remove runs that are over and began earlier, and the attempts of requests that are over."""
        protected, open_ = {safe_name(run) for run in runs}, {safe_name(request) for request in requests}
        limit = f"{before.astimezone(UTC):%Y-%m-%d/%H%M%S%f}"
        old = [n for n in self._names() if n.started < limit and n.status not in ACTIVE and n.stem not in protected]
        for name in old:
            self._store.delete(name.key)
            self._store.delete(_pointer_of(name.run_id))
        seconds = (self._store.now() - before).total_seconds()
        for entry in list(self._store.listed(ATTEMPTS)):
            if entry.age > seconds and entry.key.split("/")[1] not in open_:
                self._store.delete(entry.key)
        return len(old)

    def _names(self) -> list[_Name]:
        """Return every run once: of two objects, whose writer died between them, the one that its id names."""
        names: dict[str, _Name] = {}
        for entry in self._store.listed(RUNS):
            match = _RUN_KEY.fullmatch(entry.key)
            if match is None:  # an object of others
                continue
            started, status, pipeline, run_id, project = match.groups(default="")
            name = _Name(entry.key, started, status, pipeline, run_id, project)
            if run_id in names and self._store.read(_pointer_of(run_id)) == names[run_id].key.encode():
                continue
            names[run_id] = name
        return list(names.values())

    def _read(self, keys: Iterable[str]) -> list[RunRecord]:
        with ThreadPoolExecutor(READERS) as pool:
            read = list(pool.map(self._store.read, keys))
        documents = [json.loads(data) for data in read if data is not None]
        return [RunRecord(**{name: value for name, value in one.items() if name in _FIELDS}) for one in documents]


def _line(run: RunRecord) -> bytes:
    return f"{json.dumps(asdict(run), default=str)}\n".encode()


def _key(run: RunRecord) -> str:
    segments = [safe_name(run.status), safe_name(run.pipeline), _name(run)]
    segments += [project_digest(run.project)] if run.project else []
    return f"{RUNS}{instant(run.started_at):%Y-%m-%d/%H%M%S%f}~{'~'.join(segments)}.jsonl"


def _digest_in_name(name: str) -> str:
    """Return the digest of the project at the end of the name of a run; empty for a run of none."""
    return digest_in(unquote(_stem(name)))


def _stem(name: str) -> str:
    """Return the name of a run without the number of its attempt."""
    return _ATTEMPT.sub("", name)


def _name(run: RunRecord) -> str:
    """Return the name of a record: that of the run's id, and from the second attempt on its number."""
    return safe_name(run.run_id) + ("" if run.attempt == 1 else safe_name(f"#{run.attempt}"))


def _pointer_of(name: str) -> str:
    return f"{IDS}{name[:2]}/{name}"


def _attempts(request_id: str, target: str | None) -> str:
    within = "" if target is None else f"{safe_name(target)}/"
    return f"{ATTEMPTS}{safe_name(request_id)}/{within}"
