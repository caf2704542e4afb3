"""Our own harness under test: each planted bug must make it complain, or its silence about the product means nothing."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.postgres.stager import STAGE_SCHEMA
from tests.crash.folders import FOLDER
from tests.crash.harness import KillLoop, Sweep
from tests.crash.journey import Load, difference, expected, prepare, table_rows
from tests.depth import deep_but

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Nursery

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

PLAIN = {"incremental_column": None}
"""Without a watermark only the token keeps an append from doubling."""


@dataclass(frozen=True)
class Control:
    """A bug, and the disturbance that shows it."""

    bug: str
    kind: str
    mode: str
    point: str
    options: dict[str, Any] = field(default_factory=dict)


CONTROLS = (
    Control("direct_write", "sqlite", "append", "commit.connected", PLAIN),
    Control("watermark_apart", "sqlite", "append", "commit.applied"),
    Control("token_afterwards", "sqlite", "append", "commit.after_commit", PLAIN),
    Control("new_token_on_retry", "sqlite", "append", "commit.after_commit", PLAIN),
    Control("no_transaction", "sqlite", "truncate", "commit.applied_first_stmt"),
    Control("staging_reused", "postgres", "append", "stage.collected"),
    Control("shown_before_the_record", FOLDER, "append", "store.before_record@2", PLAIN),
    Control("shown_before_the_record", FOLDER, "truncate", "store.before_record@2"),
    Control("stage_dropped_with_its_files", FOLDER, "append", "gc.mid_drop", PLAIN),
    Control("truncate_commits", "mysql", "truncate", "commit.applied"),
    Control("truncate_commits_unseen", "mysql", "truncate", "commit.applied_first_stmt"),
)


@pytest.mark.parametrize(
    "control",
    deep_but(
        (
            pytest.param(c, id=f"{c.bug}-{c.mode}", marks=[] if c.kind in ("sqlite", FOLDER) else [pytest.mark.service])
            for c in CONTROLS
        ),
        "token_afterwards-append",
        "no_transaction-truncate",
        "staging_reused-append",
        "shown_before_the_record-append",
    ),
)
def test_a_kill_shows_the_bug(nursery: Nursery, target_of: Callable[[str], CrashTarget], control: Control) -> None:
    target = target_of(control.kind)
    prepare(target, "sound_append", "buggy_append")
    for name, planted in (("sound", ""), ("buggy", control.bug)):
        sweep = Sweep(nursery, target, control.mode, f"{name}_{control.mode}", "", control.options, slots=True)
        # The first load goes without the bug, so that there is something to lose.
        assert sweep.undisturbed() == []
        sweep.bug = planted
        assert bool(sweep.point(control.point, "kill")) == bool(planted)


@pytest.mark.service
def test_a_copy_of_a_failed_attempt_shows_the_bug(nursery: Nursery, target_of: Callable[[str], CrashTarget]) -> None:
    target = target_of("postgres")
    prepare(target, "sound_append", "buggy_append")
    for name, bug in (("sound", ""), ("buggy", "every_attempt_applied")):
        sweep = Sweep(nursery, target, "append", f"{name}_append", bug)
        assert bool(sweep.undisturbed("stage.after_task_commit=raise@1")) == bool(bug)


@pytest.mark.service
@pytest.mark.parametrize("bug", ["", "unverified_staging"])
def test_a_staging_that_a_server_crash_emptied_shows_the_bug(
    nursery: Nursery, target_of: Callable[[str], CrashTarget], bug: str
) -> None:
    target = target_of("postgres")
    prepare(target)
    sweep = Sweep(nursery, target, "merge", "merged", bug)
    stopped = sweep.interrupted("commit.connected")
    empty_staging(target)
    assert nursery.resume(stopped).answer is not None
    assert bool(difference(table_rows(target, sweep.next_load()), expected("merge", [0]))) == bool(bug)


@pytest.mark.service
@pytest.mark.parametrize("bug", ["", "lease_without_fence"])
def test_an_owner_that_wakes_up_late_shows_the_bug(
    nursery: Nursery, target_of: Callable[[str], CrashTarget], bug: str
) -> None:
    target = target_of("postgres")
    prepare(target)
    old, new = (Load("truncate", number, "replaced", slot=f"slot-{number}") for number in (0, 1))
    stopped = nursery.run("load", target, old, failpoints="commit.connected=stop", bug=bug)
    assert nursery.run("load", target, new, bug=bug).answer is not None
    woken = nursery.resume(stopped)
    assert bool(difference(table_rows(target, new), expected("truncate", [1]))) == bool(bug)
    assert woken.error.startswith("FencedError") != bool(bug)


@pytest.mark.parametrize("bug", ["", "records_replaced"])
def test_a_commit_from_an_old_state_shows_the_bug(
    nursery: Nursery, target_of: Callable[[str], CrashTarget], bug: str
) -> None:
    target = target_of(FOLDER)
    slow, quick = (Sweep(nursery, target, "append", name) for name in ("slow", "quick"))
    assert slow.undisturbed() + quick.undisturbed() == []
    slow.bug = bug
    stopped = slow.interrupted("store.before_record")
    assert quick.undisturbed() == []
    assert bool(slow.finished(stopped) + difference(table_rows(target, quick.next_load()), quick.expected())) == bool(
        bug
    )


def test_the_kill_loop_shows_the_bug(nursery: Nursery, target_of: Callable[[str], CrashTarget], tmp_path: Path) -> None:
    target = target_of("sqlite")
    prepare(target, "loop_append")
    loop = KillLoop(nursery, target, tmp_path / "acknowledged", Random(7), "direct_write")  # noqa: S311 - repeatable
    assert loop.lives(60) != []


def empty_staging(target: CrashTarget) -> None:
    """Do to staged rows what PostgreSQL does to unlogged tables when it starts after a crash."""
    with closing(target.database.session()) as session:
        stages = [name for name, _ in target.database.stages(session)]
        assert stages
        for name in stages:
            session.execute(f'TRUNCATE "{STAGE_SCHEMA}"."{name}"')
