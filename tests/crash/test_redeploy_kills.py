"""A redeployment that is killed leaves the old state or the new one, and in the end every window is in the table once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ematix_flow.failpoints import REDEPLOY_NAMES
from tests.crash.test_state_processes import LIFE_SECONDS, finished, run
from tests.crash.windows import EventWriter, WindowFeed, complaints, windows_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Nursery
    from tests.services.kafka import KafkaBroker

pytestmark = [
    pytest.mark.crash,
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.deep,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("state_kills"),
]


@pytest.mark.parametrize("point", REDEPLOY_NAMES)
def test_a_kill_leaves_the_old_state_or_the_new_one(
    nursery: Nursery, target_of: Callable[[str], CrashTarget], kafka_broker: KafkaBroker, tmp_path: Path, point: str
) -> None:
    target = target_of("postgres")
    old = WindowFeed(kafka_broker.address, kafka_broker.create_topic(3), str(tmp_path / "state"), most=18)
    new = replace(old, late_data="dlq")
    writer = EventWriter(old)
    writer.write(45)
    assert run(nursery, target, old).error == ""
    killed = nursery.run("redeploy", target, new, failpoints=f"{point}=kill@1", kill_after=LIFE_SECONDS)
    assert killed.died, killed
    writer.write(9)
    has_new = point in REDEPLOY_NAMES[REDEPLOY_NAMES.index("redeploy.switched") :]
    current, other = (new, old) if has_new else (old, new)
    refused = run(nursery, target, other)
    assert "flow stream redeploy" in refused.error or "remembers what another declaration" in refused.error
    assert run(nursery, target, current).error == ""
    assert complaints(windows_in(target), writer.written, unfinished=True) == []
    assert nursery.run("redeploy", target, new, kill_after=LIFE_SECONDS).answer is True
    assert finished(nursery, target, new, writer) == []
