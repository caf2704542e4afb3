"""What Spark says of two queries over one state, as an error for people."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from ematix_flow.errors import PositionMovedError
from ematix_flow.run.streams.query import _of_state

if TYPE_CHECKING:
    from ematix_flow.run.streams.query import StateFolder


@pytest.mark.parametrize(
    "text",
    [
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 3.",
        "Query terminated with exception: Multiple streaming queries are concurrently using file:/s/query/commits.",
    ],
)
def test_another_process_over_the_same_state_is_told(text: str) -> None:
    folder = cast("StateFolder", SimpleNamespace(path="/s"))
    error: Any = _of_state(RuntimeError(text), folder)
    assert isinstance(error, PositionMovedError)
    assert "another process runs this stream; nothing was changed" in str(error)
