"""A network that cuts or goes silent at COMMIT: whatever the answer would have been, the load is made once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.harness import Sweep, moved
from tests.crash.journey import prepare
from tests.crash.proxy import Proxy
from tests.depth import deep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Nursery

pytestmark = [pytest.mark.crash, pytest.mark.service]


@pytest.fixture(params=["postgres", "mysql"])
def direct(request: pytest.FixtureRequest, target_of: Callable[[str], CrashTarget]) -> CrashTarget:
    """Return a target on each server."""
    return target_of(request.param)


@pytest.fixture
def proxy(direct: CrashTarget) -> Iterator[Proxy]:
    """Return a proxy before the server."""
    opened = Proxy(direct.fields["url"])
    yield opened
    opened.close()


@pytest.mark.in_turn
@pytest.mark.parametrize("what", [deep("cut before"), "cut after", "silence before", deep("silence after")])
def test_a_lost_answer_to_commit_is_looked_up(nursery: Nursery, direct: CrashTarget, proxy: Proxy, what: str) -> None:
    prepare(direct, "answered")
    sweep = Sweep(nursery, moved(direct, url=proxy.url), "append", "answered", options={"incremental_column": None})
    assert sweep.undisturbed() == []
    stopped = sweep.interrupted("commit.before_commit", impatient=True)
    proxy.at_commit = what
    assert sweep.finished(stopped) == []
    assert proxy.at_commit == ""


@pytest.mark.parametrize("direct", ["postgres", deep("mysql")], indirect=True)
def test_a_server_that_cannot_be_asked_leaves_the_outcome_open_and_the_next_run_finds_out(
    nursery: Nursery, direct: CrashTarget, proxy: Proxy
) -> None:
    prepare(direct, "unknown")
    sweep = Sweep(nursery, moved(direct, url=proxy.url), "append", "unknown", options={"incremental_column": None})
    stopped = sweep.interrupted("commit.before_commit", impatient=True)
    proxy.at_commit = "cut after"
    proxy.refuse()
    ending = nursery.resume(stopped)
    assert ending.error.startswith("UnknownOutcomeError: the answer to COMMIT was lost")
    proxy.accept()
    again = sweep.run(sweep.next_load())
    assert again.answer["recovered"] is True
    assert sweep.judged(sweep.next_load(), []) == []


@pytest.mark.deep
@pytest.mark.slow
def test_a_slow_network_only_takes_longer(nursery: Nursery, direct: CrashTarget, proxy: Proxy) -> None:
    proxy.delay = 0.02
    prepare(direct)
    assert Sweep(nursery, moved(direct, url=proxy.url), "scd2_event", "slow").undisturbed() == []
