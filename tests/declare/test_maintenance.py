"""What a table says about its maintenance is checked when it is declared."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, Maintenance, ManagedTable, ematix, pk
from ematix_flow.errors import FlowError

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": HOUR}, "less than a day"),
        ({"keep": 7}, "not a duration"),
        ({"every": -HOUR}, "not a duration"),
        ({"orphans_after": 23 * HOUR}, "files of loads under way"),
        ({"keep_versions": 0}, "at least 1"),
        ({"keep_versions": True}, "at least 1"),
        ({"target_file_size": "many"}, "not a size"),
        ({"target_file_size": 0}, "not a size"),
    ],
)
def test_what_would_be_unsafe_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(FlowError, match=message):
        Maintenance(**options)


@pytest.mark.parametrize(
    ("spelling", "size"), [("128MB", 134217728), ("1 gb", 1 << 30), ("512KB", 1 << 19), (4096, 4096)]
)
def test_sizes_are_read(spelling: Any, size: int) -> None:
    assert Maintenance(target_file_size=spelling).file_bytes == size


def test_less_than_a_day_needs_a_word() -> None:
    assert Maintenance(keep=HOUR, short_keep=True).keep == HOUR


def test_a_table_says_its_maintenance_in_its_body_or_to_the_decorator() -> None:
    monthly = Maintenance(keep=timedelta(days=30))

    class Things(ManagedTable):
        __schema__, __tablename__, __maintenance__ = "shop", "things", monthly
        id: Annotated[BigInt, pk()]

    @ematix.table(schema="shop", maintenance=monthly)
    class Others:
        id: Annotated[BigInt, pk()]

    assert Things.__table__.maintenance == Others.__table__.maintenance == monthly  # type: ignore[attr-defined]
    with pytest.raises(FlowError, match=r"is a Maintenance\(\.\.\.\), not dict"):
        ematix.table(schema="shop", maintenance={})(type("Wrong", (), {"__annotations__": {"id": BigInt}}))  # type: ignore[arg-type]
