"""Plans that wait to be applied: one JSON document each, next to the run log; it holds sample rows, no secret."""

from __future__ import annotations

import json
import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.cleanup import STALE_SECONDS
from ematix_flow.commit.plan_codec import decode, encode, know
from ematix_flow.errors import CommitError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from ematix_flow.commit.request import Excluded, TableSnapshot
    from ematix_flow.connect.base.stage import StageSpec
    from ematix_flow.plan.explain.diff import Diff
    from ematix_flow.plan.steps import TargetPlan
    from ematix_flow.records import TaskReport

FORMAT = 3
LIFETIME = timedelta(seconds=STALE_SECONDS)
"""How long a plan can be applied: staging that is older may be gone."""
FORGET = timedelta(days=7)
"""How long after its end a plan is still stored, so that its outcome can be shown."""
_ID = re.compile(r"p-[0-9a-f]{8}")


@know
@dataclass(frozen=True, slots=True)
class StoredConnection:
    """A target's connection as it may be stored: by its name, with its settings where no file has them."""

    name: str
    settings: dict[str, Any] | None
    identity: str
    """A digest of what makes it this system and no other."""


@know
@dataclass(frozen=True, slots=True)
class Waiting:
    """One target of a plan: everything that its commit needs."""

    place: StoredConnection
    schema: str
    table: str
    plan: TargetPlan
    stage: StageSpec
    parts: tuple[TaskReport, ...]
    expected: tuple[TableSnapshot, ...]
    diff: Diff
    excluded: tuple[Excluded, ...] = ()


@know
@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan of a pipeline with its staged rows."""

    id: str
    pipeline: str
    made_at: datetime
    targets: tuple[Waiting, ...]
    fan_out: bool = False
    continue_on_failure: bool = False
    continue_on_failure_post: bool = False
    posts: tuple[str, ...] = ()
    """The post steps that are SQL, when all of them are."""
    module_needed: str = ""
    """Why the pipeline's module has to be loaded to apply the plan; empty when it has not."""

    @property
    def expires_at(self) -> datetime:
        """Return until when the plan can be applied."""
        return self.made_at + LIFETIME


def new_id() -> str:
    """Return an id that is short enough to type."""
    return f"p-{secrets.token_hex(4)}"


class PlanStore:
    """The plans in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, plan: StoredPlan) -> None:
        """Store a plan, so that a crash leaves the whole document or none."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        document = json.dumps({"format": FORMAT, "plan": encode(plan)}, indent=1, ensure_ascii=False)
        draft = self.folder / f".{plan.id}.{secrets.token_hex(4)}"
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="surrogatepass") as file:
                file.write(document)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path(plan.id))
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        self._sync()

    def read(self, plan_id: str) -> StoredPlan:
        """Return a plan."""
        path = self._path(plan_id)
        if not _ID.fullmatch(plan_id) or not path.exists():
            message = f"there is no plan {plan_id!r} in {self.folder}"
            hint = f"flow plan NAME --diff makes one; {did_you_mean(plan_id, self.ids())}"
            raise UnknownNameError(message, hint=hint)
        document = json.loads(path.read_text(encoding="utf-8", errors="surrogatepass"))
        if document["format"] != FORMAT:
            message = f"plan {plan_id} was written by another version (format {document['format']})"
            raise CommitError(message, hint="plan again.")
        plan = decode(document["plan"])
        assert isinstance(plan, StoredPlan)  # noqa: S101 - the only thing that is written
        return plan

    def ids(self) -> list[str]:
        """Return the ids of the stored plans."""
        return sorted(path.stem for path in self.folder.glob("p-*.json"))

    def forget_old(self, now: datetime) -> None:
        """Remove documents that can no longer be needed; one that cannot be removed is left to the next time."""
        for path in self.folder.glob("p-*.json"):
            with suppress(OSError):
                if now.timestamp() - path.stat().st_mtime > (LIFETIME + FORGET).total_seconds():
                    path.unlink()

    def _path(self, plan_id: str) -> Path:
        return self.folder / f"{plan_id}.json"

    def _sync(self) -> None:
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
