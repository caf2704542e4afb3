"""What all tests of lake tables share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _one_session(quick_lakes: None) -> None:
    """Let every test use the session that all of them share."""
