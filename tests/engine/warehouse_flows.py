"""A warehouse pipeline that copies orders, and a run of it that ends at a point."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.warehouse_pipeline import WarehouseSource, WarehouseTarget, warehouse_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ematix_flow.connections import Connection


def copying(
    connection: Connection, sql: str, transform: str | None, table_name: str = "copied", **more: Any
) -> Callable[[], Any]:
    """Return a pipeline from a query into a table of the same warehouse; `transform` is the SQL in between."""
    source = WarehouseSource(connection, sql, connection.kind)
    target = WarehouseTarget(connection, table_name, connection.kind)

    @warehouse_pipeline(source=source, target=target, **{"name": "copy", **more})
    def copy() -> str | None:
        return transform

    return copy


@contextmanager
def interrupted_at(point: str) -> Iterator[None]:
    """Expect that the block is interrupted at a failpoint of the commit."""

    def interrupt(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ematix_flow.commit.warehouse.failpoint", interrupt)
        with pytest.raises(KeyboardInterrupt):
            yield
