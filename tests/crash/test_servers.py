"""Servers that crash, end sessions, make us wait or choose us as the victim of a deadlock: the load is made once."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from ematix_flow.commit.ledger import Ledger
from tests.crash.harness import Sweep, in_background, wait_until
from tests.crash.journey import prepare
from tests.depth import deep

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.connect.base.session import Session
    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Nursery
    from tests.services.server import Server

pytestmark = [pytest.mark.crash, pytest.mark.service]

SERVERS = ("postgres", "mysql")


def server_of(kind: str, request: pytest.FixtureRequest) -> Server:
    return request.getfixturevalue(f"{kind}_server")  # type: ignore[no-any-return]


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("mode", ["append", "scd2_event"])
@pytest.mark.parametrize("point", ["stage.mid_rows", "stage.collected", "commit.verified", "commit.before_commit"])
def test_a_server_that_crashes_and_comes_back_gets_the_load_once(
    nursery: Nursery,
    request: pytest.FixtureRequest,
    target_of: Callable[[str], CrashTarget],
    kind: str,
    mode: str,
    point: str,
) -> None:
    target, server = target_of(kind), server_of(kind, request)
    prepare(target, "crashed")
    sweep = Sweep(nursery, target, mode, "crashed" if mode == "append" else "versions")
    assert sweep.undisturbed() == []
    stopped = sweep.interrupted(point)
    server.crash()
    server.start()
    assert sweep.finished(stopped) == []


@pytest.mark.parametrize("kind", ["postgres", deep("mysql")])
def test_a_server_that_stays_away_fails_the_run_and_the_next_one_loads(
    nursery: Nursery, request: pytest.FixtureRequest, target_of: Callable[[str], CrashTarget], kind: str
) -> None:
    target, server = target_of(kind), server_of(kind, request)
    prepare(target, "away")
    sweep = Sweep(nursery, target, "append", "away")
    stopped = sweep.interrupted("commit.before_commit", impatient=True)
    server.crash()
    ending = nursery.resume(stopped)
    server.start()
    assert sweep.refused(ending, "Error") == []
    assert sweep.undisturbed() == []


def test_terminated_backends_do_no_harm(nursery: Nursery, target_of: Callable[[str], CrashTarget]) -> None:
    target = target_of("postgres")
    prepare(target, "terminated")
    sweep = Sweep(nursery, target, "append", "terminated")
    for point in ("stage.mid_rows", "commit.fence_locked", "commit.applied", "commit.before_commit"):
        stopped = sweep.interrupted(point)
        with closing(target.database.session()) as session:
            session.query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert sweep.finished(stopped) == []


@pytest.mark.parametrize("kind", ["postgres", deep("mysql")])
def test_a_row_that_somebody_else_holds_fails_the_run_as_a_whole(
    nursery: Nursery, target_of: Callable[[str], CrashTarget], kind: str
) -> None:
    target = target_of(kind)
    prepare(target)
    sweep = Sweep(nursery, target, "merge", "held")
    assert sweep.undisturbed() == []
    with closing(target.database.session()) as holder:
        holder.begin()
        hold(holder, target)
        ending = sweep.run(sweep.next_load(), impatient=True)
        holder.rollback()
    assert sweep.refused(ending, "TransientError", "could not take the load now") == []
    assert sweep.undisturbed() == []


@pytest.mark.parametrize("kind", SERVERS)
def test_a_deadlock_ends_with_the_load_made(
    nursery: Nursery, target_of: Callable[[str], CrashTarget], kind: str
) -> None:
    target = target_of(kind)
    prepare(target)
    sweep = Sweep(nursery, target, "merge", "held")
    assert sweep.undisturbed() == []
    stopped = sweep.interrupted("commit.ledger_inserted")
    with closing(target.database.session()) as other:
        other.begin()
        hold(other, target)

        def wait_for_the_fence() -> None:
            with suppress(target.database.errors):
                other.execute(f"UPDATE {Ledger(target.database).name('fences')} SET epoch = epoch")
            other.rollback()

        with in_background(wait_for_the_fence):
            # InnoDB answers from a cache that it renews only when nobody has read it for 0.1 s.
            wait_until(lambda: waiters(target) > 0, pause=0.2)
            assert sweep.finished(stopped) == []


def hold(session: Session, target: CrashTarget) -> None:
    """Lock the rows of the target."""
    session.query(f"SELECT id FROM {target.schema}.held FOR UPDATE")


def waiters(target: CrashTarget) -> int:
    """Return how many sessions wait for a lock."""
    query = {
        "postgres": "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
        "mysql": "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
    }[target.kind]
    with closing(target.database.session()) as session:
        return int(session.query(query)[0][0])
