"""What a task of Spark is called, also where the engine does not say."""

from __future__ import annotations

from ematix_flow.run.stage.tasks import _attempt


def test_tasks_of_an_engine_that_tells_them_nothing_have_numbers_of_their_own() -> None:
    # Sail gives tasks no context; parts of equal numbers would be written over each other.
    assert len({_attempt() for _ in range(100)}) == 100
