"""Random days of an inbox against a plain model: files come late, change and are loaded by runs that fail anywhere."""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ematix_flow import failpoints
from ematix_flow.errors import PlanError, RunError
from ematix_flow.failpoints import FailpointError
from tests.depth import deep_but
from tests.engine.inboxes import Inbox

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

POINTS = (
    "token.after_insert",
    "plan.after_bounds",
    "stage.collected",
    "commit.ledger_inserted",
    "commit.watermark",
    "commit.before_commit",
    "commit.commit_sent",
    "runlog.before_success",
    "runlog.after_success",
)
TARGETS = {
    "sqlite": {"kind": "sqlite", "path": "target.db"},
    "files": {"kind": "object_store_local", "path": "lake", "format": "parquet"},
}
arrivals = st.tuples(st.sampled_from(["a.csv", "b.csv", "m.csv", "sub/k.csv", "z.csv"]), st.integers(1, 3))
hours = st.tuples(
    st.lists(arrivals, max_size=2),
    st.sampled_from(["load", "error", "ignore"]),
    st.sampled_from(["", *POINTS]),
)
"""The files that come or change, then a run with a policy and the place where it fails, if it does."""


@dataclass
class Model:
    """What is in the folder, which of it was loaded, and every row that the target must have."""

    there: dict[str, tuple[int, ...]] = field(default_factory=dict)
    loaded: dict[str, tuple[int, ...]] = field(default_factory=dict)
    rows: Counter[int] = field(default_factory=Counter)

    def chosen(self, policy: str) -> list[str] | None:
        """Return the files that a load must bring; None when it must be refused."""
        changed = [name for name in self.loaded if name in self.there and self.there[name] != self.loaded[name]]
        if (policy == "error" and changed) or not (self.there or self.loaded):
            return None
        new = [name for name in self.there if name not in self.loaded]
        return new + (changed if policy == "load" else [])

    def load(self, chosen: list[str]) -> None:
        """Take these files as loaded."""
        for name in chosen:
            self.loaded[name] = self.there[name]
            self.rows.update(self.there[name])


@dataclass
class Day:
    """The real inbox and its model, side by side."""

    inbox: Inbox
    model: Model = field(default_factory=Model)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    failed: bool = False
    """The last run failed after it may have committed, so that the next one may have nothing left to do."""

    def put(self, name: str, rows: int) -> None:
        """Let a file come, or change: rows are never the same twice, so that none can hide."""
        self.model.there[name] = tuple(next(self.numbers) for _ in range(rows))
        self.inbox.put(name, *self.model.there[name])

    def run(self, policy: str, point: str = "") -> None:
        """Run a load, which a failpoint may end, and compare."""
        chosen = self.model.chosen(policy)
        failpoints.arm(f"{point}=raise@1" if point else "")
        try:
            result = self._loaded(policy, chosen)
        except FailpointError:
            self._resolve(chosen)
            return
        if result is not None and not result.get("recovered"):
            assert chosen is not None
            assert (result["rows_inserted"], result["files_loaded"]) == (self._count(chosen), len(chosen))
            self.model.load(chosen)
        elif result is not None:
            assert self.failed, "a run that finished is not taken up again"
        self.failed = self.failed and result is None
        assert self.rows() == self.model.rows

    def _loaded(self, policy: str, chosen: list[str] | None) -> dict[str, Any] | None:
        """Return the result, or None for a load that was refused as it must be."""
        try:
            return self.inbox.run(on_replaced=policy)
        except FailpointError:
            raise
        except (PlanError, RunError):
            assert chosen is None
            return None

    def _resolve(self, chosen: list[str] | None) -> None:
        """Find out whether a load that failed is there: whole or not at all."""
        if self.rows() != self.model.rows:
            self.model.load(chosen or [])
        assert self.rows() == self.model.rows, "a load is there whole or not at all"
        self.failed = True

    def _count(self, chosen: list[str]) -> int:
        return sum(len(self.model.there[name]) for name in chosen)

    def rows(self) -> Counter[int]:
        """Return every row of the target, as often as it is there."""
        return Counter(self.inbox.ids())


@pytest.mark.parametrize("kind", deep_but(TARGETS, "sqlite"))
@settings(max_examples=25)
@given(day=st.lists(hours, min_size=2, max_size=6))
def test_every_version_that_is_wanted_is_loaded_once(kind: str, day: list[tuple[Any, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        target = {**TARGETS[kind], "path": str(Path(folder, TARGETS[kind]["path"]))}
        real = Day(Inbox(folder, target, str(Path(folder, "log.db"))))
        try:
            for arrived, policy, point in day:
                for name, rows in arrived:
                    real.put(name, rows)
                real.run(policy, point)
            # Whatever went before, two runs bring all that is still to be brought: the first may only finish another.
            real.run("load")
            real.run("load")
        finally:
            failpoints.arm("")
        assert real.model.loaded == {**real.model.loaded, **real.model.there}
