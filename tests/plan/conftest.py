"""Golden files: what a plan looked like when somebody last agreed with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that accepts the plans as they are now: `pytest tests/plan --update-golden`."""
    parser.addoption("--update-golden", action="store_true", help="write the golden files of plans anew")


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Callable[[str, str], None]:
    """Return the function that compares a text with its golden file."""
    update = pytestconfig.getoption("--update-golden", default=False)

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"no golden file {name}: run pytest tests/plan --update-golden"
        assert text == path.read_text(encoding="utf-8")

    return compare
